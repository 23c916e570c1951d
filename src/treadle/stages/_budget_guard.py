"""`budget_guard`: ends the run when a limit is reached."""

from __future__ import annotations

from treadle.context import Context
from treadle.pipeline import stage
from treadle.tools import NotRun


@stage(requires=("messages",), provides=("decision", "error"))
def budget_guard(ctx: Context) -> Context:
    """Stop the run if a limit leaves no room for another iteration.

    It comes after `inject_results`, so the calls of this iteration are in the history.
    """
    budget = ctx.run.budget
    not_run = ctx.plan.not_run
    is_short = bool(not_run) and NotRun.OVER_BUDGET in not_run.values()
    if is_short and budget.calls_left() == 0 and not budget.is_finishing:
        return ctx.stop(budget.calls_exhausted())
    reason = budget.exhausted()
    return ctx if reason is None else ctx.stop(reason)
