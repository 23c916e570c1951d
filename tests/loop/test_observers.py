"""Observers get events in order, sync or async; one that raises is logged and changes nothing."""

import asyncio
import contextlib
import logging

import anyio
import pytest
from tests.time_limit import TimeLimit

from treadle import Loop, RunHandle, tool
from treadle.effects import Emit, cleanup
from treadle.events import (
    CallsPlanned,
    FirstChunk,
    IterationFinished,
    ModelRequested,
    RunFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import Way

USER = [{"role": "user", "content": "Hi"}]


def script():
    return ScriptedLLM(calls(call("double", n=1)), "done")


@pytest.fixture
def ran():
    return []


@pytest.fixture
def run(ran):
    @tool
    def double(n: int):
        ran.append(n)
        return n * 2

    def run(is_async=False, **options):
        if is_async:
            return anyio.run(lambda: Loop.run(USER, script(), tools=[double], **options))
        return Loop.run_sync(USER, script(), tools=[double], **options)

    return run


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("option", ["on_event", "on_iteration", "on_complete"])
def test_an_observer_that_raises_is_logged_and_changes_nothing(run, ran, caplog, is_async, option):
    def observe(thing):
        raise ValueError("observer")

    async def observe_later(thing):
        raise ValueError("observer")

    quiet = run()
    with caplog.at_level(logging.ERROR, "treadle.loop"):
        result = run(**{option: observe_later if is_async else observe})
    assert [m["content"] for m in result.messages] == [m["content"] for m in quiet.messages]
    assert ran == [1, 1]
    assert "an observer raised at " in caplog.text
    assert "ValueError: observer" in caplog.text


def streamed(*_):
    yield "He"
    yield "llo"


class Stuck:
    """An async observer that ends the run at the first event of a kind, and never returns."""

    def __init__(self, kind, how):
        self.kind, self.limit, self.handle = kind, TimeLimit(), RunHandle()
        self.end = self.handle.cancel if how == "cancelled" else self.limit.strike
        self.was_cancelled = self.ended_before_the_run = False

    async def observe(self, event):
        if type(event) is self.kind:
            self.end()
            try:
                await anyio.sleep_forever()
            finally:
                self.was_cancelled = True
        elif type(event) is RunFinished:
            self.ended_before_the_run = self.was_cancelled

    @property
    def options(self):
        middleware = [self.limit.middleware]
        return {"on_event": self.observe, "handle": self.handle, "middleware": middleware}


@pytest.mark.parametrize("how", ["cancelled", "deadline_exceeded"])
@pytest.mark.parametrize(
    "kind", [ModelRequested, FirstChunk, TextDelta, ToolStarted, ToolFinished, IterationFinished]
)
def test_an_async_observer_that_never_returns_ends_with_the_run(way, kind, how):
    @tool
    def double(n: int):
        return n * 2

    stuck = Stuck(kind, how)
    model = streamed if kind in {FirstChunk, TextDelta} else script()
    result = way.run(Loop(tools=[double], max_seconds=60), model, **stuck.options)
    assert (result.stop_reason, stuck.ended_before_the_run) == (how, True)


@pytest.mark.parametrize("way", [Way("sync"), Way("asyncio")], ids=repr)
def test_an_async_observer_that_ignores_its_cancellation_is_abandoned(way, monkeypatch, caplog):
    """On trio, nothing can ignore it."""
    monkeypatch.setattr(cleanup, "GRACE_SECONDS", 0.01)
    handle = RunHandle()

    async def observe(event):
        if isinstance(event, IterationFinished):
            handle.cancel()
            for _ in range(2):
                with contextlib.suppress(asyncio.CancelledError):
                    await anyio.sleep_forever()

    result = way.run(Loop(), lambda _: "done", handle=handle, on_event=observe)
    assert result.stop_reason == "cancelled"
    assert "Emit(IterationFinished) still runs 0.01 s after it was cancelled" in caplog.text


def test_async_observers_get_the_events_of_one_call_in_order(way):
    """Also where the call is in another thread, and its outcome does not overtake them."""
    got = []

    async def observe(event):
        if isinstance(event, (FirstChunk, TextDelta)):
            await anyio.sleep(0.001 if got else 0.01)
            got.append(getattr(event, "text", "first"))

    result = way.run(Loop(max_seconds=60), lambda *_: iter("abcdef"), on_event=observe)
    assert (got, result.unwrap().content) == (["first", *"abcdef"], "abcdef")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_observers_are_awaited_one_after_another(backend):
    seen = []

    async def first(event):
        await anyio.sleep(0)
        seen.append(("first", type(event).__name__))

    async def second(context):
        await anyio.sleep(0)
        seen.append(("second", context.iteration))

    anyio.run(
        lambda: Loop.run(USER, lambda m: "x", on_event=first, on_iteration=second), backend=backend
    )
    at = seen.index(("second", 1))
    assert seen[at - 1] == ("first", "IterationFinished")
    assert seen[at + 1] == ("first", "RunFinished")


def test_events_come_in_order_and_end_with_the_result(run):
    events = []
    result = run(on_event=events.append)
    assert [type(event).__name__ for event in events] == [
        "RunStarted",
        "IterationStarted",
        "ModelRequested",
        "ModelResponded",
        "CallsPlanned",
        "ToolStarted",
        "ToolFinished",
        "IterationFinished",
        "IterationStarted",
        "ModelRequested",
        "ModelResponded",
        "IterationFinished",
        "RunFinished",
    ]
    assert events[-1].result is result
    times = [event.at for event in events if not isinstance(event, CallsPlanned)]
    assert times == sorted(times)


def test_an_object_that_is_no_event_is_passed_on_and_not_counted():
    seen = []

    def notify(ctx):
        yield Emit("a note")
        return ctx

    stages = Loop().pipeline.insert_after("ask_model", notify)
    Loop.run_sync("Hi", ScriptedLLM("done"), stages=stages, on_event=seen.append)
    events = [event for event in seen if event != "a note"]
    assert len(events) == len(seen) - 1
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
