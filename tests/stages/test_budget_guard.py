"""`budget_guard`: stops the run if no other model call is allowed."""

import pytest

from treadle.context import Decision
from treadle.limits import Budget, Limits
from treadle.messages import Response, Usage
from treadle.results import BudgetExhausted
from treadle.stages import budget_guard
from treadle.tools import NotRun, Plan


def spent(limits, *, iterations=0, calls=0, usage=None, parent=None):
    """A budget of which some was used."""
    budget = Budget(Limits(**limits), parent)
    for _ in range(iterations):
        budget.count_request()
    budget.reserve("t", calls)
    budget.record_response(Response("Hi", usage=usage or Usage()))
    return budget


@pytest.fixture
def guard(context):
    """The context after the stage, of a budget of which some was used."""

    def guard(limits=None, *, budget=None, plan=None, **used):
        budget = budget or spent(limits or {}, **used)
        return budget_guard(context(budget=budget, plan=plan or Plan()))

    return guard


def plan_without(reason):
    return Plan(not_run={"c": reason})


@pytest.mark.parametrize("most", [0, 2])
def test_a_call_that_was_over_budget_ends_the_run(guard, most):
    """A budget that is exactly used up does not: the model may answer with what it has."""
    limits = {"max_tool_calls": most}
    assert guard(limits=limits, calls=most).decision is None
    ctx = guard(limits=limits, calls=most, plan=plan_without(NotRun.OVER_BUDGET))
    assert ctx.error == BudgetExhausted("max_tool_calls", most, most)


@pytest.mark.parametrize("reason", sorted(set(NotRun) - {NotRun.OVER_BUDGET}))
def test_a_call_that_does_not_run_for_another_reason_does_not_end_the_run(guard, reason):
    """Such as a tool that has reached its `max_uses`: the run still has its budget."""
    limits = {"max_tool_calls": 2}
    assert guard(limits=limits, calls=2, plan=plan_without(reason)).decision is None


def test_after_a_planned_call_was_released_the_run_continues(guard):
    """It was denied, after another one had been answered as over budget."""
    budget = spent({"max_tool_calls": 1}, calls=1)
    budget.reserve("t", -1)
    assert guard(budget=budget, plan=plan_without(NotRun.OVER_BUDGET)).decision is None


def test_a_call_over_budget_does_not_end_the_run_during_the_last_model_call(context):
    budget = spent({"max_tool_calls": 1}, calls=1)
    ctx = context(budget=budget, plan=plan_without(NotRun.OVER_BUDGET))
    assert budget_guard(ctx).decision is Decision.STOP
    ctx.run.budget.finish()
    assert budget_guard(ctx).decision is None
