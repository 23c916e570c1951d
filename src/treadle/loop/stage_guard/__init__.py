"""Checks the context that a custom stage returned, so that no stage can make the run lose work.

A call that a stage removed before it ran does not run. A call that ran is in the history, once, with its
result. A history that an edit broke is repaired, and the repair is reported with the name of the stage.
Forbidden changes and values of the wrong type raise here, and the run ends with a `PipelineFailed` that names
the stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.context import Context
from treadle.loop.stage_guard.calls import CallReview, missing_results, stopped_calls
from treadle.loop.stage_guard.fields import checked_fields, protect
from treadle.loop.stage_guard.history import call_ids, with_history
from treadle.loop.stage_guard.response import (
    is_new_response,
    with_calls_of_response,
    with_ids_of_calls,
)

__all__ = ["lost_calls", "protect", "review"]


def review(stage: str, before: Context, after: Context) -> Context:
    """Check the context that a custom stage returned.

    Args:
        stage: the name of the stage.
        before: the context that it received.
        after: the context that it returned.

    Returns:
        The context to continue with.

    Raises:
        TypeError: a value of the wrong type, a forbidden change, or a call that ran is missing.
        InvalidMessagesError: malformed messages.
    """
    if after is not before or missing_results(before) or stopped_calls(after):
        after = _reviewed(stage, before, after)
    lost = lost_calls(after)
    if lost:
        raise TypeError(
            f"calls {', '.join(lost)} ran, and the returned context does not have them; "
            "return the context that dispatch_tools returned"
        )
    after.run.dispatched = ()
    return after


def lost_calls(ctx: Context, dispatched: Sequence[Context] | None = None) -> list[str]:
    """The ids of the calls that ran and are neither in a context nor in its history.

    Args:
        ctx: the context.
        dispatched: the contexts whose calls ran; None is all that were dispatched last.
    """
    lost: list[str] = []
    for one in ctx.run.dispatched if dispatched is None else dispatched:
        # Once the model is asked again, their results are in the history only.
        kept = ctx.tool_results if one.is_injected else {call.id for call in ctx.tool_calls}
        lost.extend(call.id for call in one.plan.calls if call.id not in kept)
    if lost:
        made = {call_id for message in ctx.messages.raw() for call_id in call_ids(message)}
        lost = [call_id for call_id in lost if call_id not in made]
    return lost


def _reviewed(stage: str, before: Context, after: Context) -> Context:
    before = _asked_from(before, after)
    after = _with_owned_facts(before, checked_fields(before, after))
    if is_new_response(before, after):
        after = with_calls_of_response(stage, before, after)
    else:
        after = CallReview(stage, before, after).reviewed()
    return with_history(stage, before, with_ids_of_calls(after))


def _asked_from(before: Context, after: Context) -> Context:
    """The context to compare with: if the stage asked again, the one with the first exchange in its history."""
    if not before.is_asked or before.run.asked_again is None:
        return before
    again, response = before.run.asked_again
    return again if after.response is response and before.response is not response else before


def _with_owned_facts(before: Context, after: Context) -> Context:
    """Restore the fields that the loop computes, whatever the stage set."""
    facts: dict[str, Any] = {}
    if before.is_asked and not after.is_asked:
        facts["is_asked"] = True
    if before.result_messages and not after.result_messages:
        facts["result_messages"] = before.result_messages
    return after.evolve(**facts) if facts else after
