"""Stages that parse, plan, dispatch, inject or ask by themselves: what ran is in the history, once."""

import asyncio
import dataclasses
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
    default_stages,
    stage,
    tool,
)
from treadle.effects import Bounded, Signal, Sleep, Stopped
from treadle.messages import Response, ToolCall
from treadle.pipeline import goto, goto_point, switch
from treadle.stages import (
    ask_model,
    dispatch_tools,
    inject_results,
    parse_tool_calls,
    plan_calls,
    validate_calls,
)
from treadle.testing import ScriptedLLM, call, calls, check_history
from treadle.tools import Plan

from .edited_runs import EditedRun, at

ONE = (calls(call("note", "a", n=1)), "Done.")
TWO = (calls(call("note", "a", n=1)), calls(call("note", "b", n=2)), "Done.")


def answer_to(result, call_id):
    """The one tool message that answers a call."""
    (message,) = [m for m in result.messages if m.get("tool_call_id") == call_id]
    return message["content"]


def in_first(edit):
    """A stage that does something in the first iteration only; it may yield effects."""

    def steps(ctx):
        return (yield from edit(ctx)) if ctx.iteration == 1 else ctx

    return steps


def with_plan(ctx, *planned):
    return ctx.replace(plan=Plan((planned,)))


def run_calls(ctx):
    ctx = yield from validate_calls(parse_tool_calls(ctx))
    ctx = yield from plan_calls(ctx)
    return (yield from dispatch_tools(ctx))


# Dispatching


def test_a_call_that_needs_approval_waits_although_a_stage_dispatches_it():
    run = EditedRun((calls(call("wipe", "w", n=1)), "Done."))
    result = run.run(at(4, in_first(lambda ctx: dispatch_tools(with_plan(ctx, *ctx.tool_calls)))))
    assert isinstance(result, Paused)
    assert run.ran == []


def test_a_planned_call_that_a_stage_renames_and_dispatches_needs_the_approval_of_its_new_tool():
    run = EditedRun(ONE)

    def rename(ctx):
        renamed = dataclasses.replace(ctx.plan.calls[0], name="wipe")
        return dispatch_tools(ctx.replace(plan=Plan.of_one(renamed)))

    result = run.run(at(5, in_first(rename)))
    assert isinstance(result, Paused)
    assert run.ran == []


@pytest.mark.parametrize("limit", ["max_tool_calls", "max_uses"])
def test_calls_that_a_stage_dispatches_count_against_the_budget(limit):
    run = EditedRun((calls(call("note", "a", n=1), call("note", "b", n=2)), "Done."))
    options = {"max_tool_calls": 1} if limit == "max_tool_calls" else {}
    if limit == "max_uses":
        run.tools = [dataclasses.replace(one, max_uses=1) for one in run.tools]
    result = run.run(
        at(4, in_first(lambda ctx: dispatch_tools(with_plan(ctx, *ctx.tool_calls)))), **options
    )
    assert run.ran == [1]
    assert "budget of tool calls is spent" in answer_to(result, "b")


def test_calls_that_a_stage_dispatches_without_validation_are_validated():
    run = EditedRun((calls(call("note", "a", n="x"), call("note", "b", n=2)), "Done."))
    result = run.run(at(2, in_first(lambda ctx: dispatch_tools(with_plan(ctx, *ctx.tool_calls)))))
    assert run.ran == [2]
    assert "expected integer" in answer_to(result, "a")


def test_a_list_without_validate_calls_runs_calls_with_their_arguments():
    run = EditedRun((calls(call("note", "a", n=7), call("note", "b", n="x")), "Done."))
    stages = [one for one in default_stages() if one.name != "validate_calls"]
    result = run.run(stages)
    assert run.ran == [7]
    assert "expected integer" in answer_to(result, "b")


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
        stages = pipeline.insert_before("dispatch_tools", bounded)
    else:
        stages = pipeline.replace("dispatch_tools", bounded)
    model = ScriptedLLM(calls(call("pay", "p", n=1)), "Done.")
    result = Loop.run_sync("Go.", model, tools=[pay], stages=stages)
    assert isinstance(result, Ok)
    assert started == [1]
    assert answer_to(result, "p") == "Cancelled: bounded stopped this call before it was done."


