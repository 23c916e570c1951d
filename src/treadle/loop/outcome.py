"""The end of a run: its record is closed, its result made."""

from __future__ import annotations

from typing import Any

from treadle.types import Context, DeadlineExceeded, Err, Ok, Reason, Result, RunState


def end_record(state: RunState, reason: Reason | None, ended: float) -> None:
    """Close the record of a run.

    Args:
        state: the record; its last iteration may still be open.
        reason: why the run ended; None for an answer.
        ended: when, in seconds since the epoch.
    """
    node = state.current_node
    is_late = isinstance(reason, DeadlineExceeded)
    if node is not None and node.is_running:
        if is_late:
            node.timeout(ended)
        else:
            node.fail(reason, ended)
    if reason is None:
        state.succeed()
    elif is_late:
        state.timeout()
    else:
        state.fail(reason)


def make_result(context: Context, iterations: int, reason: Reason | None) -> Result:
    """Make the result of a run.

    Args:
        context: as the run left it.
        iterations: the model calls that were made.
        reason: why the run ended; None for an answer.
    """
    facts: dict[str, Any] = {
        "messages": list(context.messages),
        "usage": context.usage,
        "iterations": iterations,
        "tool_calls_count": context.tool_calls_count,
        "run": context.state,
    }
    if reason is not None:
        return Err(reason, stop_reason=reason.stop_reason, **facts)
    # An answer with calls is that of a terminal tool: whatever else is called lets the run go on.
    stop_reason = "output" if context.tool_calls else "answered"
    return Ok(context.response, output=context.output, stop_reason=stop_reason, **facts)
