"""How one call is made: whatever a tool is made of and whatever it does, a result comes of it."""

import threading

import pytest

from treadle.effects import Call, Mode, Sleep, TimeLimitReached, drive_sync, map_effects
from treadle.limits import Limits
from treadle.messages import ToolCall, ToolResult
from treadle.results import Err, Ok, Paused
from treadle.stages import RETRY_DELAY, SubagentPausedError, at_once, attempts
from treadle.tools import InFlight, Tool, ToolContext, tool


def call(**arguments):
    return ToolCall("c1", "t", "{}", arguments, "p")


async def later():
    return "later"


def awake(steps, slept):
    """The steps without their sleep, which is noted."""

    def see(effect):
        return Call(slept.append, effect.seconds) if isinstance(effect, Sleep) else effect

    return map_effects(steps, see)


@pytest.fixture
def attempt(context):
    """Make one call of a tool, without sleeping."""

    def attempt(fn=None, slept=None, given=None, **options):
        ctx = context(tools=[Tool("t", fn=fn, **options)])
        steps = attempts(ctx, given or call())
        return drive_sync(awake(steps, [] if slept is None else slept))

    return attempt


@pytest.fixture
def hanging():
    """A function that hangs until the test is over, and notes that it was called."""
    release = threading.Event()

    def hang():
        hang.calls += 1
        release.wait(10)

    hang.calls = 0
    yield hang
    release.set()


class TestWhatItBrings:
    """A value becomes text, an `Err` or an exception an error that the model is told of."""

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
        assert result == ToolResult("c1", text, is_error, "done")

    def test_what_it_raises(self, attempt):
        def broken():
            raise ValueError("no such city")

        assert attempt(broken) == ToolResult("c1", "Error: ValueError: no such city", True)

    def test_too_long_a_result_is_cut_and_too_long_an_error_too(self, attempt):
        assert attempt(lambda: "x\n" * 5000).content.endswith(" more bytes]")
        assert attempt(lambda: Err("x\n" * 5000)).content.endswith(" more bytes]")

    def test_what_a_plain_function_leaves_to_be_awaited_is_awaited(self, attempt):
        def plain():
            return later()

        assert attempt(plain).content == "later"

    def test_it_is_given_the_arguments_of_the_call(self, attempt):
        assert attempt(lambda a, b: a - b, given=call(b=1, a=3)).content == "2"


class TestTries:
    """A tool that raises is tried again as often as it allows, after ever longer waits."""

    @pytest.mark.parametrize("failures", [0, 1, 2])
    def test_as_often_as_it_allows(self, attempt, failures):
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

        assert attempt(broken, retries=retries).content == f"Error: ValueError: {tries}"
        assert len(made) == tries

    def test_an_err_is_no_reason_to_try_again(self, attempt):
        tries = []
        attempt(lambda: tries.append(1) or Err("no"), retries=3)
        assert len(tries) == 1

    def test_what_a_try_does_to_its_arguments_the_next_does_not_see(self, attempt):
        seen = []

        def spoiling(items):
            seen.append(list(items))
            items.clear()
            raise ValueError

        given = call(items=[1, 2])
        attempt(spoiling, given=given, retries=1)
        assert seen == [[1, 2], [1, 2]]
        assert given.input == {"items": [1, 2]}

    def test_the_tool_knows_which_try_of_which_call_it_is(self, context):
        seen = []

        @tool(retries=1)
        def t(run: ToolContext):
            seen.append(run)
            raise ValueError

        drive_sync(awake(attempts(context(tools=[t], iteration=4), call()), []))
        assert seen == [
            ToolContext("c1", "t", 4, 1, "run-1", "bot"),
            ToolContext("c1", "t", 4, 2, "run-1", "bot"),
        ]

    def test_the_tool_knows_what_is_left_of_the_budgets(self, context):
        seen = []

        @tool
        def t(run: ToolContext):
            seen.append(run.remaining)

        ctx = context(tools=[t], limits={"max_tool_calls": 5, "max_seconds": 60}, iteration=2)
        ctx.run.budget.started_at, ctx.run.clock = 100.0, 115.0
        ctx.run.budget.reserve_calls(2)
        drive_sync(attempts(ctx, call()))
        (remaining,) = seen
        assert (remaining.tool_calls, remaining.seconds) == (3, 45.0)
        assert remaining.iterations == Limits().max_iterations - 2


class TestTimeLimits:
    """A tool may have a time limit of its own; it bounds each try."""

    def test_it_bounds_each_try_and_is_told(self, attempt, hanging):
        result = attempt(hanging, timeout=0.02, retries=1)
        assert hanging.calls == 2
        assert result == ToolResult("c1", "Error: 't' took longer than 0.02 s.", True, "timeout")

    def test_within_it_nothing_is_different(self, attempt):
        assert attempt(lambda: "ok", timeout=10).content == "ok"

    def test_one_of_the_tools_own_making_is_an_error_like_others(self, attempt):
        def broken():
            raise TimeLimitReached("inner")

        assert attempt(broken) == ToolResult("c1", "Error: TimeLimitReached: inner", True)


