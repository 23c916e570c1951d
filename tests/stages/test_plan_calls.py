"""Which calls run together, which alone, and which are over budget."""

import itertools

import pytest

from treadle.stages import parse_tool_calls, plan_calls, validate_calls
from treadle.types import Limits, Tool


def make(name, **options):
    return Tool(name, fn=lambda **_: None, **options)


TOOLS = [make("p"), make("q"), make("s", parallel_safe=False)]


@pytest.fixture
def plan(context, through):
    def plan(names, **more):
        more.setdefault("tools", TOOLS)
        calls = [(name, {"n": place}) for place, name in enumerate(names)]
        return through(context(*calls, **more), parse_tool_calls, validate_calls, plan_calls)

    return plan


def batches(ctx):
    return ["".join(call.name for call in batch) for batch in ctx.plan.batches]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("p", ["p"]),
        ("ppq", ["ppq"]),
        ("s", ["s"]),
        ("ss", ["s", "s"]),
        ("psp", ["p", "s", "p"]),
        ("ppsqq", ["pp", "s", "qq"]),
        ("sppp", ["s", "ppp"]),
        ("p?p", ["pp"]),
        ("?", []),
    ],
)
def test_calls_that_may_run_together_do_and_others_run_alone(plan, names, expected):
    """In the order of the request; an invalid call, which has its answer, is in no batch."""
    assert batches(plan(names)) == expected


@pytest.mark.parametrize(
    ("most", "expected"), [(1, ["p"] * 5), (2, ["pp", "pp", "p"]), (5, ["ppppp"]), (8, ["ppppp"])]
)
def test_a_batch_has_no_more_calls_than_may_run_at_the_same_time(plan, most, expected):
    assert batches(plan("ppppp", limits={"max_parallel_calls": most})) == expected


def test_calls_of_a_resolver_run_together(plan):
    assert batches(plan("xyz", tools=[], resolve_tool=lambda call: 1)) == ["xyz"]


def test_nothing_to_run_leaves_the_context_alone(context):
    ctx = context()
    assert plan_calls(ctx) is ctx


@pytest.mark.parametrize(
    ("limit", "used", "ran"), [(3, 0, 2), (2, 0, 2), (1, 0, 1), (0, 0, 0), (3, 2, 1), (3, 9, 0)]
)
def test_calls_beyond_the_budget_are_answered_and_not_planned(plan, limit, used, ran):
    ctx = plan("pp", limits={"max_tool_calls": limit}, tool_calls_count=used)
    assert len(ctx.plan.calls) == ran
    for call in ctx.tool_calls[ran:]:
        result = ctx.tool_results[call.id]
        assert result.content == (
            f"Not run: the budget of {limit} tool calls is spent. Answer with what you have."
        )
        assert (result.is_error, result.status) == (True, "over_budget")
    assert len(ctx.tool_results) == 2 - ran


def test_invalid_calls_cost_no_budget(plan):
    ctx = plan("??p", limits={"max_tool_calls": 1})
    assert batches(ctx) == ["p"]


def test_every_valid_call_is_planned_once_whatever_the_order(plan):
    for names in itertools.product("ps?", repeat=4):
        ctx = plan(names, limits={"max_parallel_calls": 2})
        planned = [call.id for call in ctx.plan.calls]
        assert planned == [c.id for c in ctx.tool_calls if c.name != "?"]
        assert all(
            len(batch) <= Limits(max_parallel_calls=2).max_parallel_calls
            for batch in ctx.plan.batches
        )
