"""The end of a run: its record is closed, its result made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.types import DeadlineExceeded, Err, Ok, Reason, RunState

if TYPE_CHECKING:
    from treadle.loop.iteration import Iterations


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
    for call in node.tool_calls if node is not None and reason is not None else ():
        # One that waits for a person, and will wait no more.
        if call.run is not None and call.run.is_running:
            end_record(call.run, reason, ended)
        if call.is_running:
            call.fail(reason, ended)
    if reason is None:
        state.succeed()
    elif is_late:
        state.timeout()
    else:
        state.fail(reason)


def make_result(turn: Iterations, reason: Reason | None, limit: Reason | None = None) -> Ok | Err:
    """Make the result of a run.

    Args:
        turn: the run, as it was left.
        reason: why the run ended; None for an answer.
        limit: the limit that was reached before the answer was asked for; None where none was.
    """
    context = turn.context
    facts: dict[str, Any] = {
        "messages": list(context.messages),
        "usage": turn.budget.usage,
        "iterations": turn.iteration,
        "tool_calls_count": context.tool_calls_count,
        "run": context.state,
    }
    if reason is not None:
        return Err(reason, stop_reason=reason.stop_reason, **facts)
    # An answer with calls is that of a terminal tool: whatever else is called lets the run go on.
    stop_reason = "output" if context.tool_calls else "answered"
    if limit is not None:
        stop_reason = "finished"
    return Ok(
        context.response, output=context.output, stop_reason=stop_reason, limit=limit, **facts
    )
