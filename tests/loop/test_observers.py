"""Observers get events in order, sync or async; one that raises is logged and changes nothing.

`on_event` takes one observer or several, and factories of observers for each run. `on_complete` gets the summary
of each run, as data, on each exit.
"""

import asyncio
import contextlib
from collections import Counter
from unittest.mock import Mock

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deciding import on
from tests.samples import double
from tests.telemetry.exits import DRIVERS, EXITS, end, go, sign
from tests.time_limit import TimeLimit
from tests.whole.cancelling import DRIVES, cancelled_everywhere

from treadle import Loop, OptionError, RunHandle, RunSummary, approve, tool
from treadle.effects import Emit, cleanup
from treadle.events import (
    CallsPlanned,
    FirstChunk,
    IterationFinished,
    IterationStarted,
    ModelRequested,
    ModelResponded,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, USER, Way


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


@pytest.fixture(params=DRIVERS)
def driver(request):
    return request.param


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("stop_reason", EXITS)
def test_it_is_called_on_every_exit(driver, stop_reason, is_async):
    completions = []

    async def later(completion):
        await anyio.sleep(0)
        completions.append(completion)

    result = end(driver, stop_reason, on_complete=later if is_async else completions.append)
    reason = getattr(result, "reason", None)
    assert completions == [
        RunSummary(
            agent_name="bot",
            run_id=result.run.run_id,
            stop_reason=stop_reason,
            total_iterations=result.iterations,
            tool_calls_count=result.tool_calls_count,
            usage=result.usage,
            duration=0.0,
            error=None if reason is None else str(reason),
        )
    ]
    assert completions[0].run_id == result.run.run_id
    assert 0 <= completions[0].duration < 5
    assert RunSummary.name == "treadle.loop.complete"


def test_the_completion_of_a_resumed_run_has_all_its_iterations(driver):
    completions = []
    options = {"tools": [sign], "on_complete": completions.append}
    model = ScriptedLLM(calls(call("sign", "c1")), "done")
    paused = go(driver, USER, model, **options)
    loop = Loop(**options)
    if driver == "sync":
        loop.resume_sync(paused, on(paused, {"c1": approve}), model)
    else:
        anyio.run(lambda: loop.resume(paused, on(paused, {"c1": approve}), model), backend=driver)
    assert [(each.stop_reason, each.total_iterations) for each in completions] == [
        ("paused", 1),
        ("answered", 2),
    ]
    assert completions[0].run_id == completions[1].run_id


def test_a_subagent_has_its_own_completions(driver):
    completions = []
    kid = Loop(name="kid", on_complete=completions.append)
    subagent = kid.as_tool("helper", "", lambda messages: "in")
    batch = calls(*(call("helper", f"k{n}", task=f"{n}") for n in range(3)))
    result = go(driver, USER, ScriptedLLM(batch, "out"), tools=[subagent], name="bot")
    assert {each.run_id for each in completions} == {f"{result.run.run_id}/k{n}" for n in range(3)}
    assert {each.agent_name for each in completions} == {"kid"}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_that_is_cancelled_before_it_started_is_completed(backend):
    """While an earlier observer handles the start."""
    completions, seen = [], []

    async def main():
        async def slow(event):
            if isinstance(event, RunStarted):
                scope.cancel()
            await anyio.sleep(0)

        async def too_late(event):
            seen.append(event)

        with anyio.CancelScope() as scope:
            observers = [slow, seen.append, too_late]
            await Loop.run(USER, lambda m: "x", on_event=observers, on_complete=completions.append)

    anyio.run(main, backend=backend)
    assert [each.stop_reason for each in completions] == ["cancelled"]
    assert [type(event) for event in seen] == [RunStarted, RunFinished, RunFinished]


@pytest.mark.parametrize("place", [RunStarted, IterationStarted, RunFinished])
def test_a_run_that_an_observer_interrupts_is_completed(driver, place):
    completions = []

    def interrupt(event):
        if isinstance(event, place):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(driver, USER, ScriptedLLM("x"), on_event=interrupt, on_complete=completions.append)
    assert len(completions) == 1


@pytest.mark.parametrize("drive", DRIVES.values(), ids=DRIVES)
def test_wherever_a_run_is_cancelled_it_and_its_subagents_complete_once(drive):
    """Of the subagents, those that started: the observers of their loop received the start."""

    def scenario(run):
        run.completions, run.starts = [], []

        async def observe(event):
            await anyio.lowlevel.checkpoint()

        options = {
            "on_event": [observe, lambda event: note(run, event)],
            "on_complete": run.completions.append,
        }
        kid = Loop(tools=[run.rest()], name="kid", **options)
        script = ScriptedLLM(calls(call("rest", "i", seconds=0)), "in", is_async=True)
        subagent = kid.as_tool("helper", "", script)
        batch = calls(call("helper", "k", task="a"), call("rest", "c", seconds=0.001))
        model = ScriptedLLM(batch, "out", is_async=True)
        return run.run(model, tools=[subagent, run.rest()], on_complete=run.completions.append)

    def note(run, event):
        run.starts += [event.run_id] if isinstance(event, RunStarted) else []

    for run in cancelled_everywhere(drive, scenario):
        runs = [each.run_id for each in run.completions]
        assert sorted(runs) == sorted([*run.starts, run.handle.state.run_id])


WAYS = [Way("sync"), Way("asyncio"), Way("trio")]
ENDINGS = {"cancel", "cancel and wait"}
ACTS = st.sampled_from(["sleep", "raise", "raise CancelledError", "steer", *sorted(ENDINGS)])
BOUNDED = [
    IterationStarted, ModelRequested, TextDelta, ModelResponded, CallsPlanned, ToolStarted, IterationFinished,
]  # fmt: skip
# Listeners of these are not cancelled, or have the time of a cleanup.
OTHERS = [RunStarted, ToolFinished, RunFinished]
PLOTS = st.fixed_dictionaries(
    {},
    optional={kind: st.tuples(st.integers(1, 2), ACTS) for kind in BOUNDED}
    | {
        kind: st.tuples(st.just(1), st.sampled_from(["sleep", "raise", "steer"])) for kind in OTHERS
    },
)


class Acting:
    """Observers that do something at the first or second event of some kinds, and the handle of their run."""

    def __init__(self, plot):
        self.plot, self.handle, self.seen = plot, RunHandle(), Counter()

    def act(self, event):
        kind = type(event)
        self.seen[kind] += 1
        count, act = self.plot.get(kind, (0, None))
        if self.seen[kind] != count:
            return None
        if act == "raise":
            raise ValueError("an observer failed")
        if act == "raise CancelledError":
            raise asyncio.CancelledError
        if act == "steer":
            self.handle.steer("More.")
        if act in ENDINGS:
            self.handle.cancel()
        return act

    async def act_async(self, event):
        act = self.act(event)
        if act == "sleep":
            await anyio.sleep(0.001)
        if act == "cancel and wait":
            await anyio.sleep_forever()


def played(way, plot, *, is_async, streams, counts):
    """Run a script; return the result, the events, and the numbers that the tools returned."""
    done, acting = [], Acting(plot)

    async def work(n: int):
        await anyio.sleep(0)
        done.append(n)
        return n

    def sync_work(n: int):
        done.append(n)
        return n

    numbers = iter(range(100))
    batches = [
        [call("work", f"c{n}", n=n) for n, _ in zip(numbers, range(count), strict=False)]
        for count in counts
    ]
    model = script = ScriptedLLM(*(calls(*batch) for batch in batches), *["Done."] * 20)
    if streams:

        def model(messages):
            response = script(messages)
            return iter(response) if isinstance(response, str) else response

    result = way.run(
        Loop(tools=[tool(work if is_async else sync_work, name="work")], max_seconds=60),
        model,
        handle=acting.handle,
        on_event=acting.act_async if is_async else acting.act,
    )
    return result, acting.seen, sorted(done)


@settings(max_examples=40, deadline=None)
@given(
    plot=PLOTS,
    is_async=st.booleans(),
    streams=st.booleans(),
    counts=st.lists(st.integers(1, 3), max_size=2),
)
def test_observers_of_any_behaviour(plot, is_async, streams, counts):
    acts = {act for _, act in plot.values()}
    # On trio, this exception is an interrupt.
    ways = WAYS[:2] if "raise CancelledError" in acts else WAYS
    played_by = [
        played(way, plot, is_async=is_async, streams=streams, counts=counts) for way in ways
    ]
    assert len({result.stop_reason for result, _, _ in played_by}) == 1
    if acts & ENDINGS:  # a call that is running may be cancelled or not
        return
    result, _, done = played_by[0]
    answers = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert sorted(map(int, answers)) == done
    assert all(one[0].messages == result.messages for one in played_by)
    assert all(one[1:] == played_by[0][1:] for one in played_by)
