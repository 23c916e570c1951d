"""Why a call does not run, or not to its end, and the answer that the model gets in place of its result."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from treadle.messages import ToolCall, ToolResult


class NotRun(StrEnum):
    """Why a call does not run, or not to its end. It is the ``status`` of the call's result, too."""

    NO_NEW_EVIDENCE = "no_new_evidence"
    """It was answered, and nothing new was learned since: it is answered with that result."""
    RECALLED = "recalled"
    """Its result was compacted away, and still holds: it is answered with the stored result."""
    DUPLICATE_IN_BATCH = "duplicate_in_batch"
    """Another call of the response is the same: it is answered with the result of that one."""
    PARALLEL_CAP = "parallel_cap"
    """No more calls may run at the same time."""
    DEFERRED = "deferred"
    """Other calls have to run first, and the model has to see their results."""
    OVER_BUDGET = "over_budget"
    MAX_USES = "max_uses"
    BREAKER_OPEN = "breaker_open"
    REMOVED = "removed"
    """A custom stage removed it."""
    ANSWERED = "answered"
    """A custom stage answered it, in place of its tool."""
    DENIED = "denied"
    """A person did not approve it."""
    INVALID = "invalid"
    """It was cut off, its tool does not exist, or its arguments do not match the schema."""
    NOT_PLANNED = "not_planned"
    RESPONSE_REPLACED = "response_replaced"
    """A custom stage replaced the response after its calls were planned."""
    ENDED_RUN = "ended_run"
    """Another call, of a terminal tool, ended the run."""
    CANCELLED = "cancelled"
    """It was cancelled before its tool returned."""
    LOCKED = "locked"
    """Its locks could not be taken."""
    NOT_ALLOWED = "not_allowed"
    """A custom stage reported a result for it, although it was not allowed to run."""


_WITH_RESULT = frozenset({NotRun.NO_NEW_EVIDENCE, NotRun.RECALLED, NotRun.DUPLICATE_IN_BATCH})
"""Reasons whose answers have the result of another call, and so are no errors unless that result is one."""

_LATER = "Look at the other results, and call {name!r} again if you still need it."
_TEXTS: Mapping[NotRun, str] = {
    NotRun.NO_NEW_EVIDENCE: (
        "Not run again: you made the same call in iteration {iteration}, and nothing new has been learned since; "
        "only a tool declared volatile=True would run again. Its result was:\n{content}\n"
        "Try something else, or answer with what you have."
    ),
    NotRun.RECALLED: (
        "{content}\n\n[note: this is what the same call returned in iteration {iteration}, which is no longer in "
        "the conversation. The tool did not run again{more}.]"
    ),
    NotRun.DUPLICATE_IN_BATCH: (
        "Not run twice: this response has an identical call. {more} Its result:\n{content}"
    ),
    NotRun.PARALLEL_CAP: f"Not run yet: no more calls can run at the same time. {_LATER}",
    NotRun.DEFERRED: f"Not run yet: {{why}}. {_LATER}",
    NotRun.OVER_BUDGET: "Not run: the budget {budget} is spent. {then} with what you have.",
    NotRun.MAX_USES: (
        "Not run: {name!r} has reached its maximum number of uses in a run, {most}. "
        "Do without it, or answer with what you have."
    ),
    NotRun.BREAKER_OPEN: (
        "Error: {name!r} is unavailable and was not tried. It kept failing with: {error}\nDo without it for now."
    ),
    NotRun.REMOVED: "Not run: {why}",
    NotRun.DENIED: "Not run: a person did not approve this call{why}. Do without it, or ask.",
    NotRun.INVALID: "Error: the call of {name!r} was not run:\n{problems}",
    NotRun.NOT_PLANNED: "Not run: it was not planned.",
    NotRun.RESPONSE_REPLACED: "Not run: {stage} replaced the response.",
    NotRun.ENDED_RUN: "Not run: the call of {ending!r} ended the run.",
    NotRun.CANCELLED: "Cancelled: the call was stopped before it was done.",
    NotRun.LOCKED: "Not run: {error}",
    NotRun.NOT_ALLOWED: (
        "Stage {stage!r} reported a result for this call, which was not allowed to run: {why}. "
        "It may have taken effect."
    ),
}
"""The answer for each reason; its fields are the values that `not_run` needs besides the call's name."""


def not_run(
    call: ToolCall, reason: NotRun, *, is_error: bool | None = None, **values: Any
) -> ToolResult:
    """Make the answer to a call that does not run, an error unless it has the result of another call.

    ``values`` are those of the reason's text.
    """
    text = _TEXTS[reason].format(**{"name": call.name, **values})
    is_error = reason not in _WITH_RESULT if is_error is None else is_error
    return ToolResult(call.id, text, is_error, reason.value)
