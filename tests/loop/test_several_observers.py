"""`on_event` takes one observer or several, and factories of observers for each run."""

from unittest.mock import Mock

import anyio
import pytest

from treadle import Loop, OptionError, tool
from treadle.events import RunFinished, RunStarted
from treadle.testing import ScriptedLLM, call, calls

from .conftest import USER


@tool
def double(n: int):
    return n * 2


def script():
    return ScriptedLLM(calls(call("double", "c1", n=1)), "done")


@pytest.fixture(params=["sync", "asyncio", "trio"])
def run(request):
    def run(model, **options):
        if request.param == "sync":
            return Loop.run_sync(USER, model, **options)
        return anyio.run(lambda: Loop.run(USER, model, **options), backend=request.param)

    return run


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


def test_each_observer_receives_every_event_in_order(run):
    received = []

    async def later(event):
        await anyio.sleep(0)
        received.append(("later", event))

    observers = [
        lambda event: received.append(("first", event)),
        later,
        lambda e: received.append(("last", e)),
    ]
    run(script(), tools=[double], on_event=observers)
    assert [name for name, _ in received] == ["first", "later", "last"] * (len(received) // 3)
    events = [event for name, event in received if name == "later"]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert [event for name, event in received if name == "first"] == events


@pytest.mark.parametrize("made", [list, tuple])
def test_an_observer_that_raises_does_not_affect_the_others(run, made, caplog):
    events = []

    def wrong(event):
        raise ValueError("mine")

    async def wrong_later(event):
        raise ValueError("mine")

    result = run(script(), tools=[double], on_event=made([wrong, wrong_later, events.append]))
    assert result.unwrap().content == "done"
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2 * len(events)


def test_the_list_is_copied(run):
    events, more = [], []
    observers = [events.append]
    loop = Loop(on_event=observers)
    observers.append(more.append)
    loop.run_sync(USER, ScriptedLLM("x"))
    assert events
    assert more == []


def test_each_run_has_a_separate_observer(run):
    factory, events = ObserverFactory(), []
    loop = Loop(tools=[double], on_event=[factory, events.append])
    loop.run_sync(USER, script())
    anyio.run(lambda: loop.run(USER, script()))
    run(script(), tools=[double], on_event=factory)
    first, second, third = factory.of_runs
    assert first + second == events
    assert first == second == third  # except for ids and times, which do not count
    assert len({each[0].run_id for each in factory.of_runs}) == 3


def test_subagents_have_separate_observers(run):
    factory = ObserverFactory()
    kid = Loop(name="kid", on_event=factory)
    subagent = kid.as_tool("helper", "", lambda messages: "in")
    batch = calls(*(call("helper", f"k{n}", task=f"{n}") for n in range(3)))
    run(ScriptedLLM(batch, "out"), tools=[subagent])
    assert len(factory.of_runs) == 3
    for events in factory.of_runs:
        assert isinstance(events[0], RunStarted)
        assert isinstance(events[-1], RunFinished)
        assert sum(isinstance(event, RunStarted) for event in events) == 1


@pytest.mark.parametrize("given", [5, "text", [print, 5], {"a": print}])
def test_an_invalid_observer_is_refused(given):
    with pytest.raises(OptionError, match="on_event: expected a callable that takes an event"):
        Loop(on_event=given)


def test_a_mock_is_called_with_events(run):
    """It has every attribute, including `for_run`."""
    watch = Mock(return_value=None)
    run(script(), tools=[double], on_event=watch)
    assert isinstance(watch.call_args_list[0].args[0], RunStarted)
    assert isinstance(watch.call_args_list[-1].args[0], RunFinished)
    watch.for_run.assert_not_called()


def test_a_backend_that_changes_its_tools_does_not_change_the_events(run):
    events = []

    def spoiling(messages, tools):
        tools[0].pop("function", None)
        return "done"

    run(spoiling, tools=[double], on_event=events.append)
    assert events[0].tools[0]["function"]["name"] == "double"
