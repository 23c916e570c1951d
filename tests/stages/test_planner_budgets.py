"""The planner within its budgets, and the calls that need approval."""

import pytest

from treadle.limits import Budget, Limits
from treadle.messages import ToolCall
from treadle.tools import Tool

from .planning import USED_UP, planned


class TestBudgets:
    """Calls are counted before they run, and no more run than the budgets allow."""

    @pytest.mark.parametrize(
        ("limit", "used", "runs"),
        [(3, 0, "p1 p2"), (2, 0, "p1 p2"), (1, 0, "p1"), (0, 0, ""), (3, 2, "p1"), (3, 9, "")],
    )
    def test_calls_run_up_to_the_budget(self, plan, limit, used, runs):
        budget = Budget(Limits(max_tool_calls=limit))
        budget.reserve_calls(used)
        made_plan = plan("p1 p2", budget=budget)
        assert str(made_plan) == runs
        assert made_plan.budget.tool_calls == used + len(runs.split())

    def test_a_tool_with_max_uses_of_zero_never_runs(self, plan):
        assert plan("never1", tools=[Tool("never", max_uses=0)]).not_run == {"never1": USED_UP}

    def test_the_uses_of_a_tool_are_checked_before_the_budget_of_the_run(self, plan):
        """Over budget ends the run; a tool that is used up does not."""
        limits = {"max_tool_calls": 1}
        assert plan("once1 once2", limits=limits).not_run == {"once2": USED_UP}


class TestApprovals:
    """The plan has a question for each call that needs approval."""

    @pytest.fixture
    def asked(self, plan):
        def asked(rule, words="t1"):
            return plan(words, tools=[Tool("t", requires_approval=rule), Tool("p")]).approvals

        return asked

    @pytest.mark.parametrize(
        ("rule", "words", "questions"),
        [
            (True, "p1 t1", {"t1": "'t' needs approval"}),
            (False, "t1", {}),
            (lambda given: given["n"] == "t2", "t1 t2", {"t2": "'t' needs approval"}),
            (lambda given: f"Really {given['n']}?", "t1", {"t1": "Really t1?"}),
            (
                lambda given: given["missing"],
                "t1",
                {"t1": "the rule for approvals raised KeyError: 'missing'"},
            ),
        ],
        ids=["always", "never", "by the arguments", "with a question", "raises"],
    )
    def test_the_rule_of_a_tool_decides_and_may_have_the_question(
        self, asked, rule, words, questions
    ):
        assert asked(rule, words) == questions

    def test_a_rule_receives_an_empty_dict_for_a_call_without_arguments(self, context):
        ctx = context(tools=[Tool("t", requires_approval=lambda arguments: arguments == {})])
        assert planned(ctx, [ToolCall("c", "t")]).approvals == {"c": "'t' needs approval"}

    def test_calls_that_do_not_run_need_no_approval(self, plan):
        tools = [Tool("t", requires_approval=True), Tool("w", parallel_safe=False)]
        assert plan("w1 t1", tools=tools).approvals == {}
        assert plan("t1", tools=tools, known="t1").approvals == {}
        assert list(plan("t1 t1", tools=tools).approvals) == ["t1"]
