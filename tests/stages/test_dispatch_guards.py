"""What `dispatch_tools` does beside running calls: duplicates, what was learned, and calls that wait."""

import pytest

from treadle.context import Decision
from treadle.effects import Call
from treadle.messages import ToolCall, ToolResult
from treadle.results import Err, Paused, PendingCall
from treadle.run_state import RunNodeStatus
from treadle.stages import (
    SubagentPausedError,
    dispatch_tools,
    parse_tool_calls,
    plan_calls,
    validate_calls,
)
from treadle.tools import InFlight, Plan, Tool, approve, deny, tool

PLANNED = (parse_tool_calls, validate_calls, plan_calls)
STAGES = (*PLANNED, dispatch_tools)
IN_STEP = (*PLANNED[:2], plan_calls(sequential="in_step"), dispatch_tools)


class Noting:
    """Makes tools that note their calls."""

    def __init__(self):
        self.ran = []

    def tool(self, name, **options):
        return Tool(
            name, fn=lambda n: self.ran.append(f"{name}{n}") or f"{name}{n} done", **options
        )


@pytest.fixture
def noting():
    return Noting()


def told(ctx, call_id):
    result = ctx.tool_results[call_id]
    return result.status, result.content


class TestTwins:
    """The same call twice in one batch runs once, and both are answered."""

    def test_the_second_shows_the_result_of_the_first(self, context, through, noting):
        calls = [("t", {"n": 1}), ("t", {"n": 1})]
        ctx = through(context(*calls, tools=[noting.tool("t")]), *STAGES)
        assert noting.ran == ["t1"]
        assert told(ctx, "c1") == ("done", "t1 done")
        assert told(ctx, "c2") == (
            "suppressed",
            "Not run twice: the same call stands beside it. Its result:\nt1 done",
        )
        assert not ctx.tool_results["c2"].is_error
        assert ctx.tool_calls_count == 1

    def test_a_failure_is_one_for_both(self, context, through):
        ctx = context(("t", {}), ("t", {}), tools=[Tool("t", fn=lambda: Err("no"))])
        ctx = through(ctx, *STAGES)
        assert [ctx.tool_results[key].is_error for key in ("c1", "c2")] == [True, True]
        assert told(ctx, "c2")[1].endswith("Its result:\nError: no")

    def test_a_long_result_is_shown_in_part(self, context, through):
        ctx = context(("t", {}), ("t", {}), tools=[Tool("t", fn=lambda: "x" * 6_000)])
        assert "[cut: 0 more lines, 1,000 more bytes]" in told(through(ctx, *STAGES), "c2")[1]

    def test_one_whose_first_was_not_run_is_told_so(self, context, through):
        """A stage of somebody else's may have taken it out of the batches."""
        plan = Plan(((ToolCall("c9", "t", "{}", {"n": 1}),),), duplicates={"c2": "c1"})
        ctx = context(tools=[Tool("t", fn=lambda n: n)], plan=plan)
        result = through(ctx, dispatch_tools).tool_results["c2"]
        text = "Not run: the same call beside it was not."
        assert result == ToolResult("c2", text, True, "skipped")


class TestWhatIsLearned:
    """What ran is evidence; the same call is known until something new comes."""

    def learned(self, ctx, call_id):
        call = next(call for call in ctx.tool_calls if call.id == call_id)
        return ctx.run.result_cache.latest(call.fingerprint)

    def test_every_call_that_ran(self, context, through, noting):
        calls = [("t", {"n": 1}), ("t", {"n": 2})]
        ctx = through(context(*calls, tools=[noting.tool("t")], iteration=4), *STAGES)
        assert self.learned(ctx, "c1") == (1, 4, "t1 done", False)
        assert self.learned(ctx, "c2") == (1, 4, "t2 done", False)

    def test_failures_too_as_such(self, context, through):
        ctx = through(context(("t", {}), tools=[Tool("t", fn=lambda: 1 / 0)]), *STAGES)
        assert self.learned(ctx, "c1").is_error
        assert ctx.run.result_cache.version == 1

    def test_nothing_of_calls_that_did_not_run(self, context, through, noting):
        tools = [noting.tool("t"), noting.tool("w", parallel_safe=False)]
        ctx = through(context(("?", {}), ("t", {"n": 1}), ("w", {"n": 1}), tools=tools), *STAGES)
        assert self.learned(ctx, "c1") is None
        assert self.learned(ctx, "c2").content == "t1 done"
        assert self.learned(ctx, "c3") is None

    def test_nothing_of_calls_that_were_cancelled(self, context, through):
        runner = InFlight(can_cancel=True)
        stopping = Tool("t", fn=runner.cancel_all)
        ctx = through(context(("t", {}), tools=[stopping], runner=runner), *STAGES)
        assert ctx.tool_results["c1"].status == "cancelled"
        assert self.learned(ctx, "c1") is None

    @pytest.mark.parametrize(
        ("options", "last"),
        [({"parallel_safe": False}, "done"), ({}, "suppressed")],
        ids=["a tool that runs alone", "any other"],
    )
    def test_what_runs_alone_may_change_what_others_bring_whatever_it_says(
        self, context, through, options, last
    ):
        """append, read, append, read: the second read must not be told that nothing is new."""
        runner, items = InFlight(), []
        append = tool(name="append", **options)(lambda: items.append(1))
        read = tool(name="read")(lambda: len(items))
        for iteration, name in enumerate(["append", "read", "append", "read"], 1):
            ctx = context((name, {}), tools=[append, read], runner=runner, iteration=iteration)
            ctx = through(ctx, *STAGES)
        assert ctx.tool_results["c1"].status == last

    def test_one_that_failed_has_changed_nothing(self, context, through):
        runner = InFlight()
        broken = tool(name="w", parallel_safe=False)(lambda: Err("no"))
        for _ in range(3):
            through(context(("w", {}), tools=[broken], runner=runner), *STAGES)
        assert runner.evidence.version == 1


