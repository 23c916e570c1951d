"""A run is freed with its result: no reference cycle keeps it until a garbage collection."""

import gc
import inspect
import logging
import time
import weakref

import anyio
import pytest

from treadle import Loop, RunHandle
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
    made = calls(*(call(name, f"c{n}", a=1) for n in range(count)))
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
