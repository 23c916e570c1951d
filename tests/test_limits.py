"""Limits and budgets: what is valid, used and left, and that a subagent draws on the budgets around it, too."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.codec import decode, encode
from treadle.errors import OptionError
from treadle.limits import LIMITS, Budget, Limits, Remaining
from treadle.messages import Response, Usage
from treadle.results import BudgetExhausted, MaxIterationsReached

REQUIRED = {"max_iterations": 10, "max_parallel_calls": 8, "max_depth": 5}
FRACTIONS = {"max_seconds": "seconds", "max_cost": "US dollars"}


def test_the_defaults():
    limits = Limits(**{name: None for name in LIMITS if name not in REQUIRED})
    assert limits == Limits()
    assert {name: getattr(limits, name) for name in LIMITS} == dict.fromkeys(LIMITS) | REQUIRED


def test_each_limit_is_in_the_table_and_each_that_is_used_up_is_among_what_remains():
    policies = {"on_limit", "unmeasured", "cost_of", "show_budget"}
    assert {field.name for field in dataclasses.fields(Limits)} - policies == set(LIMITS)
    remaining = {f"max_{field.name}" for field in dataclasses.fields(Remaining)}
    assert remaining >= set(LIMITS) - {"max_parallel_calls", "max_depth"}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize(
    "value", [-1, 1.5, "5", True, float("nan"), float("inf"), int, None, 0, 0.5]
)
def test_a_limit_is_a_number_that_is_large_enough(name, value):
    """A required limit is no None, a count is no fraction, and only some may be zero."""
    least = 0 if name in {"max_tool_calls", "max_depth", *FRACTIONS} else 1
    kind = f"number of {FRACTIONS[name]}" if name in FRACTIONS else "whole number"
    is_number = type(value) is int or (name in FRACTIONS and type(value) is float)
    if (value is None and name not in REQUIRED) or (is_number and value >= least):
        assert getattr(Limits(**{name: value}), name) == value
        return
    with pytest.raises(OptionError) as caught:
        Limits(**{name: value})
    assert str(caught.value) == f"{name}: expected a {kind} of at least {least}, got {value!r}"


def chained(*limits):
    """Nested budgets, the nearest first."""
    budget = None
    for one in reversed(limits):
        budget = Budget(Limits(**one), budget)
    return list(budget.chain())


def use(budget, usage, **fields):
    """Count a response with this usage."""
    budget.record_response(Response("Hi", usage=usage, **fields))


class TestChain:
    """A subagent draws on the budget of its parent, which draws on that of its own parent."""

    def test_usage_counts_for_this_run_and_those_around_it(self):
        inner, middle, outer = chained({}, {}, {})
        middle.count_request()
        middle.reserve("t", 3)
        use(middle, Usage(1, 2, cost=0.5))
        for one in (middle, outer):
            assert (one.requests, one.tool_calls, one.usage) == (1, 3, Usage(1, 2, cost=0.5))
        assert (inner.requests, inner.tool_calls, inner.usage) == (0, 0, Usage())

    def test_iterations_count_for_their_own_run(self):
        inner, outer = chained({}, {})
        inner.count_request()
        inner.iterations += 1
        assert (inner.iterations, outer.iterations) == (2, 0)
        assert (inner.requests, outer.requests) == (1, 1)

    def test_usage_that_is_unknown_makes_all_totals_lower_bounds(self):
        for budget in chained({}, {}):
            budget.record_response(None)
            assert all(one.usage.is_lower_bound for one in budget.chain())

    def test_uses_of_a_tool_are_counted_for_the_tree_until_they_are_released(self):
        inner, outer = chained({}, {})
        other = Budget(Limits(), outer)
        inner.reserve("t", 2, 2)
        inner.reserve("other", 1, 1)
        assert (inner.uses, outer.uses) == ({"t": 2, "other": 1}, {"t": 2, "other": 1})
        assert [other.uses_left("t", most) for most in (1, 2, 3)] == [0, 0, 1]
        for uses in (-1, 0):
            inner.reserve("t", -1, uses)
        assert (inner.tool_calls, outer.tool_calls) == (1, 1)
        assert (inner.uses, other.uses_left("t", 3)) == ({"t": 1, "other": 1}, 2)


class TestToolCalls:
    """How many more calls may run, by the tightest limit of the chain."""

    @pytest.mark.parametrize(
        ("limits", "used", "left"),
        [
            ([None], 5, None),
            ([3], 0, 3),
            ([3], 3, 0),
            ([3], 4, 0),
            ([None, 3], 1, 2),
            ([3, None], 1, 2),
            ([5, 3], 1, 2),
            ([3, 5], 1, 2),
            ([0], 0, 0),
        ],
    )
    def test_the_tightest_limit_decides(self, limits, used, left):
        budget, *_ = chained(*[{"max_tool_calls": limit} for limit in limits])
        budget.reserve("t", used)
        assert budget.calls_left() == left

    def test_that_is_not_always_the_smallest_limit(self):
        inner, outer = chained({"max_tool_calls": 5}, {"max_tool_calls": 6})
        outer.reserve("t", 5)
        assert inner.calls_left() == 1
        outer.reserve("t", 1)
        assert inner.calls_exhausted() == BudgetExhausted("max_tool_calls", 6, 6)

    def test_the_reason_names_the_nearest_budget_that_is_spent(self):
        inner, outer = chained({"max_tool_calls": 5}, {"max_tool_calls": 3})
        outer.reserve("t", 1)
        inner.reserve("t", 2)
        assert inner.calls_exhausted() == BudgetExhausted("max_tool_calls", 3, 3)
        inner.reserve("t", 3)
        assert inner.calls_exhausted() == BudgetExhausted("max_tool_calls", 5, 5)


class TestSpent:
    """Why no other model call may be made."""

    def test_iterations(self):
        (budget,) = chained({"max_iterations": 2, "max_total_tokens": 1, "max_cost": 0.01})
        budget.iterations += 1
        assert budget.exhausted() is None
        budget.iterations += 1
        assert budget.exhausted() == MaxIterationsReached(2)

    @pytest.mark.parametrize(
        ("kind", "limit", "usage", "used"),
        [
            ("max_input_tokens", 10, Usage(10, 1), 10),
            ("max_output_tokens", 10, Usage(1, 11), 11),
            ("max_total_tokens", 10, Usage(5, 5), 10),
            ("max_cost", 0.5, Usage(1, 1, cost=0.5), 0.5),
            ("max_cost", 0, Usage(), 0.0),
        ],
    )
    def test_tokens_and_cost(self, kind, limit, usage, used):
        (budget,) = chained({kind: limit})
        use(budget, usage)
        assert budget.exhausted() == BudgetExhausted(kind, limit, used)

    def test_a_request_without_a_response_leaves_the_limits_measurable(self):
        (budget,) = chained({"max_cost": 0.5, "max_total_tokens": 9})
        budget.record_response(None)
        assert (budget.exhausted(), budget.not_measurable()) == (None, None)

    def test_a_model_with_no_tool_calls_left_may_still_answer(self):
        (budget,) = chained({"max_tool_calls": 1})
        budget.reserve("t", 1)
        assert budget.exhausted() is None

    def test_the_budget_of_the_parent_counts(self):
        inner, outer = chained({}, {"max_requests": 2})
        outer.count_request()
        inner.count_request()
        assert inner.exhausted() == BudgetExhausted("max_requests", 2, 2)
        for own, limit in (({}, 5), ({"max_total_tokens": 7}, 7)):  # the nearest is named first
            inner, _ = chained(own, {"max_total_tokens": 5})
            use(inner, Usage(5, 5))
            assert inner.exhausted() == BudgetExhausted("max_total_tokens", limit, 10)


class TestUnmeasured:
    """A response that does not report what a limit needs."""

    @pytest.mark.parametrize(
        ("limits", "usage", "found"),
        [
            ({"max_total_tokens": 9}, None, ("max_total_tokens", "usage")),
            ({"max_total_tokens": 9, "max_input_tokens": 9}, None, ("max_input_tokens", "usage")),
            (
                {"max_output_tokens": 9},
                Usage(1, is_lower_bound=True),
                ("max_output_tokens", "usage"),
            ),
            ({"max_total_tokens": 9}, Usage(1, 1), None),
            ({"max_total_tokens": 9}, Usage(), None),
            ({"max_cost": 9}, Usage(1, 1), ("max_cost", "cost")),
            ({"max_cost": 9}, None, ("max_cost", "cost")),
            ({"max_cost": 9}, Usage(is_lower_bound=True, cost=1), None),
            ({"max_tool_calls": 9}, None, None),
        ],
    )
    @pytest.mark.parametrize("depth", [0, 1])
    def test_the_first_limit_that_lacks_it_is_named(self, limits, usage, found, depth):
        """Of this run, or of the one around it."""
        budget, *_ = chained(*[{}] * depth, limits)
        use(budget, usage)
        reason = budget.exhausted()
        assert reason == budget.not_measurable()
        assert found == (None if reason is None else (reason.kind, reason.missing))

    def test_it_counts_for_the_last_answer_too(self):
        (budget,) = chained({"max_total_tokens": 9})
        budget.finish()
        use(budget, None)
        assert budget.exhausted().missing == "usage"

    @pytest.mark.parametrize("unmeasured", ["stop", "estimate", "ignore"])
    def test_an_estimate_counts_only_where_it_is_asked_for(self, unmeasured):
        budget = Budget(Limits(max_total_tokens=9, max_cost=9, unmeasured=unmeasured))
        use(budget, Usage(1, 1, cost=1, is_estimate=True))
        assert (budget.exhausted() is None) is (unmeasured != "stop")

    @pytest.mark.parametrize(
        ("outer", "inner", "policy", "estimates"),
        [
            (None, None, "stop", False),
            ("estimate", None, "estimate", True),
            ("ignore", "stop", "stop", False),
            ("estimate", "ignore", "ignore", True),
        ],
    )
    def test_the_policy_is_that_of_the_parent_by_default(self, outer, inner, policy, estimates):
        budget = Budget(Limits(unmeasured=inner), Budget(Limits(unmeasured=outer)))
        assert (budget.unmeasured, budget.estimates) == (policy, estimates)

    def test_ignored_usage_makes_what_remains_an_upper_bound(self):
        budget = Budget(Limits(max_total_tokens=9, max_cost=9, unmeasured="ignore"))
        use(budget, Usage(1, 1))
        left = budget.remaining(now=0.0)
        assert left == Remaining(
            iterations=10, total_tokens=7, cost=9, requests=None, is_upper_bound=True
        )
        assert str(left) == "10 model calls, at most 7 tokens, at most $9.0000"


class TestRemaining:
    """The remaining budget, as tools and, on request, the model see it."""

    @pytest.mark.parametrize(
        ("limits", "left"),
        [
            ({}, {}),
            ({"max_iterations": 5}, {"iterations": 4}),
            ({"max_tool_calls": 5, "max_seconds": 60}, {"tool_calls": 3, "seconds": 50.0}),
            ({"max_input_tokens": 1000, "max_output_tokens": 10}, {"input_tokens": 900, "output_tokens": 0}),
            ({"max_total_tokens": 1200, "max_cost": 1.0}, {"total_tokens": 1050, "cost": 0.75}),
            ({"max_cost": 0.1, "max_seconds": 5}, {"cost": 0, "seconds": 0}),
        ],
    )  # fmt: skip
    def test_it_has_every_limit_that_is_set_and_is_never_negative(self, limits, left):
        (budget,) = chained(limits)
        budget.started_at = 100.0
        budget.iterations += 1
        budget.reserve("t", 2)
        use(budget, Usage(100, 50, cost=0.25))
        assert budget.remaining(now=110.0) == Remaining(**{"iterations": 9, **left})

    def test_the_tightest_of_the_chain_counts(self):
        inner, outer = chained({"max_tool_calls": 5, "max_seconds": 9}, {"max_tool_calls": 3})
        outer.reserve("t", 1)
        left = inner.remaining(now=4.0)
        assert (left.tool_calls, left.seconds) == (2, 5.0)

    @pytest.mark.parametrize(
        ("left", "text"),
        [
            (Remaining(), "no limit"),
            (
                Remaining(1, 2, 3_000, 4_000, 5_000, 0.5, 7.4),
                (
                    "1 model calls, 2 tool calls, 3,000 input tokens, 4,000 output tokens, "
                    "5,000 tokens, $0.5000, 7 s"
                ),
            ),
            (Remaining(tool_calls=0, requests=3), "0 tool calls, 3 model and subagent calls"),
            (
                Remaining(3, total_tokens=5_000, cost=0.0, is_estimate=True),
                "3 model calls, about 5,000 tokens, about $0.0000",
            ),
            (
                Remaining(input_tokens=5, is_upper_bound=True, is_estimate=True),
                "at most about 5 input tokens",
            ),
        ],
    )
    def test_it_is_formatted_as_text(self, left, text):
        assert str(left) == text


def test_a_restored_budget_keeps_its_usage():
    (budget,) = chained({"max_tool_calls": 5, "max_cost": 9})
    budget.iterations += 1
    budget.reserve("t", 2, 2)
    use(budget, Usage(3, 4, cost=0.5))
    use(budget, None, is_streamed=True)
    restored = Budget(budget.limits)
    restored.restore(decode(json.loads(json.dumps(encode(budget.used())))))
    assert restored.used() == budget.used()
    assert (restored.calls_left(), restored.usage) == (3, budget.usage)
    assert restored.exhausted() == budget.exhausted()
    assert restored.exhausted().missing == "cost"
    restored.reserve("t", 0, 1)
    assert budget.uses == {"t": 2}


LIMITS_OF_CALLS = st.lists(st.none() | st.integers(0, 8), min_size=1, max_size=3)


@given(LIMITS_OF_CALLS, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=10))
def test_reserving_no_more_than_remains_exceeds_no_limit_of_the_chain(limits, wanted):
    """Nested runs take turns, in any order."""
    chain = chained(*[{"max_tool_calls": limit} for limit in limits])
    for who, count in wanted:
        budget = chain[who % len(chain)]
        left = budget.calls_left()
        budget.reserve("t", count if left is None else min(count, left))
        for one, limit in zip(chain, limits, strict=True):
            assert limit is None or one.tool_calls <= limit
        if left is not None and count >= left:
            assert budget.calls_left() == 0
            assert budget.calls_exhausted().limit == budget.calls_exhausted().used
