"""Custom stages in a loop: each kind is checked, none edits in place, and no call that ran is lost."""

import asyncio
import dataclasses
import functools
import inspect
import time

import pytest
from tests.time_limit import TimeLimit

from treadle import (
    CircuitBreaker,
    DeadlineExceeded,
    Err,
    LLMError,
    Loop,
    MaxIterationsReached,
    Ok,
    Paused,
    PipelineFailed,
    RunHandle,
    approve,
    stages,
    tool,
)
from treadle.effects import Bounded, Signal, Sleep, Stopped
from treadle.messages import Response, ToolCall, ToolResult
from treadle.pipeline import Pipeline, embed, goto, goto_point, stage, switch
from treadle.stages import (
    ask_model,
    default_stages,
    dispatch_tools,
    inject_results,
    parse_tool_calls,
    plan_calls,
    run_calls,
    validate_calls,
)
from treadle.testing import ScriptedLLM, call, calls, check_history
from treadle.tools import NotRun

from .edited_runs import (
    ONE,
    USER,
    EditedRun,
    answer_to,
    at,
    first_only,
    performed,
    refused_by,
    repairs,
    through,
)

A, B = calls(call("note", "a", n=1)), calls(call("note", "b", n=2))
ASKED_TWICE = (A, B, "Done.")
TWO = (calls(call("note", "a", n=1), call("note", "b", n=2)), "Done.")
TO_PLAN = (ask_model, parse_tool_calls, validate_calls, plan_calls)
TO_RESULTS = (*TO_PLAN, dispatch_tools)


def in_first(steps):
    """A stage that performs steps in the first iteration only."""

    def first(ctx):
        return (yield from performed(steps(ctx))) if ctx.iteration == 1 else ctx

    return first


def plain(ctx, *, wrong=None):
    return ctx.evolve(run=wrong)


def steps(ctx, *, wrong=None):
    yield Sleep(0)
    return plain(ctx, wrong=wrong)


async def later(ctx, *, wrong=None):
    return plain(ctx, wrong=wrong)


def awaitable(ctx, *, wrong=None):
    return later(ctx, wrong=wrong)


class Callable:
    __hash__ = None

    def __call__(self, ctx, *, wrong=None):
        return plain(ctx, wrong=wrong)


KINDS = [plain, steps, later, awaitable, Callable(), functools.partial(steps)]


def run_of(component):
    return Loop.run_sync("Hi", lambda m: "Hello", stages=[*default_stages()[:2], component])


@pytest.mark.parametrize("fn", KINDS)
@pytest.mark.parametrize(
    ("place", "name"),
    [
        (lambda made: made, "custom"),
        (lambda made: switch(lambda _: True, {True: made}), "custom"),
        (lambda made: embed(Pipeline(made), "inner"), "inner.custom"),
    ],
)
def test_each_kind_of_stage_is_checked_wherever_it_stands(fn, place, name):
    reason = run_of(place(stage(fn, "custom"))).reason
    assert isinstance(reason, PipelineFailed)
    assert (reason.stage, reason.error_type) == (name, "TypeError")
    assert reason.message == "run may not be changed"


async def nothing_later(ctx):
    pass


def nothing_awaitable(ctx):
    return nothing_later(ctx)


@pytest.mark.parametrize("fn", [lambda ctx: None, nothing_later, nothing_awaitable])
def test_a_stage_without_a_return_is_named(fn):
    reason = run_of(stage(fn, "custom")).reason
    assert (reason.stage, reason.error_type) == ("custom", "TypeError")
    assert reason.message == "it returned NoneType, expected Context; is a return missing?"


def test_a_stage_that_returns_a_generator_is_told_how_to_run_it():
    def asks(ctx):
        return ask_model(ctx)

    reason = run_of(stage(asks, "custom")).reason
    assert reason.stage == "custom"
    assert reason.message == (
        "it returned generator, expected Context; a generator runs with: return (yield from ...)"
    )


