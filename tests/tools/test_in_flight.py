"""The table of calls in flight: which are running, and which are done."""

from treadle.effects import Signal
from treadle.messages import ToolCall, ToolResult
from treadle.results import Paused
from treadle.tools import ToolCallTable


def call(call_id="c1"):
    return ToolCall(call_id, "t")


def test_a_call_is_running_until_it_has_its_result():
    table = ToolCallTable()
    table.start([call("a"), call("b")])
    assert list(table.running) == ["a", "b"]
    assert table.mark_done("a", ToolResult("a", "1")) is True
    assert (list(table.running), list(table.results), table.done) == (["b"], ["a"], False)
    table.mark_done("b", ToolResult("b", "2"))
    assert table.done


def test_an_empty_table_is_not_done():
    assert ToolCallTable().done is False


def test_a_result_of_a_call_that_does_not_run_is_stale_and_dropped():
    table = ToolCallTable()
    table.start([call("a")])
    table.mark_done("a", ToolResult("a", "first"))
    assert table.mark_done("a", ToolResult("a", "second")) is False
    assert table.mark_done("ghost", ToolResult("ghost", "x")) is False
    assert table.results == {"a": ToolResult("a", "first")}


def test_cancel_all_answers_every_running_call_and_returns_these():
    table = ToolCallTable(can_cancel=True)
    table.start([call("a"), call("b")])
    table.mark_done("a", ToolResult("a", "1"))
    assert [stopped.id for stopped in table.cancel_all()] == ["b"]
    result = table.results["b"]
    assert (result.is_error, result.status) == (True, "cancelled")
    assert result.content == "Cancelled: the call was stopped before it was done."
    assert table.results["a"].content == "1"
    assert table.stop.is_set
    assert table.cancel_all() == ()


def test_a_batch_after_a_cancellation_can_be_cancelled_again():
    table = ToolCallTable(can_cancel=True)
    table.cancel_all()
    table.next_batch()
    assert isinstance(table.stop, Signal)
    assert not table.stop.is_set


def test_without_a_handle_there_is_no_signal():
    table = ToolCallTable()
    table.start([call("a")])
    table.cancel_all()
    assert table.stop is None


def test_paused_subagents_and_lock_keys_are_dropped_with_their_batch():
    table = ToolCallTable()
    table.paused["a"] = Paused(())
    table.held_locks["a"] = {"k": "k"}
    table.completed["a"] = ToolResult("a", "1")
    table.calls_run = 2
    table.next_batch()
    assert (table.paused, table.held_locks, table.completed) == ({}, {}, {})
    assert table.calls_run == 2
