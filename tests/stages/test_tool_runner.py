"""The table of calls in flight, and how one call is run."""

import contextlib
import threading

import pytest

from treadle.pipeline import Call, Signal, Sleep, TimeLimitReached, drive_sync, layered
from treadle.stages import ToolRunner, fingerprint
from treadle.stages.calling import RETRY_DELAY, attempts
from treadle.types import (
    Err,
    Ok,
    Response,
    RunNode,
    RunNodeStatus,
    Tool,
    ToolCall,
    ToolContext,
    ToolFinished,
    ToolResult,
    ToolStarted,
    tool,
)


def call(call_id="c1", name="t", print_="p", **arguments):
    return ToolCall(call_id, name, "{}", arguments, print_)


@pytest.fixture
def attempt(context):
    """Run one call of a function by what `attempts` does, without sleeping."""

    def attempt(fn, slept=None, **options):
        ctx = context(tools=[Tool("t", fn=fn, **options)])
        return drive_sync(awake(attempts(ctx, call()), [] if slept is None else slept))

    return attempt


def awake(steps, slept):
    """The steps without their sleep, which is noted."""

    def see(effect):
        return Call(slept.append, effect.seconds) if isinstance(effect, Sleep) else effect

    return layered(steps, see)


class TestTheTable:
    """Which calls run, which are done, how often each was made."""

    def test_a_call_is_running_until_it_has_its_result(self):
        runner = ToolRunner()
        runner.start([call("a"), call("b")])
        assert list(runner.running) == ["a", "b"]
        assert runner.mark_done("a", ToolResult("a", "1")) is True
        assert (list(runner.running), list(runner.results), runner.done) == (["b"], ["a"], False)
        runner.mark_done("b", ToolResult("b", "2"))
        assert runner.done

    def test_a_table_of_nothing_is_not_done(self):
        assert ToolRunner().done is False

    def test_a_result_of_a_call_that_does_not_run_is_stale_and_dropped(self):
        runner = ToolRunner()
        runner.start([call("a")])
        runner.mark_done("a", ToolResult("a", "first"))
        assert runner.mark_done("a", ToolResult("a", "second")) is False
        assert runner.mark_done("ghost", ToolResult("ghost", "x")) is False
        assert runner.results == {"a": ToolResult("a", "first")}

    def test_the_counts_outlive_the_batch_but_not_the_turn(self):
        runner = ToolRunner()
        runner.start([call("a"), call("b"), call("c", print_="q")])
        runner.next_batch()
        assert (runner.running, runner.results, dict(runner.counts)) == ({}, {}, {"p": 2, "q": 1})
        runner.new_turn()
        assert not runner.counts

    def test_cancelling_all_answers_every_running_call_and_tells_which(self):
        runner = ToolRunner(can_cancel=True)
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
        runner = ToolRunner(can_cancel=True)
        runner.cancel_all()
        runner.next_batch()
        assert isinstance(runner.stop, Signal)
        assert not runner.stop.is_set

    def test_without_a_handle_there_is_no_signal(self):
        runner = ToolRunner()
        runner.start([call("a")])
        runner.cancel_all()
        assert runner.stop is None


