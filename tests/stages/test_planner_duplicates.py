"""The planner and calls that would return nothing new: they do not run, unless something may have changed."""

import pytest

from .planning import CAP, DEFERRED, DUPLICATE, KNOWN, RECALLED


class TestDuplicates:
    """A call that was answered already, or is twice in a batch, is not made again."""

    def test_the_same_call_twice_in_one_batch_runs_once(self, plan):
        made_plan = plan("p1 q1 p1 p1")
        assert str(made_plan) == "p1 q1"
        assert made_plan.duplicates == {"p1'": "p1", "p1''": "p1"}
        assert made_plan.not_run == {"p1'": DUPLICATE, "p1''": DUPLICATE}

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

    @pytest.mark.parametrize("dedupe", ["evidence", "strict"])
    def test_it_is_answered_with_the_whole_result(self, plan, dedupe):
        made_plan = plan("p1 q1 p2", once="p1", known="q1", hidden="p1 q1", dedupe=dedupe)
        assert made_plan.not_run == {"p1": RECALLED, "q1": RECALLED}
        assert str(made_plan) == "p2"
        assert made_plan.results["p1"].content.startswith("result of p1\n\n[note: ")
        assert (made_plan.results["p1"].is_error, made_plan.results["p1"].status) == (
            False,
            "recalled",
        )

    @pytest.mark.parametrize(
        ("dedupe", "promised"), [("evidence", {"p1"}), ("strict", set())], ids=str
    )
    def test_the_answer_says_that_it_runs_when_called_again_if_so(self, plan, dedupe, promised):
        """``q1`` was repeated with the same result, and nothing is new since."""
        made_plan = plan("p1 q1", once="p1", known="q1", hidden="p1 q1", dedupe=dedupe)
        found = {
            word
            for word, result in made_plan.results.items()
            if result.content.endswith("call it once more to run it.]")
        }
        assert found == promised


class TestAnsweredReadsAfterAWrite:
    """A call that runs before may change a known result, so that its call is not suppressed."""

    @pytest.mark.parametrize(
        ("calls", "in_step"),
        [
            ("w1 p1", "w1 | p1"),
            ("q1 w1 p1", "q1 | w1 | p1"),
            ("w1 p1 q2", "w1 | p1 q2"),
            ("w1 q1 p1", "w1 | q1 p1"),
            ("fresh1 p1", "fresh1 | p1"),
            ("two1 two2 two3 w1 p1", "two1 two2 | two3 | w1 | p1"),
            ("two1 two2 two3 w1 q1 p1", "two1 two2 | two3 | w1 | q1 p1"),
            ("w1 two1 two2 two3 p1", "w1 | two1 two2 | two3 p1"),
        ],
    )
    def test_it_is_deferred_or_runs_in_step(self, plan, calls, in_step):
        assert plan(calls, known="p1").not_run["p1"] in {DEFERRED, CAP}
        assert str(plan(calls, known="p1", in_step=True)) == in_step