def test_a_custom_stage_in_the_pipeline_of_a_loop_is_described_as_it_was():
    made = stage(later, requires="response", provides="output", wrong=1)
    *_, checked = Loop(stages=[*default_stages(), made]).pipeline.components
    for name in ("name", "requires", "provides", "options"):
        assert getattr(checked, name) == getattr(made, name)
    assert inspect.signature(checked.fn) == inspect.signature(later)
    assert inspect.iscoroutinefunction(checked.fn)


def test_the_stages_of_a_loop_are_those_of_another_one():
    def shout(ctx):
        return ctx.with_response(ctx.response.text.upper())

    first, *rest = default_stages()
    loop = Loop(stages=[first, shout, *rest])
    again = Loop(stages=loop.pipeline.without("circuit_breaker"))
    assert again.pipeline.components[1].fn is loop.pipeline.components[1].fn
    assert again.pipeline.components[0].fn is stages.ask_model.fn
    assert again.run_sync("Hi", lambda m: "Hello").output == "HELLO"


# Edits in place


def spoil_call(ctx):
    ctx.tool_calls[0].input["n"] = 100


IN_PLACE = {
    "memo": lambda ctx: ctx.memo.setdefault("user", "ann"),
    "tools": lambda ctx: ctx.tools.pop("note"),
    "tool_results": lambda ctx: ctx.tool_results.update(b=ToolResult("b", "other")),
    "validation_errors": lambda ctx: ctx.validation_errors.clear(),
    "approvals": lambda ctx: ctx.approvals.setdefault("a", approve),
    "request": lambda ctx: ctx.request.options.update(temperature=0),
    "request_changes": lambda ctx: ctx.request_changes.update(n=1),
    "plan": lambda ctx: ctx.plan.not_run.update(a=NotRun.DEFERRED),
    "response": lambda ctx: ctx.response.extra.update(reasoning="none"),
    "input": spoil_call,
    "result_messages": lambda ctx: ctx.result_messages[0].update(content="[gone]"),
}
FROM = {"input": 3, "result_messages": 7}
"""The first position at which there is something to edit."""


@pytest.mark.parametrize("form", ["plain", "generator", "async"])
@pytest.mark.parametrize("field", IN_PLACE)
def test_an_edit_in_place_is_refused_and_reaches_no_other_run(field, form):
    def spoil(ctx):
        IN_PLACE[field](ctx)
        return ctx

    def spoil_in_steps(ctx):
        yield Sleep(0)
        return spoil(ctx)

    async def spoil_later(ctx):
        return spoil(ctx)

    edit = {"plain": spoil, "generator": spoil_in_steps, "async": spoil_later}[form]
    for position in range(FROM.get(field, 0), len(default_stages()) + 1):
        run = EditedRun(ONE)
        result = run.run(at(position, edit))
        assert refused_by(result) == "edit"
        assert "read-only" in result.reason.message
        assert run.ran == ([1] if position > 5 else [])
    later = EditedRun(ONE)
    assert later.run(at(0, lambda ctx: ctx)).unwrap().content == "Done."


def test_tools_of_a_loop_cannot_be_edited():
    loop = Loop(tools=[EditedRun(ONE).note])
    with pytest.raises(TypeError, match="read-only"):
        loop.tools.pop("note")


# Stages that run calls


def in_place_of_dispatch(steps):
    """The default list with a stage called ``edit`` in place of `dispatch_tools`."""
    edit = stage(steps, name="edit", replaces=dispatch_tools)
    return [edit if one.name == "dispatch_tools" else one for one in default_stages()]


def again(ctx):
    for _ in range(3):
        made = yield from dispatch_tools.fn(ctx)
    return made


def in_parts(ctx):
    for one in ctx.tool_calls:
        ctx = yield from run_calls(ctx, [one])
    return ctx


def forgetting(ctx):
    yield from dispatch_tools.fn(ctx)
    return ctx