class TestAttempts:
    """Whatever a tool returns or raises, a result comes of it."""

    @pytest.mark.parametrize(
        ("value", "text", "is_error"),
        [
            ("Hi", "Hi", False),
            ({"a": 1}, '{"a":1}', False),
            (None, "(no output)", False),
            (Ok({"a": 1}), '{"a":1}', False),
            (Ok(None), "(no output)", False),
            (Err("not there"), "Error: not there", True),
            (Err({"code": 5}), 'Error: {"code":5}', True),
        ],
    )
    def test_what_it_returns(self, attempt, value, text, is_error):
        result = attempt(lambda: value)
        assert (result.content, result.is_error, result.status) == (text, is_error, "done")

    def test_what_it_raises(self, attempt):
        def broken():
            raise ValueError("no such city")

        result = attempt(broken)
        assert result == ToolResult("c1", "Error: ValueError: no such city", True)

    def test_a_time_limit_of_the_tools_own_making_is_an_error_like_others(self, attempt):
        def broken():
            raise TimeLimitReached("inner")

        assert attempt(broken).content == "Error: TimeLimitReached: inner"

    def test_too_long_a_result_is_cut(self, attempt):
        assert attempt(lambda: "x\n" * 5000).content.endswith(" more bytes]")

    def test_an_err_is_no_reason_to_try_again(self, attempt):
        tries = []
        attempt(lambda: tries.append(1) or Err("no"), retries=3)
        assert len(tries) == 1

    @pytest.mark.parametrize("failures", [0, 1, 2])
    def test_it_is_tried_again_as_often_as_the_tool_allows(self, attempt, failures):
        tries, slept = [], []

        def flaky():
            tries.append(1)
            if len(tries) <= failures:
                raise ValueError(len(tries))
            return "ok"

        assert attempt(flaky, slept, retries=2).content == "ok"
        assert len(tries) == failures + 1
        assert slept == [RETRY_DELAY, 2 * RETRY_DELAY][:failures]

    def test_the_last_failure_is_the_result(self, attempt):
        tries = []

        def broken():
            tries.append(1)
            raise ValueError(len(tries))

        assert attempt(broken, retries=2).content == "Error: ValueError: 3"

    def test_without_retries_it_is_tried_once(self, attempt):
        tries = []

        def broken():
            tries.append(1)
            raise ValueError

        attempt(broken)
        assert len(tries) == 1

    def test_a_time_limit_bounds_each_try_and_is_told(self, attempt):
        release, tries = threading.Event(), []

        def hang():
            tries.append(1)
            release.wait(10)

        try:
            result = attempt(hang, timeout=0.02, retries=1)
        finally:
            release.set()
        assert len(tries) == 2
        assert result == ToolResult("c1", "Error: 't' took longer than 0.02 s.", True, "timeout")

    def test_the_tool_knows_which_try_of_which_call_it_is(self, context):
        seen = []

        @tool(retries=1)
        def t(run: ToolContext):
            seen.append(run)
            raise ValueError

        ctx = context(tools=[t], iteration=4)
        drive_sync(awake(attempts(ctx, call()), []))
        assert seen == [
            ToolContext("c1", "t", 4, 1, "run-1", "bot"),
            ToolContext("c1", "t", 4, 2, "run-1", "bot"),
        ]

    def test_the_call_is_labelled_for_layers(self, context):
        ctx = context(tools=[Tool("t", fn=lambda: None)])
        effect = next(attempts(ctx, call()))
        assert isinstance(effect, Call)
        assert (effect.label, effect.key) == ("execute_tool", "c1")


class TestRun:
    """A call that was started comes to its end in the record and before those who watch."""

    def run(self, context, fn, watched=True, **more):
        ctx = context(tools=[Tool("t", fn=fn)], watched=watched, iteration=3)
        node, told = RunNode(kind="tool"), []
        ctx.runner.start([call()])
        result = drive_sync(ctx.runner.run(ctx, call(), node, attempts(ctx, call())), told.append)
        return ctx, node, told, result

    def test_success(self, context):
        ctx, node, told, result = self.run(context, lambda: "ok")
        assert node.status is RunNodeStatus.SUCCESS
        assert ctx.runner.results == {"c1": result}
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
        assert self.run(context, lambda: "ok", watched=False)[2] == []

    @pytest.mark.parametrize("end", [None, KeyboardInterrupt])
    def test_a_call_that_was_cancelled_meanwhile_is_told_as_cancelled(self, context, end):
        """What it brings after all is stale and is dropped; an interruption goes on its way."""

        def cancelled():
            ctx.runner.cancel_all()
            if end is not None:
                raise end
            return "late"

        ctx = context(tools=[Tool("t", fn=cancelled)], watched=True)
        ctx = ctx.replace(runner=ToolRunner(can_cancel=True))
        node, told = RunNode(), []
        ctx.runner.start([call()])
        steps = ctx.runner.run(ctx, call(), node, attempts(ctx, call()))
        with pytest.raises(end) if end else contextlib.nullcontext():
            drive_sync(steps, told.append)
        assert told[1].result.status == "cancelled"
        assert ctx.runner.results["c1"].status == "cancelled"
        assert ctx.runner.running == {}
        assert node.duration == told[1].duration
        if end is not None:
            assert (node.status, node.error) == (RunNodeStatus.FAILED, "cancelled")


class TestPrepareCall:
    """A call made by code, not by the model, is checked like any other."""

    def test_it_is_checked_and_run(self, context):
        ctx = context(tools=[tool(name="add")(lambda a, b: a + b)])
        steps = ctx.runner.prepare_call(ctx, "add", "x", {"a": 1, "b": 2})
        assert drive_sync(steps) == ToolResult("x", "3")
        assert ctx.runner.counts[fingerprint("add", {"a": 1, "b": 2})] == 1

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
        result = drive_sync(ctx.runner.prepare_call(ctx, name, "x", arguments))
        assert (result.is_error, result.status) == (True, "invalid")
        assert text in result.content
        assert ctx.runner.results["x"] == result

    def test_without_a_node_or_a_function_the_resolver_runs_it(self, context):
        ctx = context(tools=[{"name": "t"}], resolve_tool=lambda call: Response(call.name).content)
        assert drive_sync(ctx.runner.prepare_call(ctx, "t", "x", {})).content == "t"
