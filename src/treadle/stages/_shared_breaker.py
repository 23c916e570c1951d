"""Queries and reports of the stages to a circuit breaker that runs share.

Other runs affect its answers, so each question is an effect.
"""

from __future__ import annotations

from collections.abc import Iterable

from treadle import labels
from treadle.context import Context
from treadle.effects import NOW, Call, Emit, Steps
from treadle.events import BreakerChanged
from treadle.messages import ToolCall
from treadle.tools import Admission, BreakerState


def refused_calls(ctx: Context, calls: Iterable[ToolCall]) -> Steps[dict[str, str]]:
    """Ask the breaker of a run about each call.

    Args:
        ctx: the context.
        calls: the calls that would be made.

    Returns:
        The ids of the calls that may not be made, each with the error that opened its breaker.
    """
    errors: dict[str, str] = {}
    breaker = ctx.run.breaker
    if breaker is None:
        return errors
    now = yield NOW
    for call in calls:
        admission: Admission = yield Call(
            breaker.admit, call.name, _name(ctx, call), now, label=labels.BREAKER, key=call.id
        )
        if admission.error is not None:
            errors[call.id] = admission.error
        yield from _report(ctx, call, admission.before, admission.after)
    return errors


def release_calls(ctx: Context, calls: Iterable[ToolCall]) -> Steps[None]:
    """Report calls that were admitted and will not be made."""
    breaker = ctx.run.breaker
    if breaker is not None:
        for call in calls:
            was_probe = yield Call(
                breaker.release, call.name, _name(ctx, call), label=labels.BREAKER, key=call.id
            )
            if was_probe:
                yield from _report(ctx, call, BreakerState.HALF_OPEN, BreakerState.OPEN)


def report_calls(ctx: Context, calls: Iterable[ToolCall]) -> Steps[None]:
    """Report the outcome of planned calls; those that did not run to their end are released."""
    breaker = ctx.run.breaker
    if breaker is None:
        return
    now = yield NOW
    for call in calls:
        result = ctx.tool_results.get(call.id)
        if result is not None and result.status in {"done", "timeout"}:
            error = result.content if result.is_error else None
            before, after = yield Call(
                breaker.record,
                call.name,
                _name(ctx, call),
                error,
                now,
                label=labels.BREAKER,
                key=call.id,
            )
            yield from _report(ctx, call, before, after)
        else:
            yield from release_calls(ctx, (call,))


def _name(ctx: Context, call: ToolCall) -> str:
    """The id of a call, unique among all runs that share a breaker."""
    return f"{ctx.run.state.run_id}/{call.id}"


def _report(ctx: Context, call: ToolCall, before: BreakerState, after: BreakerState) -> Steps[None]:
    if before is not after:
        yield Emit(
            BreakerChanged(
                iteration=ctx.iteration, tool=call.name, before=before.value, after=after.value
            )
        )
