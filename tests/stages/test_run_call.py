"""How one call runs: whatever its tool does, the call has a result and an end."""

import contextlib
import threading

import pytest

from treadle.effects import Call, Mode, Sleep, TimeLimitReached, drive_sync, map_effects
from treadle.events import ToolFinished, ToolRetried, ToolStarted
from treadle.limits import Limits
from treadle.messages import ToolCall, ToolResult
from treadle.model.retry import MAX_DELAY
from treadle.results import Err, Ok, Paused
from treadle.run_state import RunNode, RunNodeStatus
from treadle.stages import SubagentPausedError, prepare_call
from treadle.stages._attempts import RETRY_DELAY
from treadle.stages._recipes import run_call
from treadle.tools import Tool, ToolCallTable, ToolContext, fingerprint, tool


def call(**arguments):
    return ToolCall("c1", "t", "{}", arguments, "p")


def begun(ctx, given=None, node=None):
    """The steps of a call that was started."""
    given = given or call()
    ctx.run.in_flight.start([given])
    return run_call(ctx, given, node or RunNode(kind="tool"))


async def later():
    return "later"


def awake(steps, slept):
    """The steps without their sleeps, which are recorded."""

    def see(effect):
        return Call(slept.append, effect.seconds) if isinstance(effect, Sleep) else effect

    return map_effects(steps, see)


@pytest.fixture
def attempt(context):
    """Make one call of a tool, without sleeping."""

    def attempt(fn=None, slept=None, given=None, **options):
        ctx = context(tools=[Tool("t", fn=fn, **options)])
        return drive_sync(awake(begun(ctx, given), [] if slept is None else slept))

    return attempt


@pytest.fixture
def hanging():
    """A function that hangs until the test is over, and notes that it was called."""
    release = threading.Event()

    def hang():
        hang.calls += 1
        release.wait(30)

    hang.calls = 0
    yield hang
    release.set()


class TestResults:
    """A value becomes text; an `Err` or an exception becomes an error result."""

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
    def test_the_returned_value_is_the_result(self, attempt, value, text, is_error):
        result = attempt(lambda: value)
        assert result == ToolResult("c1", text, is_error, "done")

    def test_long_results_and_long_errors_are_truncated(self, attempt):
        assert attempt(lambda: "x\n" * 5000).content.endswith(" more bytes]")
        assert attempt(lambda: Err("x\n" * 5000)).content.endswith(" more bytes]")

    def test_an_awaitable_that_a_plain_function_returns_is_awaited(self, attempt):
        def plain():
            return later()

        assert attempt(plain).content == "later"


class TestRetries:
    """A tool that raises is retried up to `retries` times, with increasing delays."""

    @pytest.mark.parametrize("failures", [0, 1, 2])
    def test_a_tool_is_retried_until_it_succeeds(self, attempt, failures):
        tries, slept = [], []

        def flaky():
            tries.append(1)
            if len(tries) <= failures:
                raise ValueError(len(tries))
            return "ok"

        assert attempt(flaky, slept, retries=2).content == "ok"
        assert len(tries) == failures + 1
        assert slept == [RETRY_DELAY, 2 * RETRY_DELAY][:failures]

    @pytest.mark.parametrize(("retries", "tries"), [(0, 1), (2, 3)])
    def test_the_last_failure_is_the_result(self, attempt, retries, tries):
        made = []

        def broken():
            made.append(1)
            raise ValueError(len(made))

        text = f"Error: ValueError: {tries}"
        assert attempt(broken, retries=retries) == ToolResult("c1", text, True)
        assert len(made) == tries

    def test_the_delays_have_an_upper_limit(self, attempt):
        slept = []

        def broken():
            raise ValueError("no")

        attempt(broken, slept, retries=1_200)  # doubling it each time would overflow
        assert len(slept) == 1_200
        assert slept == sorted(slept)
        assert slept[-1] == max(slept) == MAX_DELAY

    def test_an_err_is_not_retried(self, attempt):
        tries = []
        attempt(lambda: tries.append(1) or Err("no"), retries=3)
        assert len(tries) == 1

    def test_each_attempt_receives_its_own_copy_of_the_arguments(self, attempt):
        seen = []

        def spoiling(items):
            seen.append(list(items))
            items.clear()
            raise ValueError

        given = call(items=[1, 2])
        attempt(spoiling, given=given, retries=1)
        assert seen == [[1, 2], [1, 2]]
        assert given.input == {"items": [1, 2]}

    def test_the_context_of_the_tool_has_the_call_and_the_attempt(self, context):
        seen = []

        @tool(retries=1)
        def t(run: ToolContext):
            seen.append(run)
            raise ValueError

        drive_sync(awake(begun(context(tools=[t], iteration=4)), []))
        assert seen == [
            ToolContext("c1", "t", 4, 1, "run-1", "bot"),
            ToolContext("c1", "t", 4, 2, "run-1", "bot"),
        ]

    def test_the_context_of_the_tool_has_the_remaining_budget(self, context):
        seen = []

        @tool
        def t(run: ToolContext):
            seen.append(run.remaining)

        ctx = context(tools=[t], limits={"max_tool_calls": 5, "max_seconds": 60})
        ctx.run.budget.started_at, ctx.run.ledger.clock = 100.0, 115.0
        ctx.run.budget.reserve("t", 2)
        ctx.run.budget.iterations += 1
        drive_sync(begun(ctx))
        (remaining,) = seen
        assert (remaining.tool_calls, remaining.seconds) == (3, 45.0)
        assert remaining.iterations == Limits().max_iterations - 1


