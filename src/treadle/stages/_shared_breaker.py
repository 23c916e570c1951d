"""What the stages ask a circuit breaker that runs share, and what they report to it."""

from __future__ import annotations

from collections.abc import Iterable

from treadle import labels
from treadle.context import Context
from treadle.effects import NOW, Call, Emit, Steps
from treadle.events import BreakerChanged
from treadle.messages import ToolCall
from treadle.tools import BreakerState, CircuitBreaker
from treadle.tools.breaker import Admission


def not_admitted(ctx: Context, calls: Iterable[ToolCall]) -> Steps[dict[str, str]]:
    """Ask the breaker of a run for each call; as effects, for other runs have a say in it.

    Args:
        ctx: has the runner, which has the breaker, if there is one.
        calls: would be made.

    Returns:
        Of the calls whose tools are out of order, the tools' errors.
    """
    errors: dict[str, str] = {}
    breaker: CircuitBreaker | None = ctx.runner.breaker if ctx.runner is not None else None
    if breaker is None:
        return errors
    now = yield NOW
    for call in calls:
        admission: Admission = yield Call(
            breaker.admit, call.name, _name(ctx, call), now, label=labels.BREAKER, key=call.id
        )
        if admission.error is not None:
            errors[call.id] = admission.error
        yield from _tell(ctx, call, admission.before, admission.after)
    return errors


def released(ctx: Context, calls: Iterable[ToolCall]) -> Steps[None]:
    """Tell the breaker of a run which calls will not be made.

    Args:
        ctx: has the runner, which has the breaker, if there is one.
        calls: were asked for, and are not planned.
    """
    breaker: CircuitBreaker | None = ctx.runner.breaker if ctx.runner is not None else None
    if breaker is not None:
        for call in calls:
            was_probe = yield Call(
                breaker.release, call.name, _name(ctx, call), label=labels.BREAKER, key=call.id
            )
            if was_probe:
                yield from _tell(ctx, call, BreakerState.HALF_OPEN, BreakerState.OPEN)


def noted(ctx: Context, calls: Iterable[ToolCall]) -> Steps[None]:
    """Tell the breaker of a run how its calls went.

    Args:
        ctx: has the runner and the results.
        calls: were planned; what did not run to an end says nothing.
    """
    breaker: CircuitBreaker | None = ctx.runner.breaker
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
            yield from _tell(ctx, call, before, after)
        else:
            yield from released(ctx, (call,))


def _name(ctx: Context, call: ToolCall) -> str:
    """The name of a call among all runs that share a breaker."""
    return f"{ctx.state.run_id}/{call.id}"


def _tell(ctx: Context, call: ToolCall, before: BreakerState, after: BreakerState) -> Steps[None]:
    if before is not after:
        yield Emit(
            BreakerChanged(
                iteration=ctx.iteration, tool=call.name, before=before.value, after=after.value
            )
        )
