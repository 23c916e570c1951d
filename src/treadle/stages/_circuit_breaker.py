"""Circuit breakers: `circuit_breaker` ends a run whose tool keeps failing, and runs may share a `CircuitBreaker`.

Other runs affect the answers of a shared breaker, so each question to it is an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from treadle import labels
from treadle.checks import number
from treadle.context import Context
from treadle.effects import NOW, Call, Emit, Steps
from treadle.events import BreakerChanged
from treadle.messages import ToolCall
from treadle.pipeline import stage
from treadle.results import CircuitBroken
from treadle.tools import BreakerAnswer, NotRun

_RAN = frozenset({"done", "timeout"})
_NEWS = _RAN | {NotRun.INVALID.value, NotRun.BREAKER_OPEN.value}
"""The statuses of results that count as a success or a failure of the tool."""


@stage(requires=("tool_results",), provides=("decision", "error"))
def circuit_breaker(ctx: Context, *, threshold: Annotated[int, number(1)] = 3) -> Context:
    """Stop the run when a tool failed with the same error in several consecutive iterations that called it.

    The count is reset when the tool succeeds or fails with another error, not when other tools succeed.

    Args:
        ctx: the context.
        threshold: the number of iterations.
    """
    # The first failed call of each tool; None if one succeeded.
    outcomes: dict[str, ToolCall | None] = {}
    for call in ctx.tool_calls:
        result = ctx.tool_results.get(call.id)
        if result is not None and result.status in _NEWS:
            if result.is_error:
                outcomes.setdefault(call.name, call)
            else:
                outcomes[call.name] = None
    # For each failing tool its error, and the number of consecutive iterations with that error.
    before: Mapping[str, Sequence[Any]] = ctx.memo.get("circuit_breaker", {})
    if not before and not any(outcomes.values()):
        return ctx
    streaks, broken = dict(before), None
    for tool, failed in outcomes.items():
        last, count = streaks.pop(tool, ("", 0))
        if failed is not None:
            error = ctx.tool_results[failed.id].content
            count = count + 1 if last == error else 1
            streaks[tool] = [error, count]
            if count >= threshold and broken is None:
                exception = ctx.run.ledger.failures.get(failed.id)
                broken = CircuitBroken(tool, error, count, exception)
    if streaks != before:
        ctx = ctx.remember("circuit_breaker", streaks)
    return ctx if broken is None else ctx.stop(broken)


# The breaker that runs share


def refused_calls(ctx: Context, calls: Iterable[ToolCall]) -> Steps[dict[str, str]]:
    """Ask the breaker of a run about calls: the ids of those it refuses, each with the error that opened it."""
    errors: dict[str, str] = {}
    breaker = ctx.run.breaker
    if breaker is not None:
        now = yield NOW
        for call in calls:
            error = yield from _ask(ctx, call, breaker.admit, now)
            if error is not None:
                errors[call.id] = error
    return errors


def report_calls(ctx: Context, calls: Iterable[ToolCall]) -> Steps[None]:
    """Report calls that were admitted, each outcome once; those that did not run to their end are released."""
    breaker, settled = ctx.run.breaker, ctx.run.ledger.settled
    if breaker is None:
        return
    for call in calls:
        result, key = ctx.tool_results.get(call.id), (ctx.iteration, call.id)
        if key in settled:
            continue
        if result is not None and result.status in _RAN:
            settled.add(key)
            now = yield NOW
            error = result.content if result.is_error else None
            yield from _ask(ctx, call, breaker.record, error, now)
        else:
            yield from _ask(ctx, call, breaker.release)


def _ask(
    ctx: Context, call: ToolCall, ask: Callable[..., BreakerAnswer], *args: Any
) -> Steps[str | None]:
    """Ask the breaker about a call, under an id that is unique among the runs; report a change of its state."""
    name = f"{ctx.run.state.run_id}/{call.id}"
    made: BreakerAnswer = yield Call(ask, call.name, name, *args, label=labels.BREAKER, key=call.id)
    before, after = made.before.value, made.after.value
    if before != after:
        yield Emit(
            BreakerChanged(iteration=ctx.iteration, tool=call.name, before=before, after=after)
        )
    return made.error