class TestTimeLimits:
    """A tool may have a time limit, which applies to each attempt."""

    def test_it_applies_to_each_attempt_and_is_reported(self, attempt, hanging):
        result = attempt(hanging, timeout=0.3, retries=1)
        assert hanging.calls == 2
        assert result == ToolResult("c1", "Error: 't' took longer than 0.3 s.", True, "timeout")

    def test_within_it_the_result_is_returned(self, attempt):
        assert attempt(lambda: "ok", timeout=10).content == "ok"

    def test_a_time_limit_that_the_tool_itself_raises_is_an_ordinary_error(self, attempt):
        def broken():
            raise TimeLimitReached("inner")

        assert attempt(broken) == ToolResult("c1", "Error: TimeLimitReached: inner", True)


class TestToolsMadeOfSteps:
    """Their effects are performed as effects of the run; a subagent is such a tool."""

    def test_they_receive_the_context_and_the_call_and_return_the_result(self, context):
        def steps(ctx, call):
            answer = yield Call(lambda: f"{ctx.iteration} {call.id}")
            return {"answer": answer}

        ctx = context(tools=[Tool("t", steps=steps)], iteration=7)
        assert drive_sync(begun(ctx)) == ToolResult("c1", '{"answer":"7 c1"}')

    def test_they_are_preferred_to_a_function(self, attempt):
        def steps(ctx, call):
            yield from ()
            return "by steps"

        assert attempt(lambda: "by function", steps=steps).content == "by steps"

    @pytest.mark.parametrize("error", [ValueError("inside"), None])
    def test_an_exception_and_a_returned_err_are_errors(self, attempt, error):
        def steps(ctx, call):
            yield Call(lambda: None)
            if error is not None:
                raise error
            return Err("inside")

        result = attempt(steps=steps)
        assert (result.is_error, result.status) == (True, "done")
        assert result.content == ("Error: ValueError: inside" if error else "Error: inside")

    def test_new_steps_are_made_for_each_attempt(self, attempt):
        made = []

        def steps(ctx, call):
            made.append(1)
            yield Call(lambda: None)
            raise ValueError

        attempt(steps=steps, retries=2)
        assert len(made) == 3

    def test_a_time_limit_bounds_them(self, attempt, hanging):
        def steps(ctx, call):
            yield Call(hanging, mode=Mode.THREAD)

        assert attempt(steps=steps, timeout=0.02).status == "timeout"

    def test_a_paused_subagent_is_not_retried(self, context):
        paused, made = Paused(()), []

        def steps(ctx, call):
            made.append(1)
            yield Call(lambda: None)
            raise SubagentPausedError(paused)

        ctx = context(tools=[Tool("t", steps=steps, retries=3)])
        drive_sync(begun(ctx))
        assert ctx.run.in_flight.paused == {"c1": paused}
        assert len(made) == 1


