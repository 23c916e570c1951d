"""The decisions on calls that waited for approval, as the stages apply them."""

from __future__ import annotations

import json

from treadle.messages import ToolCall, ToolResult
from treadle.tools import Approval


def refusal(call: ToolCall, decided: Approval) -> ToolResult | None:
    """The answer to a call that may not run, for the model; None if it may.

    Args:
        call: the call, with edited arguments if the decision has some.
        decided: the decision on it.
    """
    if not decided.runs:
        return _denied(call, decided.reason)
    if decided.arguments is not None and decided.arguments != dict(call.input or {}):
        # A stage has parsed the response again.
        return _denied(call, "its arguments are not those that were approved")
    return None


def _denied(call: ToolCall, reason: str) -> ToolResult:
    why = f": {reason.rstrip('. ')}" if reason else ""
    text = f"Not run: a person did not approve this call{why}. Do without it, or ask."
    return ToolResult(call.id, text, True, "denied")


def edit_note(call: ToolCall) -> str:
    """The note on the result of a call that ran with other arguments than the model's, which the history shows."""
    arguments = json.dumps(call.input, default=str)
    return f"[note: a person changed the arguments of this call before it ran, to: {arguments}]"
