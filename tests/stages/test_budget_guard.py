"""`budget_guard`: stops the run if no other model call is allowed."""

import pytest

from treadle.context import Decision
from treadle.limits import Budget, Limits
from treadle.messages import Usage
from treadle.results import BudgetExhausted, MaxIterationsReached
from treadle.stages import budget_guard
from treadle.tools import NotRun, Plan


def spent(limits, *, iterations=0, calls=0, usage=None, parent=None):
    """A budget of which some was used."""
    budget = Budget(Limits(**limits), parent)
    for _ in range(iterations):
        budget.count_request()
    budget.reserve_calls(calls)
    budget.record_usage(usage or Usage())
    return budget


@pytest.fixture
def guard(context):
    """The context after the stage, of a budget of which some was used."""

    def guard(limits=None, *, budget=None, plan=None, **used):
        budget = budget or spent(limits or {}, **used)
        return budget_guard(context(budget=budget, plan=plan or Plan()))

    return guard


def test_within_all_limits_the_run_continues(guard):
    limits = {
        "max_iterations": 3,
        "max_tool_calls": 4,
        "max_input_tokens": 100,
        "max_output_tokens": 100,
        "max_total_tokens": 200,
        "max_cost": 1.0,
        "max_seconds": 1e12,
    }
    ctx = guard(limits=limits, iterations=2, usage=Usage(99, 99, cost=0.9), calls=4)
    assert (ctx.decision, ctx.error) == (None, None)


def test_without_limits_only_iterations_count(guard):
    assert guard(iterations=9, usage=Usage(10**9, 10**9), calls=10**6).decision is None
    assert guard(iterations=10).error == MaxIterationsReached(10)


@pytest.mark.parametrize(("iterations", "stops"), [(1, False), (2, False), (3, True), (4, True)])
def test_the_last_iteration_ends_the_run(guard, iterations, stops):
    ctx = guard(limits={"max_iterations": 3}, iterations=iterations)
    assert (ctx.decision is Decision.STOP) is stops
    assert (ctx.error == MaxIterationsReached(3)) is stops


@pytest.mark.parametrize(
    ("kind", "usage"),
    [
        ("max_input_tokens", Usage(100, 1)),
        ("max_output_tokens", Usage(1, 100)),
        ("max_total_tokens", Usage(50, 50)),
        ("max_cost", Usage(cost=100)),
    ],
)
@pytest.mark.parametrize(("limit", "stops"), [(99, True), (100, True), (101, False)])
def test_exhausted_limits_of_tokens_and_cost_end_the_run(guard, kind, usage, limit, stops):
    ctx = guard(limits={kind: limit}, usage=usage)
    assert (ctx.decision is Decision.STOP) is stops
    assert ctx.error == (BudgetExhausted(kind, limit, 100) if stops else None)


def plan_without(reason):
    return Plan(not_run={"c": reason})


def test_a_call_that_was_over_budget_ends_the_run(guard):
    """A budget that is exactly used up does not: the model may answer with what it has."""
    limits = {"max_tool_calls": 2}
    assert guard(limits=limits, calls=2).decision is None
    ctx = guard(limits=limits, calls=2, plan=plan_without(NotRun.OVER_BUDGET))
    assert ctx.error == BudgetExhausted("max_tool_calls", 2, 2)


def test_an_unreported_cost_does_not_end_the_run(guard):
    assert guard(limits={"max_cost": 0.01}, usage=Usage(99, 99)).decision is None


def test_a_limit_of_zero_tool_calls_is_a_budget(guard):
    ctx = guard(limits={"max_tool_calls": 0}, plan=plan_without(NotRun.OVER_BUDGET))
    assert ctx.error == BudgetExhausted("max_tool_calls", 0, 0)


@pytest.mark.parametrize("reason", sorted(set(NotRun) - {NotRun.OVER_BUDGET}))
def test_a_call_that_does_not_run_for_another_reason_does_not_end_the_run(guard, reason):
    """Such as a tool that has reached its `max_uses`: the run still has its budget."""
    limits = {"max_tool_calls": 2}
    assert guard(limits=limits, calls=2, plan=plan_without(reason)).decision is None


def test_after_a_planned_call_was_released_the_run_continues(guard):
    """It was denied, after another one had been answered as over budget."""
    budget = spent({"max_tool_calls": 1}, calls=1)
    budget.release_call("t")
    assert guard(budget=budget, plan=plan_without(NotRun.OVER_BUDGET)).decision is None


def test_a_call_over_budget_does_not_end_the_run_during_the_last_model_call(context):
    budget = spent({"max_tool_calls": 1}, calls=1)
    ctx = context(budget=budget, plan=plan_without(NotRun.OVER_BUDGET))
    assert budget_guard(ctx).decision is Decision.STOP
    ctx.run.ledger.finishing = MaxIterationsReached(3)
    assert budget_guard(ctx).decision is None


class TestTheBudgetOfTheParent:
    """A subagent draws on the limits of its parent, too."""

    def with_parent(self, *, iterations=0, calls=0, usage=None, **limits):
        parent = Budget(Limits(**limits))
        own = {"max_iterations": 10, "max_tool_calls": 10}
        return spent(own, iterations=iterations, calls=calls, usage=usage, parent=parent)

    def test_within_it_the_run_continues(self, guard):
        budget = self.with_parent(
            max_iterations=3, max_total_tokens=50, iterations=2, usage=Usage(1, 1)
        )
        assert guard(budget=budget).decision is None

    def test_its_requests_end_the_run(self, guard):
        budget = self.with_parent(limits=Limits(max_requests=3), iterations=3)
        assert guard(budget=budget).error == BudgetExhausted("max_requests", 3, 3)

    def test_its_iterations_are_its_own(self, guard):
        assert guard(budget=self.with_parent(max_iterations=3, iterations=3)).decision is None

    def test_its_tokens_end_the_run(self, guard):
        budget = self.with_parent(max_total_tokens=50, usage=Usage(25, 25))
        assert guard(budget=budget).error == BudgetExhausted("max_total_tokens", 50, 50)

    def test_its_tool_calls_end_the_run_if_a_call_was_over_budget(self, guard):
        budget = self.with_parent(max_tool_calls=2, calls=2)
        ctx = guard(budget=budget, plan=plan_without(NotRun.OVER_BUDGET))
        assert ctx.error == BudgetExhausted("max_tool_calls", 2, 2)


def test_the_stage_does_not_check_the_time_limit(guard):
    """The deadline bounds the iterations from outside; the stage reads no clock."""
    budget = spent({"max_seconds": 10})
    budget.started_at = -1e12
    assert guard(budget=budget).decision is None
