"""`on_event` takes one observer or several, and those that have one for each run."""

from unittest.mock import Mock

import anyio
import pytest

from treadle import Loop, OptionError, default_stages, tool
from treadle.events import RunFinished, RunStarted
from treadle.testing import ScriptedLLM, call, calls

USER = [{"role": "user", "content": "Hi"}]


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


def test_each_gets_every_event_in_order(run):
    noted = []

    async def later(event):
        await anyio.sleep(0)
        noted.append(("later", event))

    observers = [
        lambda event: noted.append(("first", event)),
        later,
        lambda e: noted.append(("last", e)),
    ]
    run(script(), tools=[double], on_event=observers)
    assert [who for who, _ in noted] == ["first", "later", "last"] * (len(noted) // 3)
    events = [event for who, event in noted if who == "later"]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert [event for who, event in noted if who == "first"] == events


@pytest.mark.parametrize("made", [list, tuple])
def test_one_that_raises_keeps_nothing_from_the_others(run, made, caplog):
    events = []

    def wrong(event):
        raise ValueError("mine")

    async def wrong_later(event):
        raise ValueError("mine")

    result = run(script(), tools=[double], on_event=made([wrong, wrong_later, events.append]))
    assert result.unwrap().content == "done"
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2 * len(events)


def test_the_list_is_the_loops_own(run):
    events, more = [], []
    observers = [events.append]
    loop = Loop(on_event=observers)
    observers.append(more.append)
    loop.run_sync(USER, ScriptedLLM("x"))
    assert events
    assert more == []


def test_each_run_has_an_observer_of_its_own(run):
    factory, events = ObserverFactory(), []
    loop = Loop(tools=[double], on_event=[factory, events.append])
    loop.run_sync(USER, script())
    anyio.run(lambda: loop.run(USER, script()))
    run(script(), tools=[double], on_event=factory)
    first, second, third = factory.of_runs
    assert first + second == events
    assert first == second == third  # but for their ids and their times, which do not count
    assert len({each[0].run_id for each in factory.of_runs}) == 3


def test_runs_within_calls_have_their_own_where_their_loop_has(run):
    factory = ObserverFactory()
    kid = Loop(name="kid", on_event=factory)
    child = kid.as_tool("helper", "", lambda messages: "in")
    batch = calls(*(call("helper", f"k{n}", task=f"{n}") for n in range(3)))
    run(ScriptedLLM(batch, "out"), tools=[child])
    assert len(factory.of_runs) == 3
    for events in factory.of_runs:
        assert isinstance(events[0], RunStarted)
        assert isinstance(events[-1], RunFinished)
        assert sum(isinstance(event, RunStarted) for event in events) == 1


@pytest.mark.parametrize("given", [5, "text", [print, 5], {"a": print}])
def test_what_is_no_observer_is_refused(given):
    with pytest.raises(OptionError, match="on_event: expected a callable that takes an event"):
        Loop(on_event=given)


def test_no_observer_at_all_is_none(run):
    assert run(script(), tools=[double], on_event=[]).unwrap().content == "done"


def test_a_mock_is_called_with_events(run):
    """It has every attribute that it is asked for, `for_run` among them."""
    watch = Mock(return_value=None)
    run(script(), tools=[double], on_event=watch)
    assert isinstance(watch.call_args_list[0].args[0], RunStarted)
    assert isinstance(watch.call_args_list[-1].args[0], RunFinished)
    watch.for_run.assert_not_called()


def test_without_an_observer_no_event_is_made(run):
    class Quiet(ObserverFactory):
        def for_run(self):
            return None

    seen = []

    def look(ctx):
        seen.append(ctx.run.has_listeners)
        return ctx

    stages = [look, *default_stages()]
    run(script(), tools=[double], on_event=Quiet(), stages=stages)
    run(script(), tools=[double], on_event=[Quiet(), ObserverFactory()], stages=stages)
    assert seen == [False, False, True, True]


def test_what_a_backend_does_to_its_tools_is_not_in_the_events(run):
    events = []

    def spoiling(messages, tools):
        tools[0].pop("function", None)
        return "done"

    run(spoiling, tools=[double], on_event=events.append)
    assert events[0].tools[0]["function"]["name"] == "double"