def best_of_two(ctx):
    first = yield from run_calls((yield from ask_model(ctx)))
    yield from run_calls((yield from ask_model(ctx)))
    return first


def another_response(ctx):
    yield from run_calls(ctx)
    other = Response(tool_calls=(ToolCall("other", "note", '{"n": 9}'),))
    ctx = yield from run_calls(ctx.replace(response=other))
    if ctx.deps is not None:
        ctx.deps.strike()
        yield Sleep(30)
    return ctx


def prefetch(ctx):
    early = ToolCall("early", "note", '{"n": 5}')
    done = yield from dispatch_tools(with_plan(ctx, early))
    return ctx.replace(memo={"early": done.tool_results["early"].content})


@pytest.mark.parametrize(
    ("steps", "position", "ran"),
    [(best_of_two, 0, [1, 2]), (another_response, 1, [1, 9]), (prefetch, 0, [5])],
)
def test_all_that_a_stage_dispatched_is_in_the_history_if_it_forgets_some(steps, position, ran):
    run = EditedRun(TWO)
    result = run.run(at(position, in_first(steps)))
    assert isinstance(result.reason, PipelineFailed)
    assert result.reason.stage == "edit"
    assert run.ran == ran
    answers = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert answers == [f"noted {n}" for n in ran]


def test_all_that_a_stage_dispatched_is_in_the_history_if_it_is_interrupted():
    run = EditedRun(TWO)
    limit = TimeLimit()
    options = {"deps": limit, "max_seconds": 60, "middleware": [limit.middleware]}
    result = run.run(at(1, in_first(another_response)), **options)
    assert isinstance(result.reason, DeadlineExceeded)
    assert (answer_to(result, "a"), answer_to(result, "other")) == ("noted 1", "noted 9")


# Parsing


@pytest.mark.parametrize("position", [4, 6])
@pytest.mark.parametrize("edit", ["add", "change"])
def test_a_response_that_is_parsed_again_keeps_the_edits_of_its_calls(edit, position):
    def edited(ctx):
        if ctx.iteration > 1:
            return ctx
        first = dataclasses.replace(ctx.tool_calls[0], arguments='{"n": 100}')
        extra = ToolCall("extra", "note", '{"n": 2}')
        return ctx.replace(tool_calls=(first,) if edit == "change" else (*ctx.tool_calls, extra))

    run = EditedRun(ONE)
    stages = at(2, edited)
    stages.insert(position + 1, stage(parse_tool_calls.fn, name="parse_again"))
    result = run.run(stages)
    assert run.ran == ([100] if edit == "change" else [1, 2])
    made = result.messages[1]["tool_calls"]
    assert [one["id"] for one in made] == (["a"] if edit == "change" else ["a", "extra"])


# Asking again


def ask_and_run(ctx):
    return (yield from run_calls((yield from ask_model(ctx))))


@pytest.mark.parametrize("position", [4, 6])
def test_the_calls_of_the_first_response_do_not_run_again_if_a_second_request_fails(position):
    def fails(messages, **options):
        given = run.model(messages, **options)
        if len(run.requests) > 1:
            raise ValueError("down")
        return given

    run = EditedRun(ONE)
    loop = Loop(tools=run.tools, stages=at(position, in_first(ask_and_run)))
    run.receive_calls()
    result = loop.run_sync("Go.", fails)
    assert isinstance(result.reason, LLMError)
    assert run.ran == ([1] if position == 6 else [])
    check_history(result.messages)
    assert len([m for m in result.messages if m["role"] == "tool"]) == 1


def test_a_goto_to_the_model_that_fails_leaves_one_exchange():
    ran = []

    @tool
    def note(n: int):
        ran.append(n)

    model = ScriptedLLM(calls(call("note", "a", n=1)), ValueError("down"))
    stages = [goto_point("again"), *default_stages(), goto("again", lambda ctx: True)]
    result = Loop.run_sync("Go.", model, tools=[note], stages=stages)
    assert isinstance(result.reason, LLMError)
    assert ran == [1]
    assert [m["role"] for m in result.messages] == ["user", "assistant", "tool"]