class TestApprovals:
    """Where a call waits for a person, what comes before it runs, and the run is put aside."""

    @pytest.fixture
    def ctx(self, context, through, noting):
        """A plan of five calls, of which ``ask`` needs approval."""

        def ctx(names="t ask t t", stages=PLANNED, **more):
            tools = [
                noting.tool("t"),
                noting.tool("ask", requires_approval=True),
                noting.tool("w", parallel_safe=False),
            ]
            calls = [(name, {"n": n}) for n, name in enumerate(names.split(), 1)]
            return through(context(*calls, tools=tools, **more), *stages)

        return ctx

    def test_what_comes_before_it_has_run_and_what_comes_after_has_not(self, ctx, through, noting):
        paused = through(ctx(), dispatch_tools)
        assert noting.ran == ["t1"]
        assert (paused.decision, paused.status) == (Decision.PAUSE, "paused")
        assert paused.waiting == (PendingCall("c2", "ask", {"n": 2}, "'ask' needs approval"),)
        assert list(paused.tool_results) == ["c1"]
        assert paused.tool_calls_count == 1

    def test_all_that_wait_are_asked_about_at_once(self, ctx, through):
        paused = through(ctx("t ask t ask"), dispatch_tools)
        assert [pending.id for pending in paused.waiting] == ["c2", "c4"]

    def test_later_batches_wait_too(self, ctx, through, noting):
        paused = through(ctx("t w ask w", IN_STEP[:3]), dispatch_tools)
        assert noting.ran == ["t1", "w2"]
        assert [pending.id for pending in paused.waiting] == ["c3"]

    def resumed(self, paused, **approvals):
        """The context as it enters the stage again, in another run of the same record."""
        runner = InFlight()
        runner.evidence, runner.counts = paused.runner.evidence, paused.runner.counts
        changes = {"decision": None, "waiting": (), "runner": runner}
        return paused.replace(**changes, approvals={**paused.approvals, **approvals})

    def test_once_it_is_approved_the_rest_runs_and_nothing_twice(self, ctx, through, noting):
        paused = through(ctx(), dispatch_tools)
        done = through(self.resumed(paused, c2=approve), dispatch_tools)
        assert noting.ran[0] == "t1"
        assert sorted(noting.ran[1:]) == ["ask2", "t3", "t4"]
        assert done.decision is None
        assert done.tool_calls_count == 4
        assert {key: one.status for key, one in done.tool_results.items()} == dict.fromkeys(
            ["c1", "c2", "c3", "c4"], "done"
        )

    def test_once_it_is_denied_the_rest_runs(self, ctx, through, noting):
        paused = through(ctx(), dispatch_tools)
        done = through(self.resumed(paused, c2=deny("no")), dispatch_tools)
        assert sorted(noting.ran) == ["t1", "t3", "t4"]
        assert done.tool_results["c2"].status == "denied"
        assert (done.decision, done.tool_calls_count) == (None, 3)

    def test_it_is_put_aside_again_where_another_waits(self, ctx, through, noting):
        paused = through(ctx("ask t ask t"), dispatch_tools)
        assert noting.ran == []
        paused = through(self.resumed(paused, c1=approve), dispatch_tools)
        assert sorted(noting.ran) == ["ask1", "t2"]
        assert [pending.id for pending in paused.waiting] == ["c3"]
        done = through(self.resumed(paused, c3=deny()), dispatch_tools)
        assert noting.ran[-1] == "t4"
        assert (done.decision, len(done.tool_results)) == (None, 4)

    def test_what_ran_before_the_pause_is_learned_once_all_is_over(self, ctx, through):
        paused = through(ctx("t ask"), dispatch_tools)
        first = paused.tool_calls[0].fingerprint
        assert paused.runner.evidence.answer(first) is None
        done = through(self.resumed(paused, c2=approve), dispatch_tools)
        assert done.runner.evidence.known(first).content == "t1 done"

    def test_the_record_has_each_call_once_in_order(self, ctx, through):
        paused = through(ctx("ask t ask t"), dispatch_tools)
        paused = through(self.resumed(paused, c1=approve), dispatch_tools)
        done = through(self.resumed(paused, c3=approve), dispatch_tools)
        nodes = done.state.current_node.tool_calls
        assert [node.group_id for node in nodes] == ["c1", "c2", "c3", "c4"]
        assert {node.status for node in nodes} == {RunNodeStatus.SUCCESS}

    def test_every_call_is_counted_once(self, ctx, through):
        paused = through(ctx("t ask t"), dispatch_tools)
        done = through(self.resumed(paused, c2=approve), dispatch_tools)
        assert [done.runner.counts[call.fingerprint] for call in done.tool_calls] == [1, 1, 1]

    def test_a_twin_of_a_call_that_waits_is_answered_by_it(self, context, through, noting):
        tools = [noting.tool("ask", requires_approval=True)]
        ctx = context(("ask", {"n": 1}), ("ask", {"n": 1}), tools=tools)
        paused = through(ctx, *STAGES)
        assert [pending.id for pending in paused.waiting] == ["c1"]
        done = through(self.resumed(paused, c1=deny("no")), dispatch_tools)
        assert noting.ran == []
        assert done.tool_results["c2"].is_error
        assert "did not approve this call: no" in done.tool_results["c2"].content

    def test_where_all_is_decided_nothing_is_asked(self, ctx, through, noting):
        done = through(ctx("ask t", approvals={"c1": approve}), dispatch_tools)
        assert (done.decision, sorted(noting.ran)) == (None, ["ask1", "t2"])

    def test_a_rule_that_lets_a_call_pass_asks_nobody(self, context, through, noting):
        pay = noting.tool("pay", requires_approval=lambda arguments: arguments["n"] > 5)
        ctx = through(context(("pay", {"n": 5}), ("pay", {"n": 6}), tools=[pay]), *STAGES)
        assert noting.ran == ["pay5"]
        assert [pending.id for pending in ctx.waiting] == ["c2"]