@pytest.mark.parametrize("steps", [again, in_parts, forgetting])
def test_a_dispatcher_runs_each_call_once_and_its_results_are_kept(steps):
    run = EditedRun(TWO)
    result = run.run(in_place_of_dispatch(steps))
    assert sorted(run.ran) == [1, 2]
    assert [answer_to(result, one) for one in "ab"] == ["noted 1", "noted 2"]


def one_by_one(ctx):
    """Run the planned calls without `run_calls`, and report each result."""
    for one in ctx.plan.calls:
        ctx = ctx.answer(one, ctx.tools[one.name].fn(**one.input))
    return ctx


async def all_at_once(ctx):
    made = {
        one.id: ToolResult(one.id, ctx.tools[one.name].fn(**one.input)) for one in ctx.plan.calls
    }
    return ctx.replace(tool_results={**ctx.tool_results, **made})


@pytest.mark.parametrize("dispatcher", [one_by_one, all_at_once])
class TestDispatcherThatRunsCallsItself:
    """Its results are those of the turn: the guards against repetition know them."""

    def run(self, dispatcher, *script):
        ran = []

        @tool
        def note(n: int):
            ran.append(n)
            return f"noted {n}"

        stages = in_place_of_dispatch(dispatcher)
        return ran, Loop.run_sync("Go.", ScriptedLLM(*script), tools=[note], stages=stages)

    def test_a_call_that_returned_the_same_twice_is_skipped(self, dispatcher):
        same = [calls(call("note", one, n=1), call("note", one * 2, n=2)) for one in "abc"]
        ran, result = self.run(dispatcher, *same, "Done.")
        assert ran == [1, 2, 1, 2]
        for n, one in enumerate(["c", "cc"], 1):
            assert answer_to(result, one).startswith("Not run again: ")
            assert f"Its result was:\nnoted {n}\n" in answer_to(result, one)

    def test_a_duplicate_in_a_response_has_the_result_of_the_first(self, dispatcher):
        twins = calls(*(call("note", one, n=1) for one in "ab"))
        ran, result = self.run(dispatcher, twins, "Done.")
        assert ran == [1]
        assert answer_to(result, "b").startswith("Not run twice: ")
        assert answer_to(result, "b").endswith("\nnoted 1")

    def test_an_endless_loop_ends_the_run(self, dispatcher):
        ran, result = self.run(dispatcher, *[A] * 9)
        assert (result.stop_reason, result.iterations, ran) == ("loop_detected", 4, [1, 1])


@pytest.mark.parametrize("position", [2, 4, 5])
def test_a_call_that_needs_approval_waits_although_a_stage_runs_it(position):
    run = EditedRun((calls(call("wipe", "w", n=1)), "Done."))
    result = run.run(at(position, in_first(lambda ctx: run_calls(ctx, ctx.tool_calls))))
    assert isinstance(result, Paused)
    assert run.ran == []


@pytest.mark.parametrize("limit", ["max_tool_calls", "max_uses"])
def test_calls_that_a_stage_runs_count_against_the_budget(limit):
    run = EditedRun(TWO)
    options = {"max_tool_calls": 1} if limit == "max_tool_calls" else {}
    if limit == "max_uses":
        run.tools = [dataclasses.replace(one, max_uses=1) for one in run.tools]
    result = run.run(at(4, in_first(lambda ctx: run_calls(ctx, ctx.tool_calls))), **options)
    assert run.ran == [1]
    text = "the budget of 1 tool calls" if limit == "max_tool_calls" else "maximum number of uses"
    assert text in answer_to(result, "b")


@pytest.mark.parametrize("how", ["run before validate_calls", "without validate_calls"])
def test_calls_that_were_not_validated_are_validated_before_they_run(how):
    run = EditedRun((calls(call("note", "a", n="x"), call("note", "b", n=2)), "Done."))
    made = at(2, in_first(lambda ctx: run_calls(ctx, ctx.tool_calls)))
    if how == "without validate_calls":
        made = [one for one in default_stages() if one.name != "validate_calls"]
    result = run.run(made)
    assert run.ran == [2]
    assert "expected integer" in answer_to(result, "a")


