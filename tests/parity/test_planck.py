"""Parity with Planck: the table of calls in flight, and calls made by code."""

import threading

import anyio
import pytest

from treadle import Context, Ok, RunHandle, tool
from treadle.context import RunServices
from treadle.events import ToolFinished
from treadle.messages import History, ToolCall, ToolResult
from treadle.stages import prepare_call
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import Repeats, ToolCallTable, fingerprint, toolset

from .conftest import answers
from .places import look


def a_call(call_id, arguments="{}", name="look"):
    print_ = fingerprint(name, arguments)
    return ToolCall(call_id, name, arguments, fingerprint=print_)


def a_result(call_id):
    return ToolResult(call_id, "seen")


def context(in_flight, *tools):
    """A context with the parts of a run that a call needs."""
    return Context(History(), toolset(tools), run=RunServices(in_flight=in_flight))


# The table of calls in flight


def test_a_new_table_is_empty():
    """Nothing runs, nothing is done."""
    in_flight = ToolCallTable()
    assert (in_flight.running, in_flight.results) == ({}, {})
    assert not in_flight.done


def test_start_registers_calls_as_running():
    """They are running, by their ids, until they are marked done."""
    in_flight = ToolCallTable()
    one, two = a_call("1"), a_call("2")
    in_flight.start([one, two])
    assert in_flight.running == {"1": one, "2": two}
    assert in_flight.results == {}


def test_mark_done_moves_a_call_to_the_results():
    """It stops running, its siblings continue."""
    in_flight = ToolCallTable()
    in_flight.start([a_call("1"), a_call("2")])
    assert in_flight.mark_done("1", a_result("1"))
    assert list(in_flight.running) == ["2"]
    assert in_flight.results == {"1": a_result("1")}


def test_a_stale_result_changes_nothing():
    """A result of a call that is not running (unknown, done or cancelled) is dropped."""
    in_flight = ToolCallTable()
    in_flight.start([a_call("1"), a_call("2")])
    in_flight.mark_done("1", a_result("1"))
    late = ToolResult("1", "late")
    assert not in_flight.mark_done("1", late)
    assert not in_flight.mark_done("never", ToolResult("never", "late"))
    assert list(in_flight.running) == ["2"]
    assert in_flight.results == {"1": a_result("1")}


def test_done_is_true_when_all_started_calls_have_results():
    """Neither when empty, nor while a call runs."""
    in_flight = ToolCallTable()
    assert not in_flight.done
    in_flight.start([a_call("1"), a_call("2")])
    in_flight.mark_done("1", a_result("1"))
    assert not in_flight.done
    in_flight.mark_done("2", a_result("2"))
    assert in_flight.done


def test_next_batch_clears_calls_and_results_and_keeps_the_counts():
    """Counts are of the whole turn; `new_turn`, after a user message, clears them."""
    in_flight, repeats = ToolCallTable(), Repeats()
    made = a_call("1")
    in_flight.start([made, a_call("2")])
    for one in in_flight.running.values():
        repeats.count(one)
    in_flight.mark_done("1", a_result("1"))
    in_flight.next_batch()
    assert (in_flight.running, in_flight.results) == ({}, {})
    assert repeats.counts == {made.fingerprint: 2}
    repeats.new_turn()
    assert repeats.counts == {}


def test_cancel_all_stops_every_running_tool(run):
    """All are answered as cancelled, and async tools are cancelled at once."""
    handle = RunHandle()
    started, stopped = threading.Semaphore(0), threading.Semaphore(0)

    @tool
    async def wait(n: int) -> str:
        started.release()
        try:
            await anyio.sleep(30)
        finally:
            stopped.release()
        return "late"

    @tool
    def stop_all() -> str:
        assert all(started.acquire(timeout=5) for _ in range(2))
        assert len(handle.cancel_all()) == 3
        return "late"

    llm = ScriptedLLM(calls(call("wait", n=1), call("wait", n=2), call("stop_all")), "Stopped.")
    result = run("Wait.", llm, tools=[wait, stop_all], handle=handle)
    assert isinstance(result, Ok)
    assert [answer[:10] for answer in answers(result)] == ["Cancelled:"] * 3
    assert all(stopped.acquire(timeout=5) for _ in range(2))


def test_a_late_result_is_dropped_without_an_event(run):
    """A late result of a cancelled call is neither in the history nor in the events.

    The cancellation is reported once: here every call that started has an end event.
    """
    handle, events = RunHandle(), []

    @tool
    def stop_all() -> str:
        handle.cancel_all()
        return "late"

    llm = ScriptedLLM(calls(call("stop_all", "c1")), calls(call("look", "c2", place="here")), "No.")
    result = run("?", llm, tools=[stop_all, look], handle=handle, on_event=events.append)
    assert "late" not in str(result.messages)
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert [(event.call.id, event.result.status) for event in finished] == [
        ("c1", "cancelled"),
        ("c2", "done"),
    ]
    assert answers(result)[1] == "here is empty"


# Preparing a call


def test_prepare_call_runs_a_known_tool_and_counts_the_call(perform):
    """Its steps return the result; the table of calls in flight has it, and the call is counted."""
    in_flight = ToolCallTable()
    ctx = context(in_flight, look)
    steps = prepare_call(ctx, "look", "1", {"place": "the hall"})
    assert list(in_flight.running) == ["1"]
    expected = ToolResult("1", "the hall is empty")
    assert perform(steps) == expected
    assert in_flight.results == {"1": expected}
    assert list(ctx.run.repeats.counts.values()) == [1]


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("lock", {"place": "here"}, "no tool named 'lock'. Did you mean 'look'?"),
        ("look", {"place": 3}, "place: expected string, got integer 3"),
        ("look", {}, "missing required field 'place'"),
        ("look", '{"place"', "not valid JSON"),
    ],
)
def test_prepare_call_answers_invalid_calls(perform, name, arguments, text):
    """An unknown tool and invalid arguments are results with the problem."""
    in_flight = ToolCallTable()
    result = perform(prepare_call(context(in_flight, look), name, "1", arguments))
    assert text in result.content
    assert (result.is_error, result.status) == (True, "invalid")
    assert in_flight.done


def test_prepare_call_makes_any_exception_an_error_result(perform):
    """The exception of a tool becomes text."""

    @tool
    async def fall(place: str) -> str:
        raise OSError(f"no floor in {place}")

    in_flight = ToolCallTable()
    arguments = '{"place": "the hall"}'
    result = perform(prepare_call(context(in_flight, fall), "fall", "1", arguments))
    assert result == ToolResult("1", "Error: OSError: no floor in the hall", is_error=True)
    assert in_flight.done
