"""The table of calls in flight, and how one call is run."""

import contextlib
import threading

import pytest

from treadle.effects import Call, Signal, Sleep, drive_sync, map_effects
from treadle.events import ToolFinished, ToolStarted
from treadle.messages import Response, ToolCall, ToolResult
from treadle.results import Paused, PendingCall
from treadle.run_state import RunNode, RunNodeStatus
from treadle.stages import SubagentPausedError, at_once, attempts, prepare_call
from treadle.tools import InFlight, Tool, fingerprint, tool


def call(call_id="c1", name="t", print_="p", **arguments):
    return ToolCall(call_id, name, "{}", arguments, print_)


class TestTheTable:
    """Which calls run, which are done, how often each was made."""

    def test_a_call_is_running_until_it_has_its_result(self):
        runner = InFlight()
        runner.start([call("a"), call("b")])
        assert list(runner.running) == ["a", "b"]
        assert runner.mark_done("a", ToolResult("a", "1")) is True
        assert (list(runner.running), list(runner.results), runner.done) == (["b"], ["a"], False)
        runner.mark_done("b", ToolResult("b", "2"))
        assert runner.done

    def test_a_table_of_nothing_is_not_done(self):
        assert InFlight().done is False

    def test_a_result_of_a_call_that_does_not_run_is_stale_and_dropped(self):
        runner = InFlight()
        runner.start([call("a")])
        runner.mark_done("a", ToolResult("a", "first"))
        assert runner.mark_done("a", ToolResult("a", "second")) is False
        assert runner.mark_done("ghost", ToolResult("ghost", "x")) is False
        assert runner.results == {"a": ToolResult("a", "first")}

    def test_the_counts_outlive_the_batch_but_not_the_turn(self):
        runner = InFlight()
        runner.start([call("a"), call("b"), call("c", print_="q")])
        runner.next_batch()
        assert (runner.running, runner.results, dict(runner.counts)) == ({}, {}, {"p": 2, "q": 1})
        runner.new_turn()
        assert not runner.counts

    def test_cancelling_all_answers_every_running_call_and_tells_which(self):
        runner = InFlight(can_cancel=True)
        runner.start([call("a"), call("b")])
        runner.mark_done("a", ToolResult("a", "1"))
        assert [stopped.id for stopped in runner.cancel_all()] == ["b"]
        result = runner.results["b"]
        assert (result.is_error, result.status) == (True, "cancelled")
        assert result.content == "Cancelled: the call was stopped before it was done."
        assert runner.results["a"].content == "1"
        assert runner.stop.is_set
        assert runner.cancel_all() == ()

    def test_a_batch_after_a_cancellation_can_be_cancelled_again(self):
        runner = InFlight(can_cancel=True)
        runner.cancel_all()
        runner.next_batch()
        assert isinstance(runner.stop, Signal)
        assert not runner.stop.is_set

    def test_without_a_handle_there_is_no_signal(self):
        runner = InFlight()
        runner.start([call("a")])
        runner.cancel_all()
        assert runner.stop is None