def test_a_second_request_has_the_first_exchange_also_where_a_stage_changed_the_messages():
    def view(ctx):
        return ctx.with_request(messages=[{"role": "user", "content": "[view]"}])

    seen = []

    def model(messages):
        seen.append([m["content"] for m in messages])
        return ONE[len(seen) - 1] if len(seen) < 3 else "Done."

    again = in_first(ask_model.fn)
    stages = [view, *default_stages()]
    stages.insert(-2, stage(again, name="again"))
    run = EditedRun(ONE)
    run.receive_calls()
    result = Loop(tools=run.tools, stages=stages).run_sync("Go.", model)
    assert isinstance(result, Ok)
    assert seen[:2] == [["[view]"], ["[view]", None, "noted 1"]]


# The history


def test_a_tool_message_that_a_stage_gives_another_role_is_restored():
    run = EditedRun(ONE)
    as_user = lambda m: {**m, "role": "user"} if m["role"] == "tool" else m  # noqa: E731
    result = run.run(at(7, lambda ctx: ctx.replace(messages=[as_user(m) for m in ctx.messages])))
    assert answer_to(result, "a") == "noted 1"


def test_the_name_of_a_call_that_ran_is_restored_and_its_redacted_arguments_stay():
    def renamed(message):
        if "tool_calls" not in message:
            return message
        function = {"name": "other", "arguments": '{"n": "[gone]"}'}
        return {**message, "tool_calls": [{**message["tool_calls"][0], "function": function}]}

    run = EditedRun(ONE)
    result = run.run(at(7, lambda ctx: ctx.replace(messages=[renamed(m) for m in ctx.messages])))
    (made,) = result.messages[1]["tool_calls"]
    assert made["function"] == {"name": "note", "arguments": '{"n": "[gone]"}'}


def test_a_duplicate_of_a_call_that_a_stage_changed_is_deferred():
    def change_first(ctx):
        first, *rest = ctx.tool_calls or (None,)
        if not rest:
            return ctx
        return ctx.replace(tool_calls=(dataclasses.replace(first, arguments='{"n": 100}'), *rest))

    run = EditedRun((calls(call("note", "a", n=1), call("note", "b", n=1)), "Done."))
    result = run.run(at(5, change_first))
    assert run.ran == [100]
    assert answer_to(result, "b").startswith("Not run yet: edit changed an identical call.")


# Limits


def test_iterations_that_do_not_ask_the_model_count_as_well():
    @stage(provides=("response",))
    def never(ctx):
        yield Sleep(0)
        return ctx

    stages = [never, *default_stages()[1:]]
    stages = [one for one in stages if getattr(one, "name", "") != "loop_decision"]
    result = Loop.run_sync("Go.", ScriptedLLM(), stages=stages, max_iterations=3)
    assert result.reason == MaxIterationsReached(3)


@pytest.mark.parametrize("how", ["a switch", "a decision", "a second plan"])
def test_the_budget_of_calls_that_were_planned_and_not_dispatched_is_released(how):
    *before, dispatch, inject, budget, breaker = default_stages()
    handle, run = RunHandle(), EditedRun(TWO)
    options = {}
    if how == "a switch":
        dry = switch(lambda ctx: ctx.iteration == 1, {True: [], False: dispatch}, name="dry")
        stages = [*before, dry, inject, budget, breaker]
    elif how == "a decision":

        def done(ctx):
            if ctx.iteration == 1:
                handle.steer("Go on.")
                return ctx.done()
            return ctx

        stages = [*before, stage(done), dispatch, inject, budget, breaker]
        options = {"handle": handle}
    else:
        again = stage(plan_calls.fn, name="plan_again")
        stages = [*before, again, dispatch, inject, budget, breaker]
        run.script = ONE
    run.receive_calls()
    loop = Loop(tools=run.tools, stages=stages, max_tool_calls=1)
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
    stages = Loop().pipeline.insert_after("plan_calls", stop_now if ends is Err else wait)
    options = {"stages": stages, "max_seconds": 60, "middleware": [limit.middleware]}
    Loop.run_sync("Go.", model(), tools=[fail], breaker=breaker, **options)
    result = Loop.run_sync("Go.", model(), tools=[fail], breaker=breaker)
    assert result.tool_calls_count == 1  # the next call is the probe