class TestRunsWithinCalls:
    """A call that is a run of its own may pause; then so does the run around it."""

    INNER = PendingCall("x", "send", {"to": "bob"}, "Send?")

    @pytest.fixture
    def child(self):
        def steps(ctx, call):
            yield Call(lambda: None)
            if "c1/x" not in ctx.approvals:
                raise SubagentPausedError(Paused((self.INNER,), state=self.state()))
            return "the child is done"

        return Tool("child", steps=steps)

    def state(self):
        call = {"id": "x", "name": "send", "arguments": {"to": "bob"}, "question": "Send?"}
        return {"pending": [call]}

    def test_its_questions_are_asked_under_the_ids_of_both(self, context, through, child):
        ctx = through(context(("child", {}), tools=[child]), *STAGES)
        assert ctx.decision is Decision.PAUSE
        assert ctx.waiting == (PendingCall("c1/x", "send", {"to": "bob"}, "Send?"),)
        assert list(ctx.run.in_flight.paused) == ["c1"]
        assert (dict(ctx.tool_results), ctx.tool_calls_count) == ({}, 0)

    def test_it_is_put_aside_though_nothing_is_to_be_decided(self, context, through):
        """A stage of the child's may have paused it, for another reason than a call."""

        def steps(ctx, call):
            yield Call(lambda: None)
            raise SubagentPausedError(Paused(()))

        ctx = through(context(("t", {}), tools=[Tool("t", steps=steps)]), *STAGES)
        assert (ctx.decision, ctx.waiting) == (Decision.PAUSE, ())

    def test_its_siblings_are_not_held_up(self, context, through, child, noting):
        ctx = context(("child", {}), ("t", {"n": 1}), tools=[child, noting.tool("t")])
        ctx = through(ctx, *STAGES)
        assert (noting.ran, list(ctx.tool_results)) == (["t1"], ["c2"])

    def test_later_batches_are(self, context, through, child, noting):
        tools = [child, noting.tool("w", parallel_safe=False)]
        ctx = through(context(("child", {}), ("w", {"n": 1}), tools=tools), *IN_STEP)
        assert (noting.ran, ctx.decision) == ([], Decision.PAUSE)

    def test_it_goes_on_once_something_was_decided_for_it(self, context, through, child, noting):
        ctx = context(("child", {}), ("t", {"n": 1}), tools=[child, noting.tool("t")])
        paused = through(ctx, *STAGES)
        again = paused.replace(
            decision=None,
            waiting=(),
            runner=InFlight(),
            approvals={"c1/x": approve},
            children={"c1": self.state()},
        )
        done = through(again, dispatch_tools)
        assert noting.ran == ["t1"]
        assert (done.decision, done.tool_results["c1"].content) == (None, "the child is done")
        assert done.tool_calls_count == 2

    def test_without_a_decision_for_it_it_is_not_started_again(self, context, through, noting):
        def never(ctx, call):
            raise AssertionError("it was started")

        tools = [Tool("child", steps=never), noting.tool("t", requires_approval=True)]
        ctx = context(
            ("t", {"n": 1}), ("child", {}), tools=tools,
            approvals={"c1": approve}, children={"c2": self.state()},
        )  # fmt: skip
        paused = through(ctx, *STAGES)
        assert noting.ran == ["t1"]
        assert [pending.id for pending in paused.waiting] == ["c2/x"]
        assert list(paused.runner.paused) == ["c2"]
