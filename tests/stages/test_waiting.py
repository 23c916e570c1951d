"""Calls that wait for a person: what may run before they are decided, and what is asked."""

import pytest

from treadle.messages import ToolCall, ToolResult
from treadle.results import Paused, PendingCall
from treadle.stages import decided, pending_of
from treadle.tools import Plan, approve, deny, edit


@pytest.fixture
def waiting(context):
    """A context with a plan: batches such as ``a b! | c``, of which ``b!`` needs approval."""

    def waiting(batches, *, approvals=None, done="", paused=None, children=None, **more):
        words = [batch.split() for batch in batches.split("|")]
        plan = Plan(
            tuple(tuple(call(word.strip("!")) for word in batch) for batch in words),
            approvals={
                word.strip("!"): f"Run {word.strip('!')}?"
                for batch in words
                for word in batch
                if word.endswith("!")
            },
        )
        ctx = context(
            plan=plan,
            tool_results={key: ToolResult(key, "done") for key in done.split()},
            approvals=approvals or {},
            children=children or {},
            **more,
        )
        ctx.run.in_flight.paused.update(paused or {})
        return ctx

    return waiting


def call(name):
    return ToolCall(name, f"tool_{name}", "{}", {"from": name})


def runnable(ctx):
    _, batches, _ = decided(ctx)
    return " | ".join(" ".join(call.id for call in batch) for batch in batches)


class TestWhatMayRun:
    """In the order of the request, everything up to the first call of which nothing was decided."""

    @pytest.mark.parametrize(
        ("batches", "runs"),
        [
            ("a b c", "a b c"),
            ("a! b", ""),
            ("a b! c", "a"),
            ("a b! c!", "a"),
            ("a b | c! | d", "a b"),
            ("a | b! c | d", "a"),
        ],
    )
    def test_what_comes_after_a_call_that_waits_waits_too(self, waiting, batches, runs):
        assert runnable(waiting(batches)) == runs

    @pytest.mark.parametrize("decision", [approve, edit({"x": 1})])
    def test_a_call_that_was_approved_runs_and_what_comes_after_it(self, waiting, decision):
        assert runnable(waiting("a b! c | d", approvals={"b": decision})) == "a b c | d"

    def test_until_the_next_of_which_nothing_was_decided(self, waiting):
        assert runnable(waiting("a! b c! d", approvals={"a": approve})) == "a b"
        assert runnable(waiting("a! b c! d", approvals={"c": approve})) == ""

    def test_a_call_that_was_denied_does_not_run_and_what_comes_after_it_does(self, waiting):
        assert runnable(waiting("a b! c", approvals={"b": deny()})) == "a c"

    def test_what_ran_before_the_pause_does_not_run_again(self, waiting):
        ctx = waiting("a b! c", done="a", approvals={"b": approve})
        assert runnable(ctx) == "b c"

    def test_a_batch_of_which_nothing_is_left_is_none(self, waiting):
        assert runnable(waiting("a | b! | c", done="a", approvals={"b": deny()})) == "c"

    def test_where_there_is_nothing_to_decide_the_plan_is_as_it_is(self, waiting):
        assert runnable(waiting("a b | c")) == "a b | c"


class TestDenial:
    """A call that was denied is answered in words that a model can act on."""

    @pytest.mark.parametrize(
        ("decision", "text"),
        [
            (
                deny(),
                "Not run: a person did not approve this call. Do without it, or ask.",
            ),
            (
                deny("too much"),
                "Not run: a person did not approve this call: too much. Do without it, or ask.",
            ),
            (
                deny("Too much. "),
                "Not run: a person did not approve this call: Too much. Do without it, or ask.",
            ),
        ],
    )
    def test_the_answer(self, waiting, decision, text):
        ctx, _, _ = decided(waiting("a! b", approvals={"a": decision}))
        assert dict(ctx.tool_results) == {"a": ToolResult("a", text, True, "denied")}

    def test_it_joins_the_results_that_there_are(self, waiting):
        ctx, _, _ = decided(waiting("a b!", done="a", approvals={"b": deny()}))
        assert list(ctx.tool_results) == ["a", "b"]

    def test_it_gives_back_what_was_taken_for_it_of_the_budgets(self, waiting):
        ctx = waiting("a b! c!", approvals={"b": deny()})
        ctx.run.budget.reserve_calls(3)
        ctx.run.budget.uses.update(tool_a=1, tool_b=1)
        decided(ctx)
        assert (ctx.run.budget.tool_calls, ctx.run.budget.uses) == (2, {"tool_a": 1, "tool_b": 0})


