"""Events of tool calls: which of them run, and how. Frozen, and equal where the same thing happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from treadle.types.calls import ToolCall, ToolResult
from treadle.types.plan import HeldReason, PlanReason
from treadle.types.record import keyword_record


@keyword_record
class CallsPlanned:
    """It is decided which calls of an answer run.

    Args:
        iteration: the number of the iteration.
        reason: why the plan is as it is.
        batches: the ids of those that run, batch by batch.
        held: why the others do not run, by id.
    """

    iteration: int
    reason: PlanReason
    batches: tuple[tuple[str, ...], ...]
    held: Mapping[str, HeldReason]


@keyword_record
class CallSuppressed:
    """A call does not run, because it was answered before, or is made twice in one batch."""

    iteration: int
    call: ToolCall
    reason: HeldReason


@keyword_record
class CallDeferred:
    """A call does not run now; the model may ask for it again."""

    iteration: int
    call: ToolCall
    reason: HeldReason


@keyword_record
class CallRefused:
    """A call does not run, because a budget is spent, or its tool is out of order."""

    iteration: int
    call: ToolCall
    reason: HeldReason


@keyword_record
class BreakerChanged:
    """A circuit breaker that is shared by several runs changed for a tool: closed, open or half_open."""

    iteration: int
    tool: str
    before: str
    after: str


@keyword_record
class ToolStarted:
    """A tool is about to run.

    Args:
        iteration: the number of the iteration.
        call: the call.
        at: seconds since the epoch.
        within: the id of the call whose recipe it is a step of; None of one that the model made.
    """

    iteration: int
    call: ToolCall
    at: float = field(compare=False)
    within: str | None = None


@keyword_record
class ToolRetried:
    """A try to run a tool failed, and another follows.

    Args:
        iteration: the number of the iteration.
        call: the call.
        attempt: the number of the try that failed, from 1.
        error: what went wrong.
        error_type: the class of what was raised, or ``timeout``.
        delay: seconds until the next try.
        at: seconds since the epoch.
    """

    iteration: int
    call: ToolCall
    attempt: int
    error: str
    error_type: str
    delay: float = field(compare=False)
    at: float = field(compare=False)


@keyword_record
class ToolFinished:
    """A call that ran has its result, after ``duration`` seconds, retries included."""

    iteration: int
    call: ToolCall
    result: ToolResult
    at: float = field(compare=False)
    duration: float = field(compare=False)


@keyword_record
class ToolNudged:
    """A result carries a note, because the same call was made ``count`` times in this turn."""

    iteration: int
    call: ToolCall
    count: int
