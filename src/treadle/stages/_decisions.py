"""The decisions on calls that waited for approval, as the stages apply them."""

from __future__ import annotations

import json

from treadle.context import Context
from treadle.messages import ToolCall, ToolResult
from treadle.stages._unknown_calls import is_unknown, unknown
from treadle.tools import Approval, NotRun, not_run


def refusal(ctx: Context, call: ToolCall, decided: Approval) -> ToolResult | None:
    """The answer to a call that may not run, for the model; None if it may.

    Args:
        ctx: the context.
        call: the call, with edited arguments if the decision has some.
        decided: the decision on it.
    """
    if not decided.runs:
        return _denied(ctx, call, decided.reason)
    if decided.arguments is not None and decided.arguments != dict(call.input or {}):
        # A stage has parsed the response again.
        return _denied(ctx, call, "its arguments are not those that were approved")
    return None


def _denied(ctx: Context, call: ToolCall, reason: str) -> ToolResult:
    why = f": {reason.rstrip('. ')}" if reason else ""
    if is_unknown(ctx, call):
        then = f"A person decided not to run it again{why}. Do without it, or ask."
        return unknown(ctx, call, then)
    return not_run(call, NotRun.DENIED, why=why)


def edit_note(call: ToolCall) -> str:
    """The note on the result of a call that ran with other arguments than the model's, which the history shows."""
    arguments = json.dumps(call.input, default=str)
    return f"[note: a person changed the arguments of this call before it ran, to: {arguments}]"