class TestRunsWithinCalls:
    """A call that is a run of its own waits as long as nothing was decided for that."""

    CHILD = {  # noqa: RUF012 - the state of a paused run, as far as it is looked at
        "pending": [
            {"id": "x", "name": "t", "arguments": {"n": 1}, "question": "x?"},
            {"id": "k/y", "name": "t", "arguments": {}, "question": "y?"},
        ]
    }

    def test_it_is_held_as_it_is_and_what_comes_after_it_too(self, waiting):
        _, batches, still = decided(waiting("a b c", children={"b": self.CHILD}))
        assert [[call.id for call in batch] for batch in batches] == [["a"]]
        assert (list(still), still["b"].state) == (["b"], self.CHILD)
        assert still["b"].pending == (
            PendingCall("x", "t", {"n": 1}, "x?"),
            PendingCall("k/y", "t", {}, "y?"),
        )

    @pytest.mark.parametrize("inner", ["b/x", "b/k/y"])
    def test_it_goes_on_as_soon_as_anything_was_decided_for_it(self, waiting, inner):
        ctx = waiting("a b c", children={"b": self.CHILD}, approvals={inner: approve})
        assert (runnable(ctx), decided(ctx)[2]) == ("a b c", {})

    def test_it_goes_on_where_there_is_nothing_to_decide(self, waiting):
        """A stage of its own may have paused it, for another reason than a call."""
        assert runnable(waiting("a b c", children={"b": {"pending": []}})) == "a b c"

    def test_a_decision_for_another_call_is_none_for_it(self, waiting):
        ctx = waiting("a! b c", children={"b": self.CHILD}, approvals={"a": approve, "x": approve})
        assert runnable(ctx) == "a"

    def test_one_behind_a_call_that_waits_keeps_its_state_though_it_could_go_on(self, waiting):
        """Else it would begin anew, once its turn comes."""
        children = {"b": self.CHILD, "c": self.CHILD}
        ctx = waiting("a b c", children=children, approvals={"c/x": approve})
        _, batches, still = decided(ctx)
        assert ([[call.id for call in batch] for batch in batches], list(still)) == (
            [["a"]],
            ["b", "c"],
        )

    def test_one_that_has_ended_is_not_held(self, waiting):
        assert runnable(waiting("a b c", children={"b": self.CHILD}, done="a b")) == "c"


def asked(ctx):
    return [pending.id for pending in pending_of(ctx)]


class TestWhatIsAsked:
    """Every call that waits is asked about at once, in order."""

    def test_a_question_has_the_call_and_the_words(self, waiting):
        assert pending_of(waiting("a!")) == (
            PendingCall("a", "tool_a", {"from": "a"}, "Run a?"),
        )  # fmt: skip

    def test_all_calls_that_need_it_are_asked_about(self, waiting):
        assert asked(waiting("a b! c | d! e!")) == ["b", "d", "e"]

    def test_what_was_decided_or_is_done_is_not_asked_about_again(self, waiting):
        ctx = waiting("a! b! c! d!", done="a", approvals={"b": approve, "c": deny()})
        assert asked(ctx) == ["d"]

    def test_a_run_within_a_call_asks_under_the_ids_of_both(self, waiting):
        inner = (PendingCall("x", "t", {"n": 1}, "x?"), PendingCall("k/y", "t", {"n": 2}, "y?"))
        ctx = waiting("a! b c!", paused={"b": Paused(inner)})
        assert asked(ctx) == ["a", "b/x", "b/k/y", "c"]
        assert pending_of(ctx)[1] == PendingCall("b/x", "t", {"n": 1}, "x?")

    def test_of_what_waits_within_it_only_what_was_not_decided(self, waiting):
        inner = tuple(PendingCall(name, "t", {}, "?") for name in "xy")
        ctx = waiting("a", paused={"a": Paused(inner)}, approvals={"a/x": approve})
        assert asked(ctx) == ["a/y"]

    def test_where_nothing_waits_nothing_is_asked(self, waiting):
        assert asked(waiting("a b | c")) == []

    def test_a_call_without_arguments_is_asked_about_as_one_of_none(self, context):
        plan = Plan(((ToolCall("a", "t"),),), approvals={"a": "a?"})
        assert pending_of(context(plan=plan)) == (PendingCall("a", "t", {}, "a?"),)