class TestTheEffect:
    """Running a tool is one effect, with a label for middleware; its outcome has the times."""

    @pytest.fixture
    def effect(self, context):
        def effect(fn=None, *, resolve_tool=None, **options):
            ctx = context(tools=[Tool("t", fn=fn, **options)], resolve_tool=resolve_tool)
            made = next(begun(ctx))
            return next(made.steps) if options.get("timeout") else made

        return effect

    @pytest.mark.parametrize(
        ("fn", "options", "mode"),
        [
            (lambda: None, {}, Mode.THREAD),
            (lambda: None, {"timeout": 5}, Mode.THREAD),
            (later, {}, Mode.ASYNC),
            (later, {"timeout": 5}, Mode.ASYNC),
        ],
    )
    def test_a_function_runs_in_a_thread_and_a_coroutine_on_the_event_loop(
        self, effect, fn, options, mode
    ):
        assert effect(fn, **options).mode is mode

    def test_a_resolver_is_called_in_the_mode_of_its_function(self, effect):
        async def resolve(call):
            return call.name

        assert effect(resolve_tool=resolve).mode is Mode.ASYNC
        assert effect(resolve_tool=lambda call: call.name).mode is Mode.THREAD

    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize("tools", [[{"name": "t"}], []], ids=["no function", "no tool"])
    def test_a_resolver_runs_calls_without_a_function(self, context, tools, is_async):
        def resolve(call):
            return Err(f"{call.id} {call.name} {call.input}")

        async def resolve_later(call):
            return resolve(call)

        ctx = context(tools=tools, resolve_tool=resolve_later if is_async else resolve)
        result = drive_sync(begun(ctx, call(n=1)))
        assert (result.content, result.is_error) == ("Error: c1 t {'n': 1}", True)

    def test_a_resolver_receives_a_copy_of_the_arguments(self, context):
        def resolve(call):
            call.input["items"].append(3)
            return call.input

        given = call(items=[1, 2])
        ctx = context(resolve_tool=resolve)
        assert drive_sync(begun(ctx, given)).content == '{"items":[1,2,3]}'
        assert given.input == {"items": [1, 2]}


