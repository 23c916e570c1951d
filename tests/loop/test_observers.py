"""Observers get events in order, sync or async; one that raises is logged and changes nothing.

`on_event` takes one observer or several, and factories of observers for each run.
"""

import asyncio
import contextlib
from unittest.mock import Mock

import anyio
import pytest
from tests.time_limit import TimeLimit

from treadle import Loop, OptionError, RunHandle, tool
from treadle.effects import Emit, cleanup
from treadle.events import (
    CallsPlanned,
    FirstChunk,
    IterationFinished,
    ModelRequested,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, USER, Way


@tool
def double(n: int):
    return n * 2


def script():
    return ScriptedLLM(calls(call("double", "c1", n=1)), "done")


def run(way=SYNC, model=None, **options):
    return way.run(Loop(), model or script(), tools=[double], **options)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("option", ["on_event", "on_iteration", "on_complete"])
def test_an_observer_that_raises_is_logged_and_changes_nothing(way, caplog, is_async, option):
    def observe(thing):
        raise ValueError("observer")

    async def observe_later(thing):
        raise ValueError("observer")

    result = run(way, **{option: observe_later if is_async else observe})
    assert [m["content"] for m in result.messages] == [m["content"] for m in run(way).messages]
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


def test_events_come_in_order_and_end_with_the_result():
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


class ObserverFactory:
    """Makes an observer for each run, and keeps the events of each."""

    def __init__(self):
        self.of_runs = []

    def __call__(self, event):
        raise AssertionError("it has one for each run")

    def for_run(self):
        events = []
        self.of_runs.append(events)
        return events.append


def test_each_observer_receives_every_event_in_order(way):
    """One after another: an async one is awaited, and `on_iteration` comes last."""
    received, contexts = [], []

    async def later(event):
        await anyio.sleep(0)
        received.append(("later", event))

    async def on_iteration(context):
        await anyio.sleep(0)
        contexts.append((context.iteration, len(received)))

    first, last = (lambda event, name=name: received.append((name, event)) for name in ("1", "3"))
    run(way, on_event=[first, later, last], on_iteration=on_iteration)
    assert [name for name, _ in received] == ["1", "later", "3"] * (len(received) // 3)
    events = [event for name, event in received if name == "later"]
    assert (type(events[0]), type(events[-1])) == (RunStarted, RunFinished)
    assert [event for name, event in received if name == "1"] == events
    ends = [3 * n for n, event in enumerate(events, 1) if isinstance(event, IterationFinished)]
    assert contexts == [*enumerate(ends, 1)]


@pytest.mark.parametrize("made", [list, tuple])
def test_an_observer_that_raises_does_not_affect_the_others(way, made, caplog):
    events = []

    def wrong(event):
        raise ValueError("mine")

    async def wrong_later(event):
        raise ValueError("mine")

    result = run(way, on_event=made([wrong, wrong_later, events.append]))
    assert result.unwrap().content == "done"
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2 * len(events)


def test_the_list_is_copied():
    events, more = [], []
    observers = [events.append]
    loop = Loop(on_event=observers)
    observers.append(more.append)
    loop.run_sync(USER, ScriptedLLM("x"))
    assert events
    assert more == []


def test_each_run_has_a_separate_observer(way):
    factory, events = ObserverFactory(), []
    loop = Loop(tools=[double], on_event=[factory, events.append])
    loop.run_sync(USER, script())
    anyio.run(lambda: loop.run(USER, script()))
    run(way, on_event=factory)
    first, second, third = factory.of_runs
    assert first + second == events
    assert first == second == third  # except for ids and times, which do not count
    assert len({each[0].run_id for each in factory.of_runs}) == 3


def test_subagents_have_separate_observers(way):
    factory = ObserverFactory()
    kid = Loop(name="kid", on_event=factory)
    subagent = kid.as_tool("helper", "", lambda messages: "in")
    batch = calls(*(call("helper", f"k{n}", task=f"{n}") for n in range(3)))
    way.run(Loop(tools=[subagent]), ScriptedLLM(batch, "out"))
    assert len(factory.of_runs) == 3
    for events in factory.of_runs:
        assert isinstance(events[0], RunStarted)
        assert isinstance(events[-1], RunFinished)
        assert sum(isinstance(event, RunStarted) for event in events) == 1


@pytest.mark.parametrize("given", [5, "text", [print, 5], {"a": print}])
def test_an_invalid_observer_is_refused(given):
    with pytest.raises(OptionError, match="on_event: expected a callable that takes an event"):
        Loop(on_event=given)


def test_a_mock_is_called_with_events(way):
    """It has every attribute, including `for_run`."""
    watch = Mock(return_value=None)
    run(way, on_event=watch)
    assert isinstance(watch.call_args_list[0].args[0], RunStarted)
    assert isinstance(watch.call_args_list[-1].args[0], RunFinished)
    watch.for_run.assert_not_called()


def test_a_backend_that_changes_its_tools_does_not_change_the_events(way):
    events = []

    def spoiling(messages, tools):
        tools[0].pop("function", None)
        return "done"

    run(way, spoiling, on_event=events.append)
    assert events[0].tools[0]["function"]["name"] == "double"
