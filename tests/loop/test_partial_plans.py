"""A plan that runs in parts, or that a person changed: each call runs and counts once."""

import time

import anyio
import pytest

from treadle import Limits, Loop, RunHandle, deny, edit, tool
from treadle.events import BreakerChanged, CallNotRun, IterationFinished, ToolStarted
from treadle.stages import ask_model, run_calls
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import CircuitBreaker, NotRun, Recipe, RecipeStep

from .conftest import answers

PIPELINE = Loop().pipeline


@pytest.fixture
def ran():
    return []


@pytest.fixture
def look(ran):
    @tool
    def look(x: int) -> str:
        """Look."""
        ran.append(x)
        return "same"

    return look


@tool(requires_approval=True)
def pay(x: int) -> str:
    """Pay."""
    return f"paid {x}"


def first_alone(ctx):
    return (yield from run_calls(ctx, ctx.plan.calls[:1]))


def in_pairs(ctx):
    planned = ctx.plan.calls
    for first in range(0, len(planned), 2):
        ctx = yield from run_calls(ctx, planned[first : first + 2])
        if ctx.decision is not None:
            break
    return ctx


def everything(ctx):
    return (yield from run_calls(ctx, ctx.tool_calls))


def test_a_call_that_ran_before_the_rest_of_its_plan_is_learned_once(way, look, ran):
    """The model may repeat it once, as with the default stages."""
    stages = PIPELINE.insert_before("dispatch_tools", first_alone)
    model = ScriptedLLM(calls(call("look", "a", x=1)), calls(call("look", "b", x=1)), "Done.")
    way.run(Loop(tools=[look], stages=stages), model)
    assert ran == [1, 1]


def drops_what_runs(ctx):
    for one in ctx.plan.calls:
        ctx.drop(one, "what if")
    return ctx


@pytest.mark.parametrize("early", [first_alone, drops_what_runs])
def test_a_failure_counts_once_for_the_shared_breaker(early):
    @tool
    def fail(x: int):
        """Fail."""
        raise ValueError("down")

    events = []
    stages = PIPELINE.insert_before("dispatch_tools", early)
    breaker = CircuitBreaker(threshold=2)
    model = ScriptedLLM(calls(call("fail", x=1)), "Done.")
    Loop.run_sync(
        "Go.", model, tools=[fail], breaker=breaker, stages=stages, on_event=events.append
    )
    assert not [one for one in events if isinstance(one, BreakerChanged)]


def test_calls_that_ran_before_a_pause_are_learned_once(way, look, ran):
    batch = calls(call("look", "a", x=1), call("look", "b", x=2), call("pay", "c", x=1))
    model = ScriptedLLM(batch, calls(call("look", "d", x=1)), "Done.")
    loop = Loop(tools=[look, pay], stages=PIPELINE.replace("dispatch_tools", in_pairs))
    paused = way.run(loop, model)
    way.resume(loop, paused, {"c": deny("no")}, model)
    assert (sorted(ran[:2]), ran[2:]) == ([1, 2], [1])


def test_a_duplicate_of_the_batch_does_not_run_if_a_stage_passes_all_calls(way, look, ran):
    events = []
    stages = PIPELINE.replace("dispatch_tools", everything)
    model = ScriptedLLM(calls(call("look", "a", x=1), call("look", "b", x=1)), "Done.")
    result = way.run(Loop(tools=[look], stages=stages, on_event=events.append), model)
    assert (ran, result.tool_calls_count) == ([1], 1)
    assert [one.call.id for one in events if isinstance(one, ToolStarted)] == ["a"]
    assert [one.reason for one in events if isinstance(one, CallNotRun)] == [
        NotRun.DUPLICATE_IN_BATCH
    ]


def test_the_result_of_a_call_that_a_person_edited_is_not_that_of_its_twin(way):
    model = ScriptedLLM(calls(call("pay", "a", x=1), call("pay", "b", x=1)), "Done.")
    loop = Loop(tools=[pay])
    result = way.resume(loop, way.run(loop, model), {"a": edit({"x": 5})}, model)
    edited, twin = answers(result.messages).values()
    assert edited.startswith("paid 5")
    assert twin.startswith("Not run yet: the identical call was changed.")


def test_the_steps_of_a_cancelled_recipe_are_no_calls_of_the_iteration():
    handle = RunHandle()

    @tool
    def slow(x: int):
        """Slow."""
        handle.cancel_all()
        time.sleep(0.2)

    class Reports:
        def resolve(self, one):
            return "direct"

        def dispatch_recipe(self, name):
            return lambda _: Recipe(serial=[RecipeStep("slow", {"x": 1})])

    def shorten(ctx):
        for call_id, made in ctx.tool_results.items():
            ctx = ctx.edit_result(call_id, made.content[:100])
        return ctx

    loop = Loop(
        tools=[slow, {"name": "report"}],
        resolve_tool=Reports(),
        stages=PIPELINE.insert_after("dispatch_tools", shorten),
    )
    result = loop.run_sync("Go.", ScriptedLLM(calls(call("report", "a")), "Done."), handle=handle)
    assert result.unwrap().content == "Done."


def test_iterations_that_a_stage_answers_count(way):
    handle, steered = RunHandle(), []

    def steer(event):
        if isinstance(event, IterationFinished) and len(steered) < 9:
            steered.append(handle.steer("More."))

    def pong(ctx):
        return ctx.with_response("pong").done()

    loop = Loop(stages=[pong, ...], on_event=steer, limits=Limits(max_iterations=3))
    result = way.run(loop, ScriptedLLM(), handle=handle)
    assert (result.stop_reason, result.iterations) == ("max_iterations_reached", 3)


def test_the_instructions_are_made_once_for_a_request():
    made = []

    def instructions(ctx):
        made.append(ctx.iteration)
        return "Be brief."

    limits = Limits(max_total_tokens=1_000_000, unmeasured="estimate")
    Loop.run_sync("Go.", ScriptedLLM("Done."), instructions=instructions, limits=limits)
    assert made == [1]


@pytest.mark.parametrize("asked_after", ["ask_model", "dispatch_tools"])
def test_the_text_of_a_second_request_is_kept_when_the_run_is_cancelled(look, asked_after):
    handle, requests = RunHandle(), []

    def again(ctx):
        return (yield from ask_model(ctx)) if ctx.iteration == 1 else ctx

    async def answer(messages):
        requests.append(messages)
        if len(requests) == 1:
            calls_look = asked_after == "dispatch_tools"
            yield calls(call("look", "a", x=1)) if calls_look else "First."
            return
        yield "Partial"
        handle.cancel()
        await anyio.sleep(9)

    async def model(messages):
        made = answer(messages)
        return await anext(made) if not requests else made

    stages = PIPELINE.insert_after(asked_after, again)
    result = anyio.run(lambda: Loop.run("Go.", model, tools=[look], handle=handle, stages=stages))
    assert result.stop_reason == "cancelled"
    assert result.messages[-1]["content"].endswith("Partial")
    assert len(result.messages) == (4 if asked_after == "dispatch_tools" else 2)


def test_a_call_that_a_stage_dropped_in_a_discarded_context_is_not_reported(way, look, ran):
    events = []

    def forgets(ctx):
        for one in ctx.tool_calls:
            ctx.drop(one, "never")
        return ctx

    stages = PIPELINE.insert_before("dispatch_tools", forgets)
    model = ScriptedLLM(calls(call("look", "a", x=1)), "Done.")
    way.run(Loop(tools=[look], stages=stages, on_event=events.append), model)
    assert ran == [1]
    assert not [one for one in events if isinstance(one, CallNotRun)]