def test_a_call_can_be_dropped_after_another_stage_ran_one():
    run = EditedRun(TWO)
    made = at(5, first_only(lambda ctx: ctx.drop("b", "no.")))
    first = in_first(lambda ctx: run_calls(ctx, ["a"]))
    made.insert(3, stage(name="first")(first))
    result = run.run(made)
    assert run.ran == [1]
    assert answer_to(result, "b") == "Not run: no."


def test_calls_that_are_in_the_history_before_they_are_dispatched_do_not_run():
    run = EditedRun(ONE)
    result = run.run(at(5, in_first(inject_results.fn)))
    assert run.ran == []
    assert answer_to(result, "a") == "Not run: it was not planned."


@pytest.mark.parametrize("place", ["in place of dispatch_tools", "before it"])
def test_a_call_that_a_stage_stops_is_answered_as_cancelled_and_does_not_run_again(place):
    started, has_started = [], Signal()

    @tool
    async def pay(n: int):
        started.append(n)
        has_started.set()
        await asyncio.sleep(30)

    @stage(provides=("tool_results",))
    def bounded(ctx):
        try:
            return (yield Bounded(dispatch_tools(ctx), until=has_started))
        except Stopped:
            return ctx

    pipeline = Loop().pipeline
    if place == "before it":
        made = pipeline.insert_before("dispatch_tools", bounded)
    else:
        made = pipeline.replace("dispatch_tools", bounded)
    model = ScriptedLLM(calls(call("pay", "p", n=1)), "Done.")
    result = Loop.run_sync("Go.", model, tools=[pay], stages=made)
    assert isinstance(result, Ok)
    assert started == [1]
    assert answer_to(result, "p") == "Cancelled: the call was stopped before it was done."


def trim(ctx):
    return ctx.replace(messages=[USER])  # so the ids of earlier calls are unused again


@pytest.mark.parametrize("fails", [False, True])
def test_a_result_of_an_earlier_iteration_does_not_answer_a_call_with_the_same_id(fails):
    def edit(ctx):
        if fails and ctx.iteration == 2:
            raise ValueError("no")
        return ctx.remember("edited", ctx.iteration)

    run = EditedRun((A, calls(call("note", "a", n=2)), "Done."))
    made = at(5, edit)
    made.insert(0, stage(name="fresh")(trim))
    result = run.run(made)
    assert run.ran == ([1] if fails else [1, 2])
    if fails:
        assert answer_to(result, "a") == "Cancelled: the run failed before this call was done."


def test_calls_that_are_parsed_twice_keep_their_ids_if_the_history_is_trimmed():
    run = EditedRun((A, calls(call("note", "a", n=2)), "Done."))
    made = at(1, trim)
    made.insert(1, stage(name="early")(lambda ctx: (yield from through(ctx, *TO_RESULTS[1:]))))
    run.run(made)
    assert run.ran == [1, 2]


@pytest.mark.parametrize("dedupe", ["evidence", "strict", "off"])
@pytest.mark.parametrize("later", ["asks and forgets", "removes the tool"])
def test_calls_that_a_stage_ran_are_kept_whatever_a_later_stage_does(later, dedupe):
    def edit(ctx):
        if later == "removes the tool":
            return ctx.with_tools(remove=["note"])
        yield from through(ctx, ask_model)
        return ctx

    run = EditedRun((A, "Forgotten.", "Done."))
    made = at(1, in_first(edit))
    made.insert(1, stage(name="early")(in_first(lambda ctx: through(ctx, *TO_RESULTS[1:]))))
    result = run.run(made, dedupe=dedupe)
    assert run.ran == [1]
    assert answer_to(result, "a") == "noted 1"