class TestRun:
    """A call that was started comes to its end in the record and before those who watch."""

    def run(self, context, fn, has_listeners=True, **more):
        ctx = context(tools=[Tool("t", fn=fn)], has_listeners=has_listeners, iteration=3)
        node, told = RunNode(kind="tool"), []
        ctx.run.in_flight.start([call()])
        result = drive_sync(
            ctx.run.in_flight.run(ctx, call(), node, attempts(ctx, call())), told.append
        )
        return ctx, node, told, result

    def test_success(self, context):
        ctx, node, told, result = self.run(context, lambda: "ok")
        assert node.status is RunNodeStatus.SUCCESS
        assert ctx.run.in_flight.results == {"c1": result}
        started, finished = told
        assert started == ToolStarted(iteration=3, call=call(), at=0)
        assert finished == ToolFinished(iteration=3, call=call(), result=result, at=0, duration=0)
        assert finished.duration == finished.at - started.at == node.duration

    def test_failure(self, context):
        _, node, told, _ = self.run(context, lambda: 1 / 0)
        assert node.status is RunNodeStatus.FAILED
        assert node.error == "Error: ZeroDivisionError: division by zero"
        assert told[1].result.is_error

    def test_where_nobody_watches_no_event_is_made(self, context):
        assert self.run(context, lambda: "ok", has_listeners=False)[2] == []

    @pytest.mark.parametrize("end", [None, KeyboardInterrupt])
    def test_a_call_that_was_cancelled_meanwhile_is_told_as_cancelled(self, context, end):
        """What it brings after all is stale and is dropped; an interruption goes on its way."""

        def cancelled():
            ctx.run.in_flight.cancel_all()
            if end is not None:
                raise end
            return "late"

        ctx = context(tools=[Tool("t", fn=cancelled)], has_listeners=True)
        ctx = ctx.replace(runner=InFlight(can_cancel=True))
        node, told = RunNode(), []
        ctx.run.in_flight.start([call()])
        steps = ctx.run.in_flight.run(ctx, call(), node, attempts(ctx, call()))
        with pytest.raises(end) if end else contextlib.nullcontext():
            drive_sync(steps, told.append)
        assert told[1].result.status == "cancelled"
        assert ctx.run.in_flight.results["c1"].status == "cancelled"
        assert ctx.run.in_flight.running == {}
        assert node.duration == told[1].duration
        if end is not None:
            assert (node.status, node.error) == (
                RunNodeStatus.FAILED,
                "Cancelled: the call was stopped before it was done.",
            )

    @pytest.mark.parametrize("brought", [ToolResult("c1", "it came"), None])
    def test_a_cancellation_does_not_lose_what_a_call_had_brought(self, context, brought):
        """It may have come while the cancellation was on its way."""
        ctx = context(tools=[Tool("t", fn=lambda: None)], has_listeners=True)
        node, told = RunNode(), []

        def interrupted():
            yield Call(lambda: None)
            if brought is not None:
                ctx.run.in_flight.completed["c1"] = brought
            raise KeyboardInterrupt

        ctx.run.in_flight.start([call()])
        with pytest.raises(KeyboardInterrupt):
            drive_sync(ctx.run.in_flight.run(ctx, call(), node, interrupted()), told.append)
        if brought is None:
            assert (ctx.run.in_flight.results, list(ctx.run.in_flight.running)) == ({}, ["c1"])
            assert (node.status, node.error) == (RunNodeStatus.FAILED, "cancelled")
            assert [type(event) for event in told] == [ToolStarted]
        else:
            assert (ctx.run.in_flight.results, ctx.run.in_flight.running) == ({"c1": brought}, {})
            assert node.status is RunNodeStatus.SUCCESS
            assert told[1].result == brought

    def test_steps_that_are_closed_do_nothing_more(self, context):
        ctx = context(tools=[Tool("t", fn=lambda: None)])
        node = RunNode()
        steps = ctx.run.in_flight.run(ctx, call(), node, attempts(ctx, call()))
        next(steps)
        steps.send(0.0)
        steps.close()
        assert node.is_running

    def test_a_call_that_was_cancelled_is_no_success_in_the_record(self, context):
        """Though it returned after all."""
        ctx = context(tools=[Tool("t", fn=lambda: ctx.run.in_flight.cancel_all() and None)])
        ctx, node = ctx.replace(runner=InFlight(can_cancel=True)), RunNode()
        ctx.run.in_flight.start([call()])
        drive_sync(ctx.run.in_flight.run(ctx, call(), node, attempts(ctx, call())))
        assert node.status is RunNodeStatus.FAILED

    def test_a_time_limit_is_one_in_the_record(self, context):
        ctx, node = context(tools=[Tool("t")]), RunNode()
        late = ToolResult("c1", "too long", True, "timeout")
        drive_sync(ctx.run.in_flight.run(ctx, call(), node, at_once(late)))
        assert node.status is RunNodeStatus.TIMEOUT

    def test_a_late_try_does_not_overtake_the_last_one(self, context):
        """The first try times out and comes back while the second runs; that ends at its limit, too."""
        came, tries = threading.Event(), []

        def slow():
            tries.append(1)
            if len(tries) == 1:
                came.wait(5)
                return "late"
            return threading.Event().wait(0.3)

        ctx = context(tools=[Tool("t", fn=slow, timeout=0.02, retries=1)])
        ctx = ctx.replace(runner=InFlight(can_cancel=True), has_listeners=True)
        node, told = RunNode(), []
        ctx.run.in_flight.start([call()])

        def awake(effect):
            return Call(came.set) if isinstance(effect, Sleep) else effect

        steps = ctx.run.in_flight.run(ctx, call(), node, map_effects(attempts(ctx, call()), awake))
        drive_sync(steps, told.append)
        assert node.status is RunNodeStatus.TIMEOUT
        assert ctx.run.in_flight.results["c1"].status == told[-1].result.status == "timeout"
        assert (told[1].attempt, told[1].error_type) == (1, "timeout")


