"""Whatever a tool returns or raises, its time limit and that of the run end the call."""

import itertools
import threading

import anyio
import pytest

from treadle import Err, Loop
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import tool


class Hanging:
    """Values and exceptions whose text does not come until a test releases it."""

    def __init__(self):
        self.release = threading.Event()

    def __str__(self):
        self.release.wait()
        return "late"

    def error(self):
        class HangingError(Exception):
            __str__ = lambda _: str(self)  # noqa: E731

        return HangingError()

    def chained(self):
        error = ValueError("x")
        error.__cause__ = self.error()
        return error

    def items(self):
        yield str(self)


RETURNED = {
    "a text": lambda hanging: {"a": hanging},
    "an iterator": lambda hanging: hanging.items(),
    "an Err": Err,
    "an Err of an exception": lambda hanging: Err(hanging.error()),
    "an endless iterator of nothing": lambda hanging: (n for n in hanging.items() if False),
}
RAISED = {
    "an exception": Hanging.error,
    "an argument of an exception": ValueError,
    "the cause of an exception": Hanging.chained,
    "a group": lambda hanging: ExceptionGroup("x", [hanging.error()]),
}


def run(backend, loop, hanging):
    model = ScriptedLLM(calls(call("take")), "Done.")
    if backend == "sync":
        result = loop.run_sync("Hi", model)
        hanging.release.set()
        return result

    async def run():
        result = await loop.run("Hi", model)
        hanging.release.set()  # before the event loop waits for its threads
        return result

    return anyio.run(run, backend=backend)


def tool_of(kind, make, hanging, raises):
    def outcome():
        made = make(hanging)
        if raises:
            raise made
        return made

    async def coroutine():
        return outcome()

    def awaitable():
        return coroutine()

    fns = {"sync": outcome, "async": coroutine, "awaitable": awaitable}
    return fns[kind]


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
@pytest.mark.parametrize("kind", ["sync", "async", "awaitable"])
@pytest.mark.parametrize(
    ("make", "raises"),
    [(make, False) for make in RETURNED.values()] + [(make, True) for make in RAISED.values()],
    ids=[*RETURNED, *RAISED],
)
def test_a_text_that_never_comes_ends_at_the_time_limit_of_the_tool(backend, kind, make, raises):
    hanging = Hanging()
    take = tool(tool_of(kind, make, hanging, raises), name="take", timeout=0.1)
    try:
        result = run(backend, Loop(tools=[take]), hanging)
    finally:
        hanging.release.set()
    assert result.unwrap().text == "Done."
    assert result.messages[-2]["content"] == "Error: 'take' took longer than 0.1 s."


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_a_text_that_never_comes_ends_at_the_time_limit_of_the_run(backend):
    hanging = Hanging()

    async def take():
        return [hanging]

    try:
        result = run(backend, Loop(tools=[take], max_seconds=0.2), hanging)
    finally:
        hanging.release.set()
    assert result.stop_reason == "deadline_exceeded"


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
@pytest.mark.parametrize("kind", ["sync", "async", "awaitable"])
def test_an_endless_iterator_in_a_result_does_not_keep_the_run_from_going_on(backend, kind):
    hanging = Hanging()
    fn = tool_of(kind, lambda _: {"a": [itertools.repeat("x")]}, hanging, raises=False)
    result = run(backend, Loop(tools=[tool(fn, name="take")]), hanging)
    assert result.unwrap().text == "Done."
    assert result.messages[-2]["content"].startswith('{"a":[["x","x"')


def test_sys_exit_with_a_text_that_never_comes_is_an_error_of_the_tool():
    """The text of a SystemExit is that of its code, which may be any object."""

    def take():
        raise SystemExit(3)

    result = Loop.run_sync("Hi", ScriptedLLM(calls(call("take")), "Done."), tools=[take])
    assert "sys.exit(3)" in result.messages[-2]["content"]
