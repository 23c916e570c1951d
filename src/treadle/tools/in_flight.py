"""The table of calls in flight: which run, which are done, and how often each was made in this turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from treadle.effects import Signal
from treadle.messages import ToolCall, ToolResult
from treadle.results import Paused


class InFlight:
    """The calls of a batch.

    Args:
        can_cancel: whether anybody holds a handle to cancel calls with; a table without one is cheaper.

    Attributes:
        running: the calls under way, by id.
        results: the results that are there, by id.
        brought: what calls brought while they were being cancelled, by id.
        paused: how the runs stand that wait for a person, by the id of the call that each is made of.
        counts: how often the model made each call in this turn, by fingerprint.
        stop: is set when all calls are cancelled; None where nobody can do that.
    """

    def __init__(self, can_cancel: bool = False) -> None:
        self.running: dict[str, ToolCall] = {}
        self.results: dict[str, ToolResult] = {}
        self.brought: dict[str, ToolResult] = {}
        self.paused: dict[str, Paused] = {}
        self.counts: Counter[str] = Counter()
        self.stop: Signal | None = Signal() if can_cancel else None

    def start(self, calls: Iterable[ToolCall], new: Iterable[ToolCall] | None = None) -> None:
        """Register calls as running, and count them.

        Args:
            calls: the calls.
            new: those to count; None is all. What goes on after a pause was counted before.
        """
        for call in calls:
            self.running[call.id] = call
        for call in calls if new is None else new:
            self.count(call)

    def count(self, call: ToolCall) -> None:
        """Count a call that the model made in this turn."""
        self.counts[call.fingerprint] = self.counts.get(call.fingerprint, 0) + 1

    def mark_done(self, call_id: str, result: ToolResult) -> bool:
        """Note a result.

        Returns:
            Whether the call was running. A result of one that was not is stale, and is dropped.
        """
        if self.running.pop(call_id, None) is None:
            return False
        self.results[call_id] = result
        return True

    @property
    def done(self) -> bool:
        """Whether there were calls and all have their results."""
        return not self.running and bool(self.results)

    def next_batch(self) -> None:
        """Forget calls and results, and keep the counts."""
        self.running.clear()
        self.results.clear()
        self.paused.clear()
        self.brought.clear()
        if self.stop is not None and self.stop.is_set:
            self.stop = Signal()

    def new_turn(self) -> None:
        """Forget the counts too: the user has spoken."""
        self.next_batch()
        self.counts.clear()

    def cancel_all(self) -> tuple[ToolCall, ...]:
        """Stop every running call; each is answered as cancelled, and what it may yet bring is dropped.

        Returns:
            The calls that were running.
        """
        stopped = tuple(self.running.values())
        for call in stopped:
            text = "Cancelled: the call was stopped before it was done."
            self.mark_done(call.id, ToolResult(call.id, text, True, "cancelled"))
        if self.stop is not None:
            self.stop.set()
        return stopped
