"""`budget_guard`: may another model call be made?"""

from __future__ import annotations

from treadle.pipeline import NOW, Steps, stage
from treadle.types import (
    BudgetExhausted,
    Context,
    DeadlineExceeded,
    MaxIterationsReached,
    Reason,
)


@stage(requires=("messages",), provides=("decision", "error"))
def budget_guard(ctx: Context) -> Steps[Context]:
    """Stop the run where a limit leaves no room for another iteration.

    It stands behind `inject_results`: whatever ran in the last iteration is in the history.
    """
    limits = ctx.limits
    if limits.max_seconds is not None:
        now = yield NOW
        if now - ctx.started_at >= limits.max_seconds:
            return ctx.stop(DeadlineExceeded(limits.max_seconds))
    reason = spent(ctx)
    return ctx if reason is None else ctx.stop(reason)


def spent(ctx: Context) -> Reason | None:
    """The first budget that is spent; None where all have something left."""
    limits = ctx.limits
    calls = limits.max_tool_calls
    if calls is not None and any(r.status == "over_budget" for r in ctx.tool_results.values()):
        return BudgetExhausted("max_tool_calls", calls, ctx.tool_calls_count)
    if ctx.iteration >= limits.max_iterations:
        return MaxIterationsReached(limits.max_iterations)
    if not limits.has_tokens:
        return None
    usage = ctx.usage
    for kind, limit, used in (
        ("max_input_tokens", limits.max_input_tokens, usage.input_tokens),
        ("max_output_tokens", limits.max_output_tokens, usage.output_tokens),
        ("max_total_tokens", limits.max_total_tokens, usage.total_tokens),
    ):
        if limit is not None and used >= limit:
            return BudgetExhausted(kind, limit, used)
    return None