class TestEnd:
    """A call that was started ends in the run state and in events."""

    def run(self, context, fn, has_listeners=True, **options):
        ctx = context(tools=[Tool("t", fn=fn, **options)], has_listeners=has_listeners, iteration=3)
        node, events = RunNode(kind="tool"), []
        result = drive_sync(begun(ctx, node=node), events.append)
        return ctx, node, events, result

    def test_success(self, context):
        ctx, node, events, result = self.run(context, lambda: "ok")
        assert node.status is RunNodeStatus.SUCCESS
        assert ctx.run.in_flight.results == {"c1": result}
        started, finished = events
        assert started == ToolStarted(iteration=3, call=call(), at=0)
        assert finished == ToolFinished(iteration=3, call=call(), result=result, at=0, duration=0)
        assert finished.duration == finished.at - started.at
        assert started.at <= node.started_at <= node.ended_at == finished.at

    @pytest.mark.parametrize(
        ("options", "status", "error"),
        [
            ({}, RunNodeStatus.FAILED, "Error: ZeroDivisionError: division by zero"),
            ({"timeout": 0.02}, RunNodeStatus.TIMEOUT, None),
        ],
    )
    def test_failure(self, context, hanging, options, status, error):
        fn = hanging if options else lambda: 1 / 0
        _, node, events, result = self.run(context, fn, **options)
        assert (node.status, node.error) == (status, error)
        assert events[1].result is result
        assert result.status == ("timeout" if options else "done")
        assert result.is_error

    def test_without_listeners_no_event_is_emitted(self, context):
        assert self.run(context, lambda: "ok", has_listeners=False)[2] == []

    def test_every_failed_attempt_emits_an_event(self, context):
        ctx = context(tools=[Tool("t", fn=lambda: 1 / 0, retries=1)], has_listeners=True)
        events = []
        drive_sync(awake(begun(ctx), []), events.append)
        assert [type(event) for event in events] == [ToolStarted, ToolRetried, ToolFinished]
        retried = events[1]
        assert (retried.attempt, retried.error_type) == (1, "ZeroDivisionError")
        assert retried.delay == RETRY_DELAY

    @pytest.mark.parametrize("end", [None, KeyboardInterrupt])
    def test_a_call_that_was_cancelled_meanwhile_ends_as_cancelled(self, context, end):
        """A late result is stale and is dropped; an interrupt is raised."""

        def cancelled():
            ctx.run.in_flight.cancel_all()
            if end is not None:
                raise end
            return "late"

        ctx = context(
            tools=[Tool("t", fn=cancelled)],
            has_listeners=True,
            in_flight=ToolCallTable(can_cancel=True),
        )
        node, events = RunNode(), []
        with pytest.raises(end) if end else contextlib.nullcontext():
            drive_sync(begun(ctx, node=node), events.append)
        assert events[1].result.status == "cancelled"
        assert ctx.run.in_flight.results["c1"].status == "cancelled"
        assert ctx.run.in_flight.running == {}
        assert (node.status, node.error) == (
            RunNodeStatus.FAILED,
            "Cancelled: the call was stopped before it was done.",
        )

    @pytest.mark.parametrize("returned", [ToolResult("c1", "it returned"), None])
    def test_an_interrupt_keeps_a_result_that_the_call_returned(self, context, returned):
        """It may have returned while the cancellation was in progress."""

        def interrupted(ctx, call):
            yield Call(lambda: None)
            if returned is not None:
                ctx.run.in_flight.completed["c1"] = returned
            raise KeyboardInterrupt

        ctx = context(tools=[Tool("t", steps=interrupted)], has_listeners=True)
        in_flight, node, events = ctx.run.in_flight, RunNode(), []
        with pytest.raises(KeyboardInterrupt):
            drive_sync(begun(ctx, node=node), events.append)
        assert in_flight.calls_run == 1
        if returned is None:
            assert (in_flight.results, list(in_flight.running)) == ({}, ["c1"])
            assert (node.status, node.error) == (RunNodeStatus.FAILED, "cancelled")
            assert [type(event) for event in events] == [ToolStarted]
        else:
            assert (in_flight.results, in_flight.running) == ({"c1": returned}, {})
            assert node.status is RunNodeStatus.SUCCESS
            assert events[1].result == returned

    def test_a_late_attempt_does_not_replace_the_last_one(self, context, hanging):
        """The first attempt times out and returns while the second runs, which reaches its limit too."""
        is_second, tries = threading.Event(), []

        def slow():
            tries.append(1)
            if len(tries) == 1:
                is_second.wait(30)
                return "late"
            return hanging()

        ctx = context(
            tools=[Tool("t", fn=slow, timeout=0.3, retries=1)],
            in_flight=ToolCallTable(can_cancel=True),
            has_listeners=True,
        )
        node, events = RunNode(), []

        def second(effect):
            return Call(is_second.set) if isinstance(effect, Sleep) else effect

        drive_sync(map_effects(begun(ctx, node=node), second), events.append)
        assert node.status is RunNodeStatus.TIMEOUT
        assert ctx.run.in_flight.results["c1"].status == events[-1].result.status == "timeout"
        assert (events[1].attempt, events[1].error_type) == (1, "timeout")


@pytest.mark.parametrize("fn", [lambda: "ok", lambda: 1 / 0, lambda: Err("no")])
def test_a_call_that_ran_counts_once_whatever_its_result(context, fn):
    ctx = context(tools=[Tool("t", fn=fn, retries=1)])
    drive_sync(awake(begun(ctx), []))
    assert ctx.run.in_flight.calls_run == 1


class TestPrepareCall:
    """A call made by code, not by the model, is checked like any other."""

    def test_it_is_checked_and_run(self, context):
        ctx = context(tools=[tool(name="add")(lambda a, b: a + b)])
        steps = prepare_call(ctx, "add", "x", {"a": 1, "b": 2})
        assert drive_sync(steps) == ToolResult("x", "3")
        assert ctx.run.repeats.counts[fingerprint("add", {"a": 1, "b": 2})] == 1

    @pytest.mark.parametrize(
        ("name", "arguments", "text"),
        [
            ("nope", {}, "there is no tool named 'nope'"),
            ("add", "{", "not valid JSON"),
            ("add", {"a": 1}, "missing required field 'b'"),
            ("add", [1, 2], "expected a JSON object, got array"),
        ],
    )
    def test_an_invalid_call_has_a_result_with_the_problem(self, context, name, arguments, text):
        ctx = context(tools=[tool(name="add")(lambda a, b: a + b)])
        result = drive_sync(prepare_call(ctx, name, "x", arguments))
        assert (result.is_error, result.status) == (True, "invalid")
        assert text in result.content
        assert ctx.run.in_flight.results["x"] == result
        assert ctx.run.in_flight.calls_run == 0
