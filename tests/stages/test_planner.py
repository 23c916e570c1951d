"""The planner: which calls of an answer run together, and why the others do not."""

import pytest
from tests.learning import learn

from treadle.messages import ToolCall
from treadle.tools import PlanReason, Tool

from .planning import (
    BROKEN,
    CAP,
    DEFERRED,
    DUPLICATE,
    KNOWN,
    OVER,
    TOOLS,
    USED_UP,
    made,
    planned,
)


class TestBatches:
    """The longest prefix of the calls that may run together; the rest is deferred, or follows."""

    @pytest.mark.parametrize(
        ("calls", "deferring", "in_step"),
        [
            ("p1", "p1", "p1"),
            ("p1 q1 p2", "p1 q1 p2", "p1 q1 p2"),
            ("w1", "w1", "w1"),
            ("w1 w2", "w1", "w1 | w2"),
            ("w1 p1 p2", "w1", "w1 | p1 p2"),
            ("p1 q1 w1 p2 q2", "p1 q1", "p1 q1 | w1 | p2 q2"),
            ("p1 w1 w2", "p1", "p1 | w1 | w2"),
            # Its arguments were chosen without the results of the calls before it.
            ("fresh1 p1", "fresh1", "fresh1 | p1"),
            ("p1 fresh1 q1", "p1", "p1 q1"),
            ("fresh1 fresh2", "fresh1", "fresh1"),
            # At most `max_parallel_calls`, and `max_parallel` calls of a tool.
            ("p1 p2 p3 p4 p5", "p1 p2 p3 p4", "p1 p2 p3 p4 | p5"),
            ("one1 one2 one3", "one1", "one1 | one2 | one3"),
            ("two1 two2 two3 two4 two5", "two1 two2", "two1 two2 | two3 two4 | two5"),
            ("one1 two1 p1 two2 one2", "one1 two1 p1 two2", "one1 two1 p1 two2 | one2"),
            ("one1 one2 p1", "one1", "one1 | one2 p1"),
        ],
    )
    def test_calls_that_may_run_together_do_and_others_run_alone(
        self, plan, calls, deferring, in_step
    ):
        limits = {"max_parallel_calls": 4}
        assert str(plan(calls, limits=limits)) == deferring
        assert str(plan(calls, limits=limits, in_step=True)) == in_step

    def test_calls_of_names_that_only_a_resolver_knows_run_together(self, plan):
        assert str(plan("x1 y1 z1", tools=[])) == "x1 y1 z1"


class TestReasons:
    """The plan has a reason, and so has each call that does not run."""

    @pytest.mark.parametrize(
        ("calls", "options", "reason", "not_run"),
        [
            ("p1", {}, PlanReason.SINGLE_CALL, {}),
            ("p1 p1", {}, PlanReason.SINGLE_CALL, {"p1'": DUPLICATE}),
            ("p1 q1", {}, PlanReason.PARALLEL_BATCH, {}),
            ("p1 q1", {"known": "q1"}, PlanReason.SINGLE_CALL, {"q1": KNOWN}),
            ("two1 two2 two3", {}, PlanReason.PARALLEL_BATCH_CUT, {"two3": CAP}),
            ("one1 one2 p1", {}, PlanReason.PARALLEL_BATCH_CUT, {"one2": CAP, "p1": CAP}),
            ("one1 one2 p1", {"in_step": True}, PlanReason.PARALLEL_BATCH_CUT, {}),
            ("p1 w1", {}, PlanReason.MIXED_BATCH_SEQUENCED, {"w1": DEFERRED}),
            ("p1 w1 q1", {"in_step": True}, PlanReason.MIXED_BATCH_SEQUENCED, {}),
            ("p1 fresh1", {}, PlanReason.MIXED_BATCH_SEQUENCED, {"fresh1": DEFERRED}),
            ("w1 w2", {}, PlanReason.SEQUENTIAL_DEFERRED, {"w2": DEFERRED}),
            ("w1 p1 p2", {}, PlanReason.SEQUENTIAL_DEFERRED, {"p1": DEFERRED, "p2": DEFERRED}),
            ("p1", {"known": "p1"}, PlanReason.ALL_SUPPRESSED, {"p1": KNOWN}),
            ("p1", {"broken": {"p1": "E"}}, PlanReason.ALL_SUPPRESSED, {"p1": BROKEN}),
            ("p1", {"limits": {"max_tool_calls": 0}}, PlanReason.OVER_BUDGET, {"p1": OVER}),
            ("p1 p2", {"limits": {"max_tool_calls": 1}}, PlanReason.OVER_BUDGET, {"p2": OVER}),
            ("w1 w2", {"limits": {"max_tool_calls": 1}}, PlanReason.OVER_BUDGET, {"w2": OVER}),
            ("once1 once2 p1", {}, PlanReason.OVER_BUDGET, {"once2": USED_UP}),
            (
                "p1 fresh1 w1",
                {"in_step": True},
                PlanReason.MIXED_BATCH_SEQUENCED,
                {"fresh1": DEFERRED},
            ),
            # A spent budget takes precedence over a cut batch.
            (
                "p1 p2 p3 p4",
                {"in_step": True, "limits": {"max_parallel_calls": 2, "max_tool_calls": 3}},
                PlanReason.OVER_BUDGET,
                {"p4": OVER},
            ),
        ],
    )
    def test_the_reasons(self, plan, calls, options, reason, not_run):
        made_plan = plan(calls, **options)
        assert (made_plan.reason, made_plan.not_run) == (reason, not_run)