@pytest.mark.parametrize("position", [4, 6])
@pytest.mark.parametrize("edit", ["add", "change"])
def test_a_response_that_is_parsed_again_keeps_the_edits_of_its_calls(edit, position):
    def edited(ctx):
        if edit == "change":
            return ctx.edit_call("a", {"n": 100})
        return ctx.add_call("note", {"n": 2}, call_id="extra")

    run = EditedRun(ONE)
    made = at(2, first_only(edited))
    made.insert(position + 1, stage(parse_tool_calls.fn, name="parse_again"))
    result = run.run(made)
    assert run.ran == ([100] if edit == "change" else [1, 2])
    ids = [one["id"] for one in result.messages[1]["tool_calls"]]
    assert ids == (["a"] if edit == "change" else ["a", "extra"])


@pytest.mark.parametrize("position", [1, 2])
def test_a_stage_that_edits_the_response_and_dispatches_adds_the_results(position):
    def edit(ctx):
        if not ctx.response.tool_calls:
            return ctx
        ctx = ctx.with_response(dataclasses.replace(ctx.response, content="Edited"))
        return (yield from through(ctx, *TO_RESULTS[1:]))

    run = EditedRun(ONE)
    result = run.run(at(position, edit))
    assert run.ran == [1]
    assert answer_to(result, "a") == "noted 1"
    assert result.messages[1]["content"] == "Edited"


# Stages that ask the model again


def asking(*applied):
    """A stage that applies some stages to another response of the model, in the first iteration."""
    return in_first(lambda ctx: through(ctx, *applied))


@pytest.mark.parametrize(
    ("position", "ran"), [(1, [2]), (2, [2]), (4, [2]), (5, []), (6, [1]), (9, [1])]
)
def test_the_calls_of_a_second_request_run_if_it_is_made_before_the_plan(position, ran):
    run = EditedRun(ASKED_TWICE)
    result = run.run(at(position, asking(ask_model)))
    assert run.ran == ran
    for n, call_id in enumerate("ab", 1):
        answer = answer_to(result, call_id)
        assert answer == f"noted {n}" if n in run.ran else answer.startswith("Not run")


@pytest.mark.parametrize("position", [6, 7, 8, 9])
def test_a_second_request_after_the_calls_ran_keeps_their_results_and_its_answer(position):
    run = EditedRun((A, "Done.", "Not asked for."))
    result = run.run(at(position, asking(ask_model)))
    assert [message["content"] for message in result.messages[1:]] == [None, "noted 1", "Done."]
    assert (result.stop_reason, repairs(run)) == ("answered", [])


def test_a_second_response_after_the_plan_can_be_planned_again():
    run = EditedRun(ASKED_TWICE)
    result = run.run(at(5, asking(*TO_PLAN)), max_tool_calls=1)
    assert run.ran == [2]  # the budget of the first call is released
    assert answer_to(result, "a") == "Not run: the model was asked again first."
    assert answer_to(result, "b") == "noted 2"
    assert isinstance(result, Ok)


def test_the_budget_of_calls_that_a_second_request_replaces_is_released():
    run = EditedRun((A, B, calls(call("note", "c", n=3)), "Done."))
    run.run(at(5, asking(*TO_RESULTS)), max_tool_calls=2)
    assert run.ran == [2, 3]


@pytest.mark.parametrize(("position", "ran"), [(2, [2]), (5, [2]), (7, [1, 2])])
def test_a_stage_that_calls_the_model_and_dispatches_adds_the_result_to_the_history(position, ran):
    run = EditedRun(ASKED_TWICE)
    result = run.run(at(position, asking(*TO_RESULTS)))
    assert run.ran == ran
    assert answer_to(result, "b") == "noted 2"


