"""Answers to calls in place of results of tools: to calls that may have run, and to denied ones."""

from __future__ import annotations

import json

from treadle.context import Context
from treadle.messages import ToolCall, ToolResult
from treadle.tools import Approval, NotRun, not_run


def is_unknown(ctx: Context, call: ToolCall) -> bool:
    """Whether a call without a result may have run; one whose subagent is paused is not over."""
    in_flight = ctx.run.in_flight
    if call.id in in_flight.paused or call.id in ctx.paused_runs:
        return False
    return in_flight.is_taken_over or _was_started(ctx, call)


def _was_started(ctx: Context, call: ToolCall) -> bool:
    """Whether a call was started, in this process or before a pause, and has not ended since."""
    node = ctx.run.node_of(call)
    return node is not None and node.is_running


def unknown(
    ctx: Context, call: ToolCall, then: str = "Find out before you call it again."
) -> ToolResult:
    """The answer to a call that may have run; no such text says that it did not."""
    was = "was" if _was_started(ctx, call) else "may have been"
    text = (
        f"Unknown: {call.name!r} {was} started, and whether it ran to its end is not known. "
        f"It may or may not have taken effect. {then}"
    )
    return ToolResult(call.id, text, True, "unknown")


def refusal(ctx: Context, call: ToolCall, decided: Approval) -> ToolResult | None:
    """The answer to a call that may not run, by the decision on it; None if it may."""
    reason = decided.reason
    if decided.runs:
        if decided.arguments is None or decided.arguments == dict(call.input or {}):
            return None
        reason = "its arguments are not those that were approved"  # the response was parsed again
    why = f": {reason.rstrip('. ')}" if reason else ""
    if is_unknown(ctx, call):
        then = f"A person decided not to run it again{why}. Do without it, or ask."
        return unknown(ctx, call, then)
    return not_run(call, NotRun.DENIED, why=why)


def edit_note(call: ToolCall) -> str:
    """The note on the result of a call that ran with other arguments than the model's, which the history shows."""
    arguments = json.dumps(call.input, default=str)
    return f"[note: a person changed the arguments of this call before it ran, to: {arguments}]"
