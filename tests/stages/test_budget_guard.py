"""May another model call be made?"""

import pytest

from treadle.pipeline import Now
from treadle.stages import budget_guard
from treadle.types import (
    BudgetExhausted,
    DeadlineExceeded,
    Decision,
    MaxIterationsReached,
    ToolResult,
    Usage,
)


@pytest.fixture
def guard(context, through):
    return lambda **more: through(context(**more), budget_guard)


def test_within_all_limits_it_goes_on(guard):
    limits = {
        "max_iterations": 3,
        "max_tool_calls": 4,
        "max_input_tokens": 100,
        "max_output_tokens": 100,
        "max_total_tokens": 200,
        "max_seconds": 1e12,
    }
    ctx = guard(limits=limits, iteration=2, usage=Usage(99, 99), tool_calls_count=4)
    assert (ctx.decision, ctx.error) == (None, None)


def test_without_limits_only_iterations_count(guard):
    assert guard(iteration=9, usage=Usage(10**9, 10**9), tool_calls_count=10**6).decision is None
    assert guard(iteration=10).error == MaxIterationsReached(10)


@pytest.mark.parametrize(("iteration", "stops"), [(1, False), (2, False), (3, True), (4, True)])
def test_the_last_iteration_ends_the_run(guard, iteration, stops):
    ctx = guard(limits={"max_iterations": 3}, iteration=iteration)
    assert (ctx.decision is Decision.STOP) is stops
    assert (ctx.error == MaxIterationsReached(3)) is stops


@pytest.mark.parametrize(
    ("kind", "usage"),
    [
        ("max_input_tokens", Usage(100, 1)),
        ("max_output_tokens", Usage(1, 100)),
        ("max_total_tokens", Usage(50, 50)),
    ],
)
@pytest.mark.parametrize(("limit", "stops"), [(99, True), (100, True), (101, False)])
def test_tokens_that_are_spent_end_the_run(guard, kind, usage, limit, stops):
    ctx = guard(limits={kind: limit}, usage=usage)
    assert (ctx.decision is Decision.STOP) is stops
    assert ctx.error == (BudgetExhausted(kind, limit, 100) if stops else None)


def test_a_call_that_was_over_budget_ends_the_run(guard):
    """A budget that is just spent does not: the model may answer with what it has."""
    limits = {"max_tool_calls": 2}
    assert guard(limits=limits, tool_calls_count=2).decision is None
    refused = {"c": ToolResult("c", "Not run", True, "over_budget")}
    ctx = guard(limits=limits, tool_calls_count=2, tool_results=refused)
    assert ctx.error == BudgetExhausted("max_tool_calls", 2, 2)


def test_no_calls_at_all_is_a_budget_too(guard):
    refused = {"c": ToolResult("c", "Not run", True, "over_budget")}
    ctx = guard(limits={"max_tool_calls": 0}, tool_results=refused)
    assert ctx.error == BudgetExhausted("max_tool_calls", 0, 0)


@pytest.mark.parametrize(("now", "stops"), [(1009.9, False), (1010.0, True), (1011.0, True)])
def test_time_that_is_up_ends_the_run(context, now, stops):
    """The clock is an effect: it is read only where there is a limit."""
    steps = budget_guard(context(limits={"max_seconds": 10}, started_at=1000.0))
    assert isinstance(next(steps), Now)
    with pytest.raises(StopIteration) as stop:
        steps.send(now)
    assert stop.value.value.error == (DeadlineExceeded(10) if stops else None)


def test_without_a_limit_of_time_the_clock_is_not_read(context):
    with pytest.raises(StopIteration):
        next(budget_guard(context()))