class TestToolsMadeOfSteps:
    """Their effects are performed in the midst of the run's; a loop is a tool by this."""

    def test_they_see_the_context_and_the_call_and_what_they_return_is_the_result(self, context):
        def steps(ctx, call):
            told = yield Call(lambda: f"{ctx.iteration} {call.id}")
            return {"told": told}

        ctx = context(tools=[Tool("t", steps=steps)], iteration=7)
        assert drive_sync(attempts(ctx, call())) == ToolResult("c1", '{"told":"7 c1"}')

    def test_they_are_preferred_to_a_function(self, attempt):
        def steps(ctx, call):
            yield from ()
            return "by steps"

        assert attempt(lambda: "by function", steps=steps).content == "by steps"

    @pytest.mark.parametrize("error", [ValueError("inside"), None])
    def test_what_they_raise_or_return_as_an_err_is_an_error(self, attempt, error):
        def steps(ctx, call):
            yield Call(lambda: None)
            if error is not None:
                raise error
            return Err("inside")

        result = attempt(steps=steps)
        assert (result.is_error, result.status) == (True, "done")
        assert result.content == ("Error: ValueError: inside" if error else "Error: inside")

    def test_they_are_made_anew_for_each_try(self, attempt):
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

    def test_one_that_waits_for_a_person_is_not_tried_again(self, attempt):
        paused, made = Paused(()), []

        def steps(ctx, call):
            made.append(1)
            yield Call(lambda: None)
            raise SubagentPausedError(paused)

        with pytest.raises(SubagentPausedError) as waiting:
            attempt(steps=steps, retries=3)
        assert waiting.value.paused is paused
        assert len(made) == 1


class TestTheEffect:
    """The call is an effect, with a label for middleware, made in a way that holds nobody up."""

    @pytest.fixture
    def effect(self, context):
        def effect(fn=None, *, is_bounded=False, resolve_tool=None, **options):
            runner = InFlight(is_bounded=is_bounded)
            given = Tool("t", fn=fn, **options)
            ctx = context(tools=[given], resolve_tool=resolve_tool, runner=runner)
            made = next(attempts(ctx, call()))
            return next(made.steps) if options.get("timeout") else made

        return effect

    def test_it_is_labelled(self, effect):
        made = effect(lambda: None)
        assert (type(made), made.label, made.key) == (Call, "execute_tool", "c1")

    @pytest.mark.parametrize(
        ("fn", "options", "mode"),
        [
            (lambda: None, {}, Mode.THREAD),
            (lambda: None, {"is_bounded": True}, Mode.THREAD),
            (later, {}, Mode.ASYNC),
            (later, {"is_bounded": True}, Mode.DETACHED),
            (later, {"timeout": 5}, Mode.DETACHED),
        ],
    )
    def test_whoever_has_set_a_bound_does_not_wait_for_what_ignores_it(
        self, effect, fn, options, mode
    ):
        assert effect(fn, **options).mode is mode

    @pytest.mark.parametrize(("is_bounded", "mode"), [(False, Mode.ASYNC), (True, Mode.DETACHED)])
    def test_a_resolver_is_called_likewise(self, effect, is_bounded, mode):
        async def resolve(call):
            return call.name

        assert effect(resolve_tool=resolve, is_bounded=is_bounded).mode is mode

    def test_a_resolver_runs_what_has_no_function(self, context):
        ctx = context(tools=[{"name": "t"}], resolve_tool=lambda call: f"resolved {call.name}")
        assert drive_sync(attempts(ctx, call())).content == "resolved t"

    def test_a_resolver_runs_names_that_are_no_tools(self, context):
        ctx = context(resolve_tool=lambda call: f"resolved {call.name}")
        assert drive_sync(attempts(ctx, call())).content == "resolved t"

    def test_what_a_resolver_does_to_the_arguments_stays_with_it(self, context):
        def resolve(call):
            call.input["items"].append(3)
            return call.input

        given = call(items=[1, 2])
        ctx = context(resolve_tool=resolve)
        assert drive_sync(attempts(ctx, given)).content == '{"items":[1,2,3]}'
        assert given.input == {"items": [1, 2]}

    @pytest.mark.parametrize("fn", [lambda: "ok", later])
    def test_what_it_brings_is_noted_where_it_comes(self, context, fn):
        """Whoever is cancelled while he waits for it can still see that it came."""
        ctx = context(tools=[Tool("t", fn=fn)])
        result = drive_sync(attempts(ctx, call()))
        assert ctx.run.in_flight.completed == {"c1": result}

    def test_what_it_raises_is_not(self, context):
        ctx = context(tools=[Tool("t", fn=lambda: 1 / 0)])
        drive_sync(attempts(ctx, call()))
        assert ctx.run.in_flight.completed == {}


def test_a_result_that_is_there_takes_no_effect():
    result = ToolResult("c1", "there")
    assert list(at_once(result)) == []
    assert drive_sync(at_once(result)) is result