@pytest.mark.parametrize("position", [2, 7])
@pytest.mark.parametrize("more", [(), (inject_results,), (ask_model,)], ids=["", "in", "again"])
def test_a_stage_that_dispatches_and_drops_the_result_is_refused_and_the_result_kept(
    position, more
):
    def forgetful(ctx):
        yield from through(ctx, *TO_RESULTS, *more)
        return ctx

    run = EditedRun(ASKED_TWICE)
    result = run.run(at(position, forgetful))
    assert refused_by(result) == "edit"
    assert result.reason.message == (
        "calls b ran, and the returned context does not have them; "
        "return the context that dispatch_tools returned"
    )
    assert answer_to(result, "b") == "noted 2"


def best_of_two(ctx):
    first = yield from through(ctx, *TO_RESULTS)
    yield from through(ctx, *TO_RESULTS)
    return first


def another_response(ctx):
    yield from through(ctx, *TO_RESULTS[1:])
    other = Response(tool_calls=(ToolCall("other", "note", '{"n": 9}'),))
    return (yield from through(ctx.with_response(other), *TO_RESULTS[1:]))


@pytest.mark.parametrize(("steps", "position"), [(best_of_two, 0), (another_response, 1)])
def test_all_that_a_stage_dispatched_is_in_the_history_if_it_forgets_some(steps, position):
    run = EditedRun(ASKED_TWICE)
    result = run.run(at(position, in_first(steps)))
    assert refused_by(result) == "edit"
    answers = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert answers == [f"noted {n}" for n in run.ran]
    assert len(answers) == 2


@pytest.mark.parametrize(
    ("position", "first"), [(0, A), (2, A), (2, "Hm."), (7, A), ("in parts", TWO[0])]
)
@pytest.mark.parametrize("end", ["pipeline_failed", "deadline_exceeded"])
def test_the_results_of_a_stage_that_dispatches_are_kept_if_it_is_interrupted(end, position, first):
    limit, is_dispatcher = TimeLimit(), position == "in parts"

    def edit(ctx):
        yield from in_parts(ctx) if is_dispatcher else through(ctx, *TO_RESULTS)
        if end == "pipeline_failed":
            raise ValueError("later")
        limit.strike()
        yield Sleep(30)

    run = EditedRun((first, B, "Done."))
    stages = in_place_of_dispatch(edit) if is_dispatcher else at(position, edit)
    result = run.run(stages, max_seconds=9, middleware=[limit.middleware])
    assert run.ran == [1, 2] if is_dispatcher else run.ran
    assert result.stop_reason == end
    for n in run.ran:
        assert answer_to(result, " ab"[n]) == f"noted {n}"


@pytest.mark.parametrize("position", [4, 6])
def test_the_calls_of_the_first_response_do_not_run_again_if_a_second_request_fails(position):
    def fails(messages, **options):
        given = run.model(messages, **options)
        if len(run.requests) > 1:
            raise ValueError("down")
        return given

    run = EditedRun(ONE)
    loop = Loop(tools=run.tools, stages=at(position, asking(*TO_RESULTS)))
    run.receive_calls()
    result = loop.run_sync("Go.", fails)
    assert isinstance(result.reason, LLMError)
    assert run.ran == ([1] if position == 6 else [])
    check_history(result.messages)
    assert len([m for m in result.messages if m["role"] == "tool"]) == 1


def test_a_goto_to_the_model_that_fails_leaves_one_exchange():
    run = EditedRun(ONE)
    run.receive_calls()
    model = ScriptedLLM(A, ValueError("down"))
    made = [goto_point("again"), *default_stages(), goto("again", lambda ctx: True)]
    result = Loop.run_sync("Go.", model, tools=run.tools, stages=made)
    assert isinstance(result.reason, LLMError)
    assert run.ran == [1]
    assert [m["role"] for m in result.messages] == ["user", "assistant", "tool"]


