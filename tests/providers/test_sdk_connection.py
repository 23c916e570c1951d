"""The clients of models behind an SDK: one for each event loop, closed when it ends."""

import asyncio
import gc
import os
import sys
import textwrap
import threading
from contextlib import closing

import pytest
import trio
from tests.http_server import ScriptedServer
from tests.programs import run_program
from tests.providers.keep_alive import KeepAliveServer

from treadle import Loop
from treadle.providers import backend, embedder


@pytest.fixture
def server():
    with closing(KeepAliveServer()) as made:
        yield made


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def trio_run(coroutine):
    async def go():
        return await coroutine

    return trio.run(go)


async def ask(model, times=2):
    for _ in range(times):
        (await Loop.run("Hi", model, max_retries=0)).unwrap()


async def embed(model, times=2):
    for _ in range(times):
        assert await model(["abc"]) == [[3.0]]


USES = [("chat", True, ask), ("chat", False, ask), ("embedder", None, embed)]


@pytest.fixture(params=USES, ids=["streamed", "whole", "embedder"])
def use(request, server):
    """A model, and a function that makes some requests with it."""
    kind, stream, call = request.param
    if kind == "embedder":
        return embedder("openai:m", base_url=server.url), call
    return backend("openai:m", base_url=server.url, stream=stream), call


# the SDK does not close the generators within its streams, about which trio, unlike asyncio, warns
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
@pytest.mark.parametrize("start", [asyncio.run, trio_run])
def test_each_event_loop_has_its_connection_which_is_closed_at_its_end(start, use, server):
    model, call = use
    for _ in range(2):
        start(call(model))
        assert server.are_closed
    assert server.connections == [1, 1, 2, 2]


def test_event_loops_in_several_threads_have_their_connections(use, server):
    model, call = use
    threads = [threading.Thread(target=asyncio.run, args=(call(model),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.are_closed
    assert sorted(server.connections) == [1, 1, 2, 2, 3, 3]


def test_aclose_closes_the_connection_of_this_event_loop_only(use, server):
    model, call = use

    async def main():
        await call(model)
        await model.aclose()
        assert await asyncio.to_thread(lambda: server.are_closed)
        await model.aclose()  # there is nothing left to close
        await call(model)

    asyncio.run(main())
    assert server.connections == [1, 1, 2, 2]


def test_close_closes_the_connections_of_run_sync(server):
    model = backend("openai:m", base_url=server.url)
    for _ in range(2):
        Loop.run_sync("Hi", model).unwrap()
    model.close()
    assert server.are_closed
    Loop.run_sync("Hi", model).unwrap()
    model.close()
    model.close()
    assert server.connections == [1, 1, 2]


def test_a_model_that_is_dropped_closes_its_connection(server):
    async def main():
        await ask(backend("openai:m", base_url=server.url))
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0.05)  # in which the event loop closes it
        assert await asyncio.to_thread(lambda: server.are_closed)

    asyncio.run(main())


PROGRAM = """
    import asyncio, gc, os, sys
    from treadle import Loop
    from treadle.providers.openai import OpenAIModel

    model = OpenAIModel("m", base_url=sys.argv[1])

    async def main():
        (await Loop.run("Hi", model)).unwrap()
"""


def run(server, code, *flags):
    """Runs a program in another Python; returns what it prints."""
    program = textwrap.dedent(PROGRAM) + textwrap.dedent(code)
    done = run_program(
        [sys.executable, *flags, "-c", program, server.url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.run(main())",
        "asyncio.run(main()); del model",
        "Loop.run_sync('Hi', model).unwrap()",
        "Loop.run_sync('Hi', model).unwrap(); model.close()",
        "Loop.run_sync('Hi', model).unwrap(); asyncio.run(main())",
    ],
)
def test_no_resource_is_left_at_the_exit(code, server):
    """Warnings of the interpreter about sockets and event loops would be on stderr."""
    run(server, f"{code}\ngc.collect()", "-W", "error::ResourceWarning")
    assert server.are_closed


FORK = """
    import warnings

    warnings.simplefilter("ignore", DeprecationWarning)  # of forks in processes with threads
"""


def test_a_forked_child_of_run_sync_has_its_own_connection(server):
    code = """
        Loop.run_sync("Hi", model).unwrap()
        child = os.fork()
        if not child:
            Loop.run_sync("child", model).unwrap()
            model.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        Loop.run_sync("Hi", model).unwrap()
    """
    run(server, textwrap.dedent(FORK) + textwrap.dedent(code))
    assert server.connections == [1, 2, 1]


def test_a_forked_child_does_not_end_the_connections_of_its_parent(server):
    """Even if it ends its copy of the event loop, whose clients it does not use either."""
    code = """
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        client = loop.run_until_complete(model._client())
        child = os.fork()
        if not child:
            is_another = loop.run_until_complete(model._client()) is not client
            loop.run_until_complete(loop.shutdown_asyncgens())
            os._exit(0 if is_another else 1)
        assert os.waitpid(child, 0)[1] == 0
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    """
    run(server, textwrap.dedent(FORK) + textwrap.dedent(code))
    assert server.connections == [1, 1]


REACHED = [
    ("http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1"),
    ("http://ann:hunter2@127.0.0.1:1/v1", "127.0.0.1:1/v1"),
    ("http://127.0.0.1:1/v1?key=hunter2", "http://127.0.0.1:1/v1"),
    ("http://no-such-host.invalid/v1", "http://no-such-host.invalid/v1"),
]


@pytest.mark.filterwarnings("ignore:the API key")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic", "gemini", "xai"])
@pytest.mark.parametrize(("url", "named"), REACHED)
def test_an_error_of_the_connection_names_the_server(provider, stream, url, named):
    model = backend(f"{provider}:m", base_url=url, api_key="k", stream=stream)
    reason = Loop.run_sync("Hi", model, max_retries=1, retry_delay=0).reason
    assert named in str(reason)
    assert str(reason).count("server: ") == 1
    assert "hunter2" not in str(reason)
    assert reason.attempts == 2  # it is tried again, as before


def test_an_embedder_names_the_server_too():
    model = embedder("openai:m", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(Exception, match=r"http://127\.0\.0\.1:1/v1"):
        asyncio.run(model(["abc"]))


def test_an_error_of_the_server_is_not_one_of_the_connection():
    with ScriptedServer((400, {}, "")) as server:
        model = backend("openai:m", base_url=f"{server.url}/v1")
        reason = Loop.run_sync("Hi", model, max_retries=0).reason
    assert "400" in str(reason)
    assert "server: " not in str(reason)