SUPPRESSED = """\
Not run again: you made the same call in iteration 2, and nothing new has been learned since; \
only a tool declared volatile=True would run again. Its result was:
result of p1
Try something else, or answer with what you have."""
BEHIND = (
    "Not run yet: other calls have to run first. Look at the other results, and call 'p' again "
    "if you still need it."
)
ONE_TOO_MANY = (
    "Not run yet: no more calls can run at the same time. Look at the other results, and call 'one' again "
    "if you still need it."
)
SPENT = "Not run: the budget of 1 tool calls is spent. Answer with what you have."
NO_USE_LEFT = (
    "Not run: 'twice' has reached its maximum number of uses in a run, 2. "
    "Do without it, or answer with what you have."
)
OUT_OF_ORDER = """\
Error: 'p' is unavailable and was not tried. It kept failing with: Error: no route
Do without it for now."""


class TestAnswers:
    """Every call that does not run is answered with a text that a model can act on."""

    @pytest.mark.parametrize(
        ("calls", "options", "call_id", "text"),
        [
            ("p1", {"known": "p1"}, "p1", SUPPRESSED),
            ("w1 p1", {}, "p1", BEHIND),
            ("one1 one2", {}, "one2", ONE_TOO_MANY),
            ("p1 p2", {"limits": {"max_tool_calls": 1}}, "p2", SPENT),
            ("twice1 twice2 twice3", {}, "twice3", NO_USE_LEFT),
            ("p1", {"broken": {"p1": "Error: no route"}}, "p1", OUT_OF_ORDER),
        ],
    )
    def test_the_answer_to_a_call_that_does_not_run(self, plan, calls, options, call_id, text):
        made_plan = plan(calls, **options)
        result = made_plan.results[call_id]
        assert (result.tool_call_id, result.content) == (call_id, text)
        assert result.status == made_plan.not_run[call_id]

    def test_a_repeated_long_result_is_truncated(self, context):
        """The full result is earlier in the history."""
        ctx = context(tools=TOOLS)
        results = [("p1", "line\n" * 201, False), ("q1", "x" * 5_001, False)]
        learn(ctx.run.repeats, 1, results)
        results = planned(ctx, made("p1 q1"), dedupe="strict").results
        assert "[cut: 1 more lines, " in results["p1"].content
        assert "[cut: 0 more lines, 1 more bytes]" in results["q1"].content


# The planner within its budgets, and the calls that need approval.


class TestBudgets:
    """Calls are counted before they run, and no more run than the budgets allow."""

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


# The planner and calls that would return nothing new: they do not run, unless something may have changed.


class TestDuplicates:
    """A call that was answered already, or is twice in a batch, is not made again."""

    def test_in_another_batch_it_runs_again(self, plan):
        """The calls in between may have changed its result."""
        made_plan = plan("p1 w1 p1", in_step=True)
        assert (str(made_plan), made_plan.duplicates) == ("p1 | w1 | p1'", {})

    @pytest.mark.parametrize(
        ("dedupe", "skipped"), [("evidence", {"q1"}), ("strict", {"p1", "q1"}), ("off", set())]
    )
    def test_a_call_is_skipped_after_a_repetition_or_at_once_or_never(self, plan, dedupe, skipped):
        """``p1`` was made once, ``q1`` was repeated with the same result; nothing is new since."""
        made_plan = plan("p1 q1 p2", once="p1", known="q1", dedupe=dedupe)
        assert made_plan.not_run == dict.fromkeys(skipped, KNOWN)

    @pytest.mark.parametrize("dedupe", ["evidence", "strict", "off"])
    def test_what_a_tool_says_wins_over_what_the_loop_says(self, plan, dedupe):
        known = "strict1 patient1 again1 clock1"
        for given, skipped in (
            ({"once": known}, ["strict1"]),
            ({"known": known}, ["strict1", "patient1"]),
        ):
            assert list(plan(known, dedupe=dedupe, **given).not_run) == skipped

    @pytest.mark.parametrize("dedupe", ["evidence", "strict", "off"])
    @pytest.mark.parametrize("tool", ["clock", "again"])
    def test_a_volatile_tool_or_one_that_is_off_may_run_twice_in_a_batch(self, plan, tool, dedupe):
        assert str(plan(f"{tool}1 {tool}1", dedupe=dedupe)) == f"{tool}1 {tool}1'"


class TestRecalledCalls:
    """A call whose result is no longer visible is answered with it."""

    @pytest.mark.parametrize(
        ("dedupe", "promised"), [("evidence", {"p1"}), ("strict", set())], ids=str
    )
    def test_the_answer_says_that_it_runs_when_called_again_if_so(self, plan, dedupe, promised):
        """``q1`` was repeated with the same result, and nothing is new since."""
        made_plan = plan("p1 q1", once="p1", known="q1", hidden="p1 q1", dedupe=dedupe)
        assert made_plan.results["p1"].content.startswith("result of p1\n\n[note: ")
        found = {
            word
            for word, result in made_plan.results.items()
            if result.content.endswith("call it once more to run it.]")
        }
        assert found == promised
