"""`budget_guard`: may another model call be made?"""

from __future__ import annotations

from treadle.context import Context
from treadle.effects import NOW, Steps
from treadle.pipeline import stage
from treadle.results import DeadlineExceeded, Reason
from treadle.tools import NotRunReason


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
    is_short = NotRunReason.OVER_BUDGET in ctx.plan.not_run.values()
    if is_short and ctx.budget.calls_left() == 0:  # after a pause there may be more than there was
        return ctx.budget.calls_exhausted()
    return ctx.budget.exhausted()
