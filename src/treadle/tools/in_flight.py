"""The calls in flight: which are running, and which have results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treadle.effects import Signal
from treadle.messages import ToolCall, ToolResult
from treadle.results import Paused
from treadle.tools.unrun_calls import NotRun, not_run


class ToolCallTable:
    """The calls of a batch, from their start to their results.

    Args:
        can_cancel: whether a handle can cancel calls; without a handle, the table costs less.

    Attributes:
        running, results: the running calls, and the results of those of this iteration that are over, by id.
        completed: the results of calls, recorded where they run, by id; so the result of a call that completes
            while it is being cancelled is not lost.
        paused: the paused subagents, by id of their call.
        unknown: the calls that may have run already, each with the question whether to run it again, by id.
        is_taken_over: whether an interrupted run that had resumed the same pause may have run the calls already.
        calls_run: how many calls of the model have run in this run.
        held_locks: the keys that each running call holds, each with the name under which it is held.
        stop: set when all calls are cancelled; None if no handle can do that.
    """

    def __init__(self, can_cancel: bool = False) -> None:
        self.running: dict[str, ToolCall] = {}
        self.results: dict[str, ToolResult] = {}
        self.completed: dict[str, ToolResult] = {}
        self.paused: dict[str, Paused] = {}
        self.unknown: dict[str, str] = {}
        self.is_taken_over = False
        self.calls_run = 0
        self.held_locks: dict[str, Mapping[str, str]] = {}
        self.stop: Signal | None = Signal() if can_cancel else None

    def start(self, calls: Iterable[ToolCall]) -> None:
        """Register calls as running."""
        for call in calls:
            self.running[call.id] = call

    def complete(self, result: ToolResult) -> ToolResult:
        """Record a result where the call runs; return it, or the one of a call that was cancelled before."""
        cancelled = self.results.get(result.tool_call_id)
        if cancelled is None:
            self.completed[result.tool_call_id] = result
        return cancelled or result

    def late_result(self, call_id: str) -> ToolResult | None:
        """The result that a call returned although it was cancelled; None if there is none."""
        return self.results.get(call_id) or self.completed.get(call_id)

    def mark_done(self, call_id: str, result: ToolResult) -> bool:
        """Record a result; return whether the call was running. If not, the result is stale and is dropped."""
        was_running = self.running.pop(call_id, None) is not None
        if was_running:
            self.results[call_id] = result
        return was_running

    @property
    def done(self) -> bool:
        """Whether there were calls and all have their results."""
        return not self.running and bool(self.results)

    def next_batch(self) -> None:
        """Forget calls and results: another iteration begins."""
        self.running.clear()
        self.results.clear()
        self.paused.clear()
        self.unknown.clear()
        self.is_taken_over = False

    def renew(self) -> None:
        """Forget the calls, and keep their results: further calls of the iteration start."""
        self.running.clear()
        self.completed.clear()
        self.paused.clear()
        self.unknown.clear()
        self.held_locks.clear()
        if self.stop is not None and self.stop.is_set:
            self.stop = Signal()

    def cancel_all(self) -> tuple[ToolCall, ...]:
        """Cancel and return the running calls. Each is answered as cancelled; a later result is dropped."""
        stopped = tuple(self.running.values())
        for call in stopped:
            self.mark_done(call.id, not_run(call, NotRun.CANCELLED))
        if self.stop is not None:
            self.stop.set()
        return stopped
