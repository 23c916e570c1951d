"""A real HTTP server of the providers' wire formats (npm @copilotkit/aimock), and clients of it."""

import asyncio
import contextlib
import functools
import json
import os
import subprocess
import time
import urllib.request

import openai
import pytest
from tests.http_server import free_port
from tests.npm import installed
from tests.wire.relay import Relay

from treadle import Loop, tool
from treadle.effects import Call, Mode, drive_sync
from treadle.testing import check_history

PACKAGE = "@copilotkit/aimock"
VERSION = "1.43.0"
START_SECONDS = 30


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


def calls(*made, **response):
    """A response with tool calls, each a name and its arguments, as text or as a dict."""
    listed = [
        {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}
        for name, given in made
    ]
    return {"toolCalls": listed, **response}


@pytest.fixture(scope="session")
def server_command():
    """The command that starts the server, which is installed once, in its pinned version."""
    return installed("aimock", PACKAGE, VERSION, "dist/cli.js")


@pytest.fixture(scope="session")
def serve(server_command, tmp_path_factory):
    """A context manager that runs a server of some fixtures, and gives its address."""

    @contextlib.contextmanager
    def serve(*fixtures):
        folder = tmp_path_factory.mktemp("aimock")
        (folder / "fixtures.json").write_text(json.dumps({"fixtures": fixtures}))
        port = free_port()
        where = ["-p", str(port), "-h", "127.0.0.1", "-f", str(folder / "fixtures.json")]
        with (folder / "log").open("w+") as log:
            process = subprocess.Popen(
                [*server_command, *where, "--strict", "--chunk-size", "4"], stdout=log, stderr=log
            )
            url = f"http://127.0.0.1:{port}"
            try:
                wait_for(url, process, log)
                yield url
            finally:
                process.terminate()
                process.wait(30)

    return serve


@pytest.fixture(scope="session")
def server(serve):
    """The address of the server, which lives as long as the session."""
    # it does not start without any fixture
    with serve({"match": {"userMessage": "\0never"}, "response": {"content": "-"}}) as url:
        yield url


@pytest.fixture(scope="session")
def relay(server):
    """A relay in front of the server, which keeps what is sent."""
    relay = Relay(server)
    yield relay
    relay.close()


def wait_for(url, process, log):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            control(url, "GET", "/journal")
        except OSError:
            time.sleep(0.05)
        else:
            return
    log.seek(0)
    pytest.fail(f"the wire server did not start:\n{log.read()}")


def control(url, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    where = f"{url}/__aimock{path}"
    request = urllib.request.Request(where, data, headers, method=method)  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - as above
        return json.load(response)


class Wire:
    """The server, as one test sees it: it answers a script, and returns what it was sent."""

    def __init__(self, url):
        self.url = url
        self.base_url = f"{url}/v1"

    def script(self, *responses):
        """Answer the next requests by these, one after another, whatever they say.

        A response is text, or a dict of the server's: ``toolCalls``, ``error`` with ``status``, ...
        What is not about the answer itself, such as ``truncateAfterChunks``, goes under ``how``.
        """
        fixtures = []
        for index, given in enumerate(responses):
            response = {"content": given} if isinstance(given, str) else dict(given)
            how = response.pop("how", {})
            match = {"endpoint": "chat", "sequenceIndex": index}
            fixtures.append({"match": match, "response": response, **how})
        control(self.url, "POST", "/fixtures", {"fixtures": fixtures})

    @property
    def journal(self):
        """The requests so far, with what became of them."""
        return control(self.url, "GET", "/journal")

    @property
    def requests(self):
        """The bodies of the requests so far; each had a history that any provider would take."""
        bodies = [entry["body"] for entry in self.journal]
        for body in bodies:
            check_history(body["messages"])
        return bodies


@pytest.fixture
def wire(server):
    """The server, with no script and an empty journal."""
    control(server, "POST", "/reset")
    return Wire(server)


CLIENTS = ("sync", "async", "sync-streamed", "async-streamed")
DRIVERS = ("run", "run_sync", "stream")


class Caller:
    """Runs a loop on the method of an official client: the exact call that the design shows."""

    def __init__(self, base_url, client, driver):
        self.base_url = base_url
        self.is_async = client.startswith("async")
        self.is_streamed = client.endswith("streamed")
        self.driver = driver
        self.events = []

    def __call__(self, messages, *, model="gpt-4.1", linger=0, **options):
        """Run, wait for `linger` seconds, close the client; return the result, keep the events."""
        kind = openai.AsyncOpenAI if self.is_async else openai.OpenAI
        client = kind(base_url=self.base_url, api_key="a key", max_retries=0)
        send = functools.partial(client.chat.completions.create, model=model)
        if self.is_streamed:
            send = functools.partial(send, stream=True, stream_options={"include_usage": True})
        options.setdefault("retry_delay", 0.01)

        async def aclose():
            # a thread that was given up still reads; its socket must not be closed under it
            await asyncio.sleep(0 if self.is_async else linger)
            closing = client.close()
            if closing is not None:
                await closing

        return getattr(self, f"_{self.driver}")(messages, send, aclose, options)

    def _run(self, messages, send, aclose, options):
        async def go():
            try:
                return await Loop.run(messages, send, on_event=self.events.append, **options)
            finally:
                await aclose()

        return asyncio.run(go())

    def _stream(self, messages, send, aclose, options):
        async def go():
            try:
                async with Loop.stream(messages, send, **options) as stream:
                    async for event in stream:
                        self.events.append(event)
                return stream.result
            finally:
                await aclose()

        return asyncio.run(go())

    def _run_sync(self, messages, send, aclose, options):
        def closing():
            yield Call(aclose, mode=Mode.ASYNC)

        try:
            return Loop.run_sync(messages, send, on_event=self.events.append, **options)
        finally:
            drive_sync(closing())

    def events_of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture(params=[f"{client}-{driver}" for client in CLIENTS for driver in DRIVERS])
def ask(request, wire):
    """Runs a loop, in every combination of a client and a driver."""
    client, driver = request.param.rsplit("-", 1)
    return Caller(wire.base_url, client, driver)


@pytest.fixture
def ask_at():
    """Makes what runs a loop at any address."""
    return lambda base_url: Caller(base_url, "sync", "run_sync")


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch):
    """Keys, endpoints and proxies of the machine stay out of the tests."""
    for name in list(os.environ):
        if name.startswith("OPENAI_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
