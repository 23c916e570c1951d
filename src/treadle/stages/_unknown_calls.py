"""Calls of which it is not known whether they ran: which they are, and the texts about them.

No text says that a call did not run if it was started, or may have been.
"""

from __future__ import annotations

from treadle.context import Context
from treadle.messages import ToolCall, ToolResult

RUN_AGAIN = "The program ended while {!r} ran, so it may have taken effect already. Run it again?"
"""The question to a person, with ``on_unknown="ask"``."""
FIND_OUT = "Find out before you call it again."


def is_unknown(ctx: Context, call: ToolCall) -> bool:
    """Whether a call without a result may have run: it was started, and its end was not noted.

    A call whose subagent is paused is not over.
    """
    in_flight = ctx.run.in_flight
    if call.id in in_flight.paused or call.id in ctx.paused_runs:
        return False
    return in_flight.is_taken_over or was_started(ctx, call)


def was_started(ctx: Context, call: ToolCall) -> bool:
    """Whether a call was started, in this process or before a pause, and has not ended since."""
    node = ctx.run.node_of(call)
    return node is not None and node.is_running


def unknown(ctx: Context, call: ToolCall, then: str = FIND_OUT) -> ToolResult:
    """The result of a call that may have run.

    Args:
        ctx: the context.
        call: the call.
        then: a sentence about what follows from it.
    """
    was = "was" if was_started(ctx, call) else "may have been"
    text = (
        f"Unknown: {call.name!r} {was} started, and whether it ran to its end is not known. "
        f"It may or may not have taken effect. {then}"
    )
    return ToolResult(call.id, text, True, "unknown")
