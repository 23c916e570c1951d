"""A run is freed with its result: no reference cycle keeps it until a garbage collection."""

import gc
import inspect
import logging
import time
import weakref

import anyio
import pytest

from treadle import Loop, RunHandle, tool
from treadle.durable import SQLiteJournal
from treadle.testing import call, calls


def double(a: int) -> int:
    return 2 * a


def fail(a: int) -> int:
    raise ValueError("no")


def answering(messages):
    return "done"


def failing(messages):
    raise ValueError("no")


def calling(name, count=1):
    """A model that calls a tool, and then answers."""
    made = calls(*(call(name, f"c{n}", a=n) for n in range(count)))
    return lambda messages: "done" if messages[-1]["role"] == "tool" else made


def always_calling(messages):
    return calls(call("fail", f"c{len(messages)}", a=1))


def as_async(fn):
    """The function as a coroutine function; an event loop calls a plain function in a thread."""

    async def call(*args, **kwargs):
        value = fn(*args, **kwargs)
        return (await value) if inspect.isawaitable(value) else value

    call.__name__, call.__annotations__ = fn.__name__, fn.__annotations__
    call.__signature__ = inspect.signature(fn)
    return call


async def awaited(model, tools, options):
    return weakref.ref((await Loop.run("go", model, tools=tools, **options)).run)


async def streamed(model, tools, options):
    async with Loop.stream("go", model, tools=tools, **options) as events:
        async for _ in events:
            pass
    return weakref.ref(events.result.run)


PATIENCE = 500
"""A thread that ran a call keeps a reference for a moment longer: waits of 10 ms."""


def on(backend, run, form=as_async):
    def is_freed(model, tools, options):
        async def main():
            state = await run(form(model), list(map(form, tools)), options)
            options.clear()
            waits = 0 if form is as_async else PATIENCE
            while state() is not None and waits:
                await anyio.sleep(0.01)
                waits -= 1
            return state() is None

        return anyio.run(main, backend=backend)

    return is_freed


def at_once(form):
    def is_freed(model, tools, options):
        tools = list(map(form, tools))
        state = weakref.ref(Loop.run_sync("go", form(model), tools=tools, **options).run)
        options.clear()
        waits = PATIENCE
        while state() is not None and waits:
            time.sleep(0.01)
            waits -= 1
        return state() is None

    return is_freed


def unchanged(fn):
    return fn


RUNS = {
    "asyncio": on("asyncio", awaited),
    "trio": on("trio", awaited),
    "threads of asyncio": on("asyncio", awaited, unchanged),
    "threads of trio": on("trio", awaited, unchanged),
    "stream": on("asyncio", streamed),
    "sync": at_once(unchanged),
    "async in sync": at_once(as_async),
}
MODELS = {
    "answer": answering,
    "call": calling("double"),
    "calls": calling("double", 3),
    "failing call": calling("fail"),
    "failing calls": calling("fail", 3),
    "failing model": failing,
    "broken circuit": always_calling,
}
OPTIONS = {
    "plain": dict,
    "max_seconds": lambda: {"max_seconds": 60},
    "handle": lambda: {"handle": RunHandle()},
    "on_event": lambda: {"on_event": lambda _: None},
    "limit": lambda: {"max_iterations": 1},
}


@pytest.fixture(autouse=True)
def nothing_is_logged():
    """A log record of an exception keeps its frames."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("run", "options"),
    [
        (run, options)
        for run in RUNS
        for options in OPTIONS
        if (run, options) != ("stream", "handle")  # a stream is the handle of its run
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_a_run_is_freed_with_its_result(run, model, options):
    gc.disable()
    try:
        assert RUNS[run](MODELS[model], [double, fail], OPTIONS[options]())
    finally:
        gc.enable()


@pytest.mark.parametrize("run", ["asyncio", "trio", "stream", "sync", "async in sync"])
def test_a_run_that_its_deadline_ended_is_freed_with_its_result(run):
    def slow(messages):
        return anyio.sleep(60)

    gc.disable()
    try:
        assert RUNS[run](slow, [], {"max_seconds": 0.02})
    finally:
        gc.enable()


@pytest.fixture
def no_collection():
    """Only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Watched:
    """A stage that keeps weak references to a context and to what its run counts and calls."""

    def __init__(self):
        self.references = []
        self.stages = Loop().pipeline.insert_before("ask_model", self.watch)

    def watch(self, ctx):
        watched = ctx, ctx.state, ctx.run.budget, ctx.run.in_flight
        self.references += map(weakref.ref, watched)
        return ctx

    @property
    def is_freed(self):
        """Whether nothing keeps them; a thread that ran a call keeps a reference for a moment longer."""
        for _ in range(PATIENCE):
            if all(reference() is None for reference in self.references):
                return True
            time.sleep(0.01)
        return False


