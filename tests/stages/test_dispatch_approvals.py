"""Calls that need approval: which calls run before a decision, and which are pending."""

import pytest

from treadle.codec import encode
from treadle.effects import Call
from treadle.messages import ToolCall, ToolResult
from treadle.results import Paused, PendingCall
from treadle.stages import SubagentPausedError, dispatch_tools
from treadle.tools import Plan, Tool, approve, deny, edit


@pytest.fixture
def dispatch(context, through):
    """Run a plan such as ``a b! | c``, of which ``b!`` needs approval; each call has its own tool.

    Return the context, and the ids of the calls that ran, in alphabetical order.
    """

    def dispatch(batches, *, approvals=None, done="", pausing=None, paused_runs=None):
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
        ran = []

        def steps(ctx, one):
            yield Call(ran.append, one.id)
            if one.id in (pausing or {}):
                raise SubagentPausedError(pausing[one.id])
            return "done"

        ctx = context(
            tools=[Tool(one.name, steps=steps) for one in plan.calls],
            plan=plan,
            tool_results={key: ToolResult(key, "done") for key in done.split()},
            approvals=approvals or {},
            paused_runs=paused_runs or {},
        )
        for one in plan.calls:
            ctx.run.reserve(one, 1)
        return through(ctx, dispatch_tools), " ".join(sorted(ran))

    return dispatch


def call(name):
    return ToolCall(name, f"tool_{name}", "{}", {"from": name}, name)


class TestCallsThatRun:
    """Calls run in the order of the response, up to the first one without a decision."""

    @pytest.mark.parametrize(
        ("batches", "options", "runs"),
        [
            ("a b c", {}, "a b c"),
            # Calls after a pending call wait, too.
            ("a! b", {}, ""),
            ("a b! c", {}, "a"),
            ("a b! c!", {}, "a"),
            ("a b | c! | d", {}, "a b"),
            ("a | b! c | d", {}, "a"),
            # An approved call and the calls after it run, up to the next one without a decision.
            ("a b! c | d", {"approvals": {"b": approve}}, "a b c d"),
            ("a b! c | d", {"approvals": {"b": edit({"from": "b"})}}, "a b c d"),
            ("a! b c! d", {"approvals": {"a": approve}}, "a b"),
            ("a! b c! d", {"approvals": {"c": approve}}, ""),
            # An edited call does not run with other arguments, and a denied one does not run.
            ("a b! c", {"approvals": {"b": edit({"from": "x"})}}, "a c"),
            ("a b! c", {"approvals": {"b": deny()}}, "a c"),
            # Calls that ran before the pause do not run again.
            ("a b! c", {"approvals": {"b": approve}, "done": "a"}, "b c"),
            ("a | b! | c", {"approvals": {"b": deny()}, "done": "a"}, "c"),
        ],
    )
    def test_the_calls_up_to_the_first_without_a_decision_run(
        self, dispatch, batches, options, runs
    ):
        assert dispatch(batches, **options)[1] == runs

    def test_a_denial_releases_the_reserved_budget_of_the_call(self, dispatch):
        ctx, _ = dispatch("a b! c!", approvals={"b": deny()})
        budget = ctx.run.budget
        assert (budget.tool_calls, budget.uses) == (2, {"tool_a": 1, "tool_b": 0, "tool_c": 1})
        assert ctx.run.ledger.reserved.keys() == {"a", "c"}


class TestPausedSubagents:
    """A paused subagent waits for a decision on one of its calls."""

    STATE = {  # noqa: RUF012 - the state of a paused run, as far as it is read
        "pending": [
            encode(PendingCall("x", "t", {"n": 1}, "x?")),
            encode(PendingCall("k/y", "t", {}, "y?")),
        ]
    }

    def test_it_stays_paused_and_the_calls_after_it_wait(self, dispatch):
        ctx, ran = dispatch("a b c", paused_runs={"b": self.STATE})
        assert ran == "a"
        paused = ctx.run.in_flight.paused
        assert (list(paused), paused["b"].state) == (["b"], self.STATE)
        assert paused["b"].pending == (
            PendingCall("x", "t", {"n": 1}, "x?"),
            PendingCall("k/y", "t", {}, "y?"),
        )
        assert asked(ctx) == ["b/x", "b/k/y"]

    @pytest.mark.parametrize(
        ("state", "decided"),
        [(STATE, "b/x"), (STATE, "b/k/y"), ({"pending": []}, "other")],
        ids=["one of its calls", "a call of its subagent", "nothing to decide"],
    )
    def test_it_continues_after_any_decision_that_it_waits_for(self, dispatch, state, decided):
        """One of its stages may have paused it, for another reason than a call."""
        ctx, ran = dispatch("a b c", paused_runs={"b": state}, approvals={decided: approve})
        assert (ran, ctx.run.in_flight.paused, ctx.decision) == ("a b c", {}, None)

    def test_a_decision_on_another_call_does_not_continue_it(self, dispatch):
        approvals = {"a": approve, "x": approve}
        assert dispatch("a! b c", paused_runs={"b": self.STATE}, approvals=approvals)[1] == "a"

    def test_one_after_a_pending_call_keeps_its_state_although_it_could_continue(self, dispatch):
        """Without its state it would start again."""
        states = {"b": self.STATE, "c": self.STATE}
        ctx, ran = dispatch("a b c", paused_runs=states, approvals={"c/x": approve})
        assert (ran, list(ctx.run.in_flight.paused)) == ("a", ["b", "c"])

    def test_one_that_has_ended_is_not_kept(self, dispatch):
        assert dispatch("a b c", paused_runs={"b": self.STATE}, done="a b")[1] == "c"


def asked(ctx):
    return [pending.id for pending in ctx.waiting]


class TestPendingCalls:
    """All calls that need approval are pending at once, in order."""

    def test_a_question_has_the_call_and_the_text(self, dispatch):
        ctx, _ = dispatch("a!")
        assert ctx.waiting == (PendingCall("a", "tool_a", {"from": "a"}, "Run a?"),)

    def test_decided_and_finished_calls_are_not_pending(self, dispatch):
        ctx, _ = dispatch("a! b! c! d!", done="a", approvals={"b": approve, "c": deny()})
        assert asked(ctx) == ["d"]

    def test_a_pending_call_of_a_subagent_has_the_ids_of_both_calls(self, dispatch):
        inner = (PendingCall("x", "t", {"n": 1}, "x?"), PendingCall("k/y", "t", {"n": 2}, "y?"))
        ctx, _ = dispatch("a b | c!", pausing={"b": Paused(inner)})
        assert asked(ctx) == ["b/x", "b/k/y", "c"]
        assert ctx.waiting[0] == PendingCall("b/x", "t", {"n": 1}, "x?")

    def test_only_undecided_calls_of_a_subagent_are_pending(self, dispatch):
        inner = tuple(PendingCall(name, "t", {}, "?") for name in "xy")
        ctx, _ = dispatch("a", pausing={"a": Paused(inner)}, approvals={"a/x": approve})
        assert asked(ctx) == ["a/y"]

    def test_a_pending_call_without_arguments_has_an_empty_dict(self, context, through):
        plan = Plan(((ToolCall("a", "t"),),), approvals={"a": "a?"})
        ctx = context(plan=plan)
        ctx.run.reserve(plan.calls[0])
        ctx = through(ctx, dispatch_tools)
        assert ctx.waiting == (PendingCall("a", "t", {}, "a?"),)
