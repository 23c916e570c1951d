"""Parity with LlmCore: the telemetry and the events of a run."""

import anyio
import pytest
from tests.samples import add
from tests.telemetry.exits import EXITS, end
from tests.telemetry.watching import Watch

from treadle import RunHandle, tool
from treadle.events import IterationFinished, RunFinished, ToolFinished, ToolStarted
from treadle.testing import ScriptedLLM, call, calls


@pytest.fixture
def watch():
    return Watch()


def completion(watch):
    """The attributes of the completion event of the run."""
    (agent,) = watch.kind("invoke_agent")
    (complete,) = [event for event in agent.events if event.name == "treadle.loop.complete"]
    return dict(complete.attributes)


@pytest.mark.parametrize("stop_reason", EXITS)
def test_the_completion_event_is_emitted_once_on_every_exit(driver, watch, stop_reason):
    """``treadle.loop.complete`` has total_iterations, tool_calls_count and the stop reason.

    LlmCore reports it on two of its exits only.
    """
    events = []
    result = end(driver, stop_reason, on_event=events.append, **watch.options)
    assert completion(watch) == {
        "treadle.total_iterations": result.iterations,
        "treadle.tool_calls_count": result.tool_calls_count,
        "treadle.stop_reason": stop_reason,
    }
    (finished,) = [event for event in events if isinstance(event, RunFinished)]
    assert events[-1] is finished
    totals = (finished.total_iterations, finished.tool_calls_count)
    assert totals == (result.iterations, result.tool_calls_count)


def test_the_completion_event_is_emitted_when_a_tool_cancels_the_run(run, watch):
    """A run that is cancelled through its handle reports its completion too."""
    handle = RunHandle()

    @tool
    def give_up() -> str:
        handle.cancel()
        return "late"

    run("Go.", ScriptedLLM(calls(call("give_up"))), tools=[give_up], handle=handle, **watch.options)
    assert completion(watch)["treadle.stop_reason"] == "cancelled"


def test_tool_calls_are_reported_with_start_and_stop_and_duration(run, watch):
    """Every tool call has a start and a stop event with its duration, and a span."""
    events = []

    @tool
    async def nap() -> str:
        await anyio.sleep(0.02)
        return "awake"

    llm = ScriptedLLM(calls(call("nap", "c1")), "Done.")
    run("Nap.", llm, tools=[nap], on_event=events.append, **watch.options)
    (start,) = [event for event in events if isinstance(event, ToolStarted)]
    (stop,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (start.call.id, stop.call.id, stop.result.content) == ("c1", "c1", "awake")
    assert stop.duration == pytest.approx(stop.at - start.at)
    assert 0.015 < stop.duration < 5
    (span,) = watch.kind("execute_tool")
    assert span.attributes["gen_ai.tool.name"] == "nap"
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(stop.duration, abs=0.001)


def test_each_iteration_is_reported_once(run, watch):
    """There is one event for each iteration, and one ``chat`` span."""
    events = []
    llm = ScriptedLLM(calls(call("add", a=1, b=2)), calls(call("add", a=3, b=3)), "9")
    run("Sum.", llm, tools=[add], on_event=events.append, **watch.options)
    assert [e.iteration for e in events if isinstance(e, IterationFinished)] == [1, 2, 3]
    assert [s.attributes["treadle.iteration"] for s in watch.kind("chat")] == [1, 2, 3]