def test_a_second_request_has_the_first_exchange_also_where_a_stage_changed_the_messages():
    def view(ctx):
        return ctx.with_request(messages=[{"role": "user", "content": "[view]"}])

    seen = []

    def model(messages):
        seen.append([m["content"] for m in messages])
        return ONE[len(seen) - 1] if len(seen) < 3 else "Done."

    made = [view, *default_stages()]
    made.insert(-2, stage(in_first(ask_model.fn), name="again"))
    run = EditedRun(ONE)
    run.receive_calls()
    result = Loop(tools=run.tools, stages=made).run_sync("Go.", model)
    assert isinstance(result, Ok)
    assert seen[:2] == [["[view]"], ["[view]", None, "noted 1"]]


# Limits


def test_iterations_that_do_not_ask_the_model_count_as_well():
    @stage(provides=("response",))
    def never(ctx):
        yield Sleep(0)
        return ctx

    made = [never, *default_stages()[1:]]
    made = [one for one in made if getattr(one, "name", "") != "loop_decision"]
    result = Loop.run_sync("Go.", ScriptedLLM(), stages=made, max_iterations=3)
    assert result.reason == MaxIterationsReached(3)


@pytest.mark.parametrize("how", ["a switch", "a decision", "a second plan"])
def test_the_budget_of_calls_that_were_planned_and_not_dispatched_is_released(how):
    *before, dispatch, inject, budget, breaker = default_stages()
    handle, run = RunHandle(), EditedRun(ASKED_TWICE)
    options = {}
    if how == "a switch":
        dry = switch(lambda ctx: ctx.iteration == 1, {True: [], False: dispatch}, name="dry")
        made = [*before, dry, inject, budget, breaker]
    elif how == "a decision":

        def done(ctx):
            if ctx.iteration == 1:
                handle.steer("Go on.")
                return ctx.done()
            return ctx

        made = [*before, stage(done), dispatch, inject, budget, breaker]
        options = {"handle": handle}
    else:
        again = stage(plan_calls.fn, name="plan_again")
        made = [*before, again, dispatch, inject, budget, breaker]
        run.script = ONE
    run.receive_calls()
    loop = Loop(tools=run.tools, stages=made, max_tool_calls=1)
    result = loop.run_sync("Go.", ScriptedLLM(*run.script), **options)
    assert isinstance(result, Ok)
    assert run.ran == ([1] if how == "a second plan" else [2])


@pytest.mark.parametrize("ends", [Err, DeadlineExceeded])
def test_the_probe_of_a_shared_breaker_is_released_if_the_run_ends_after_the_plan(ends):
    @tool
    def fail():
        raise ValueError("broken")

    def stop_now(ctx):
        return ctx.stop("no")

    limit = TimeLimit()

    def wait(ctx):
        limit.strike()
        yield Sleep(30)
        return ctx

    breaker = CircuitBreaker(threshold=1, cool_down=0.05)
    model = lambda: ScriptedLLM(calls(call("fail")), "Done.")  # noqa: E731
    Loop.run_sync("Go.", model(), tools=[fail], breaker=breaker)
    time.sleep(0.06)
    made = Loop().pipeline.insert_after("plan_calls", stop_now if ends is Err else wait)
    options = {"stages": made, "max_seconds": 60, "middleware": [limit.middleware]}
    Loop.run_sync("Go.", model(), tools=[fail], breaker=breaker, **options)
    result = Loop.run_sync("Go.", model(), tools=[fail], breaker=breaker)
    assert result.tool_calls_count == 1  # the next call is the probe


def test_a_call_that_a_stage_added_keeps_its_result_when_the_run_pauses_again():
    run = EditedRun(ONE)
    made = at(6, lambda ctx: ctx.pause(()) if ctx.iteration == 1 else ctx)
    made.insert(1, stage(name="adds")(in_first(lambda ctx: ctx.add_call("note", {"n": 2}))))
    result = run.run(made)
    for _ in range(2):
        assert isinstance(result, Paused)
        assert {m["content"] for m in result.messages if m["role"] == "tool"} == {
            "noted 1",
            "noted 2",
        }
        result = run.resume(result, made, {})