class TestACallThatWaits:
    """A call that is a run of its own may have to wait for a person: it is over for now."""

    @pytest.fixture
    def waited(self, context):
        def waits():
            yield Call(lambda: None)
            raise SubagentPausedError(paused)

        paused = Paused((PendingCall("x", "t", {}, "x?"),))
        ctx, node, told = context(tools=[Tool("t")], has_listeners=True), RunNode(), []
        ctx.run.in_flight.start([call()])
        drive_sync(ctx.run.in_flight.run(ctx, call(), node, waits()), told.append)
        return ctx.run.in_flight, node, told, paused

    def test_it_has_no_result_and_runs_no_more(self, waited):
        runner, _, _, paused = waited
        assert (runner.running, runner.results, runner.paused) == ({}, {}, {"c1": paused})

    def test_its_node_goes_on_later(self, waited, context):
        _, node, _, _ = waited
        started = node.started_at
        assert node.is_running
        ctx = context(tools=[Tool("t")])
        drive_sync(ctx.run.in_flight.run(ctx, call(), node, at_once(ToolResult("c1", "done"))))
        assert (node.status, node.started_at) == (RunNodeStatus.SUCCESS, started)

    def test_those_who_watch_are_told_that_it_waits(self, waited):
        _, _, told, _ = waited
        assert [type(event) for event in told] == [ToolStarted, ToolFinished]
        assert told[1].result.status == "waiting"

    def test_it_is_forgotten_with_its_batch(self, waited):
        runner, *_ = waited
        runner.next_batch()
        assert runner.paused == {}


class TestPrepareCall:
    """A call made by code, not by the model, is checked like any other."""

    def test_it_is_checked_and_run(self, context):
        ctx = context(tools=[tool(name="add")(lambda a, b: a + b)])
        steps = prepare_call(ctx, "add", "x", {"a": 1, "b": 2})
        assert drive_sync(steps) == ToolResult("x", "3")
        assert ctx.run.in_flight.counts[fingerprint("add", {"a": 1, "b": 2})] == 1

    @pytest.mark.parametrize(
        ("name", "arguments", "text"),
        [
            ("nope", {}, "there is no tool named 'nope'"),
            ("add", "{", "not valid JSON"),
            ("add", {"a": 1}, "missing required field 'b'"),
            ("add", [1, 2], "expected a JSON object, got array"),
        ],
    )
    def test_a_bad_one_has_a_result_that_says_what_is_wrong(self, context, name, arguments, text):
        ctx = context(tools=[tool(name="add")(lambda a, b: a + b)])
        result = drive_sync(prepare_call(ctx, name, "x", arguments))
        assert (result.is_error, result.status) == (True, "invalid")
        assert text in result.content
        assert ctx.run.in_flight.results["x"] == result

    def test_without_a_node_or_a_function_the_resolver_runs_it(self, context):
        ctx = context(tools=[{"name": "t"}], resolve_tool=lambda call: Response(call.name).content)
        assert drive_sync(prepare_call(ctx, "t", "x", {})).content == "t"

    @pytest.mark.parametrize("other", [None, InFlight()])
    def test_it_is_noted_in_the_table_that_was_asked_whichever_the_context_has(
        self, context, other
    ):
        mine = InFlight()
        ctx = context(tools=[tool(name="add")(lambda a, b: a + b)]).replace(runner=other)
        result = drive_sync(mine.prepare_call(ctx, "add", "x", {"a": 1, "b": 2}))
        assert (result.content, mine.results) == ("3", {"x": result})
        assert other is None or other.results == {}

    @pytest.mark.parametrize("rule", [True, lambda arguments: arguments["a"] > 5])
    def test_one_that_needs_approval_is_not_run_for_nobody_can_be_asked(self, context, rule):
        ran = []
        pay = tool(name="pay", requires_approval=rule)
        ctx = context(tools=[pay(lambda a: ran.append(a) or "paid")])
        result = drive_sync(prepare_call(ctx, "pay", "x", {"a": 6}))
        text = "Error: 'pay' needs approval, which nobody can be asked for within a recipe."
        assert result == ToolResult("x", text, True, "denied")
        assert (ran, ctx.run.in_flight.results, ctx.run.in_flight.running) == (
            [],
            {"x": result},
            {},
        )

    def test_one_that_a_rule_lets_pass_runs(self, context):
        pay = tool(name="pay", requires_approval=lambda arguments: arguments["a"] > 5)
        ctx = context(tools=[pay(lambda a: a)])
        assert drive_sync(prepare_call(ctx, "pay", "x", {"a": 5})).content == "5"