@pytest.fixture
def watched(no_collection):
    return Watched()


def run_on(backend, model, **options):
    """Run, and drop the result."""

    async def main():
        await Loop.run("go", as_async(model), **options)

    if backend == "sync":
        Loop.run_sync("go", model, **options)
    else:
        anyio.run(main, backend=backend)


BACKENDS = pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])


@BACKENDS
@pytest.mark.parametrize("fails", [2, 9])
def test_failed_requests(watched, backend, fails):
    """The exception of an earlier attempt refers to the steps that keep the one of the next."""
    left = [None] * fails

    def model(messages):
        if left:
            left.pop()
            raise ConnectionError("no")
        return "done"

    run_on(backend, model, stages=watched.stages, retry_delay=0)
    assert watched.is_freed


@BACKENDS
def test_a_stream_of_a_sync_iterator_breaks_off(watched, backend):
    def model(messages):
        def chunks():
            yield {"choices": [{"delta": {"content": "do"}}]}
            raise ConnectionError("no")

        return chunks()

    run_on(backend, model, stages=watched.stages, retry_delay=0)
    assert watched.is_freed


@BACKENDS
def test_a_key_of_a_lock_fails(watched, backend):
    def key(arguments):
        raise ValueError("no")

    locked = tool(as_async(double), lock=key)
    run_on(backend, calling("double"), tools=[locked], stages=watched.stages)
    assert watched.is_freed


@BACKENDS
def test_a_pause_that_cannot_be_stored(watched, backend):
    def keep(ctx):
        return ctx.remember("key", object())

    asking = tool(double, requires_approval=True)
    stages = watched.stages.insert_before("ask_model", keep)
    run_on(backend, calling("double"), tools=[asking], stages=stages)
    assert watched.is_freed


@BACKENDS
def test_calls_that_are_cancelled_before_they_begin(watched, backend):
    """More calls than run at a time are planned in batches; the run ends while the first ones wait."""

    @tool
    async def wait(a: int):
        await anyio.sleep(60)

    options = {"tools": [wait], "stages": watched.stages, "max_seconds": 0.03}
    for handle in ({}, {"handle": RunHandle()}):
        run_on(backend, calling("wait", 9), **options, **handle)
    handle.clear()
    assert watched.is_freed


def test_a_call_in_a_thread_that_returns_after_the_run(watched):
    handles = [RunHandle()]

    @tool
    def late(a: int):
        handles[0].cancel()
        time.sleep(0.05)

    Loop.run_sync("go", calling("late"), tools=[late], stages=watched.stages, handle=handles[0])
    handles.clear()
    assert watched.is_freed


def test_an_interrupt(watched):
    @tool
    def interrupt(a: int):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Loop.run_sync("go", calling("interrupt"), tools=[interrupt], stages=watched.stages)
    assert watched.is_freed


@BACKENDS
def test_a_run_with_a_journal(watched, backend, tmp_path):
    journal = SQLiteJournal(tmp_path / "journal.db")
    tools = [as_async(double)]
    run_on(backend, calling("double"), tools=tools, stages=watched.stages, journal=journal)
    assert watched.is_freed


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("model", ["failing model", "calls", "failing calls"])
@pytest.mark.parametrize("form", [as_async, unchanged])
def test_a_stream_that_is_left_after_some_events(watched, model, number, form):
    async def main():
        tools = list(map(form, [double, fail]))
        options = {"tools": tools, "stages": watched.stages, "max_tool_calls": 2}
        async with Loop.stream("go", MODELS[model], **options) as events:
            left = number
            async for _ in events:
                left -= 1
                if not left:
                    break

    anyio.run(main)
    assert watched.is_freed


@BACKENDS
def test_the_failure_of_a_subagent(watched, backend):
    """It is no response, so that the traceback has no frame of user-supplied code at which to start."""
    kid = Loop(stages=watched.stages, name="kid").as_tool(
        "kid", "A kid.", as_async(lambda _: object())
    )

    def model(messages):
        return "done" if messages[-1]["role"] == "tool" else calls(call("kid", task="Go."))

    run_on(backend, model, tools=[kid])
    assert watched.is_freed
