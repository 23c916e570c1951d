"""`plan_calls`: which calls run now, together or one after another, and which do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from treadle.pipeline import Emit, Steps, stage
from treadle.stages.breaker import not_admitted, released
from treadle.stages.fingerprint import marked
from treadle.stages.planner import Planner
from treadle.stages.tool_runner import ToolRunner
from treadle.types import (
    CallDeferred,
    CallRefused,
    CallsPlanned,
    CallSuppressed,
    Context,
    HeldReason,
    Plan,
    ToolCall,
)


@stage(requires=("tool_calls",), provides=("plan", "tool_results"))
def plan_calls(
    ctx: Context,
    *,
    sequential: Literal["defer", "in_step"] = "defer",
    dedupe: bool = True,
) -> Steps[Context]:
    """Plan the valid calls, in the order of the request, and answer those that do not run.

    The longest prefix of the calls that may run together is a batch: parallel-safe calls, up to
    ``max_parallel_calls`` and each tool's ``max_parallel``; or exactly one call that is not parallel-safe.

    A call that was answered already, with nothing new learned since, is suppressed, and answered with what
    it brought. The same call twice in a batch runs once. What is beyond a budget is answered as such.

    Args:
        ctx: the context.
        sequential: what becomes of the calls after the first batch: ``defer`` answers that they may be asked
            for again, ``in_step`` runs them in further batches. Calls that require fresh input are deferred
            all the same.
        dedupe: look for duplicates.
    """
    for call in ctx.tool_calls:
        if not call.fingerprint:  # nobody has validated it
            ctx = ctx.replace(tool_calls=tuple(map(marked, ctx.tool_calls)))
            break
    done = ctx.tool_results
    waiting = [call for call in ctx.tool_calls if call.id not in done]
    if not waiting:
        if ctx.watched and ctx.tool_calls:
            yield from _tell(ctx)
        return ctx
    if len(waiting) == 1 and _is_simple(ctx, waiting[0], dedupe):
        ctx.budget.take_calls(1)
        ctx = ctx.replace(plan=Plan.of_one(waiting[0]))
    else:
        broken = yield from not_admitted(ctx, waiting)
        planner = Planner(ctx, in_step=sequential == "in_step", dedupe=dedupe)
        plan = planner.plan(waiting, broken)
        held = [call for call in waiting if call.id in plan.held and call.id not in broken]
        yield from released(ctx, held)
        if ctx.runner is not None:
            for call in waiting:
                if plan.held.get(call.id) in _REPEATED:
                    ctx.runner.count(call)
        ctx = ctx.replace(plan=plan, tool_results={**done, **planner.results})
    if ctx.watched:
        yield from _tell(ctx)
    return ctx


def _is_simple(ctx: Context, call: ToolCall, dedupe: bool) -> bool:
    """Whether there is nothing to plan: a single call, within all bounds, that was not made before."""
    tool = ctx.tools.get(call.name)
    if tool is not None and not tool.is_plain:
        return False
    if not ctx.budget.has_open_calls:
        return False
    runner: ToolRunner | None = ctx.runner
    if runner is None:
        return True
    if runner.breaker is not None:
        return False
    return not dedupe or runner.evidence.known(call.fingerprint) is None


_REPEATED = frozenset({HeldReason.DUPLICATE_IN_BATCH, HeldReason.NO_NEW_EVIDENCE})


def _tell(ctx: Context) -> Steps[None]:
    plan = ctx.plan
    yield Emit(
        CallsPlanned(
            iteration=ctx.iteration,
            reason=plan.reason,
            batches=tuple(tuple(call.id for call in batch) for batch in plan.batches),
            held=plan.held,
        )
    )
    for call in ctx.tool_calls:
        reason = plan.held.get(call.id)
        if reason is None:
            continue
        kind = _KINDS[reason]
        yield Emit(kind(iteration=ctx.iteration, call=call, reason=reason))


_KINDS: Mapping[HeldReason, type[CallSuppressed | CallDeferred | CallRefused]] = {
    HeldReason.DUPLICATE_IN_BATCH: CallSuppressed,
    HeldReason.NO_NEW_EVIDENCE: CallSuppressed,
    HeldReason.PARALLEL_CAP: CallDeferred,
    HeldReason.DEFERRED: CallDeferred,
    HeldReason.OVER_BUDGET: CallRefused,
    HeldReason.MAX_USES: CallRefused,
    HeldReason.BREAKER_OPEN: CallRefused,
}
"""What is told of a call that does not run."""
