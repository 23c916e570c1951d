"""The list of stages: its order, its options, and the errors of an invalid list."""

import itertools

import pytest

from treadle import Err, Loop, Ok, PipelineError, stages
from treadle.context import Context
from treadle.messages import Response, ToolCall
from treadle.pipeline import embed, stage, switch
from treadle.pipeline.streams import StreamPipeline, composer, dead_end, plug_with
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls, check_history

from .dispatching import double

NAMES = [
    "ask_model",
    "parse_tool_calls",
    "validate_calls",
    "loop_decision",
    "plan_calls",
    "dispatch_tools",
    "inject_results",
    "budget_guard",
    "circuit_breaker",
]
DISPATCHED = NAMES.index("dispatch_tools") + 1
USER = [{"role": "user", "content": "Hi"}]


def named(*names):
    return [getattr(stages, name) for name in names]


def run(given, *script, **options):
    result = Loop.run_sync(
        USER, ScriptedLLM(*script, *["fallback"] * 20), tools=[double], stages=given, **options
    )
    check_history(result.messages)
    return result


def test_the_list_of_stages():
    assert [one.name for one in default_stages()] == NAMES
    assert all(getattr(stages, name).name == name for name in NAMES)


@pytest.mark.parametrize(
    "name", ["plan_calls", "validate_calls", "dispatch_tools", "inject_results"]
)
def test_a_stage_without_a_required_field_is_an_error_that_names_the_stage(name):
    with pytest.raises(PipelineError, match=f"{name}.*requires"):
        Loop(stages=named(name, "parse_tool_calls"))


def test_the_pipeline_of_a_loop_can_be_edited_and_given_to_another():
    edited = Loop().pipeline.without("circuit_breaker")
    assert Loop(stages=edited).pipeline.names == tuple(NAMES[:-1])
    text = "'dispatch_tools' requires plan, which no stage before it provides"
    with pytest.raises(PipelineError, match=text):
        edited.without("plan_calls")


def test_a_field_that_no_context_has_is_an_error():
    @stage(requires=("mesages",))
    def mine(ctx): ...

    with pytest.raises(PipelineError, match="mesages"):
        Loop(stages=[mine])


def test_two_stages_of_one_name_are_an_error():
    with pytest.raises(PipelineError, match="budget_guard"):
        Loop(stages=[*default_stages(), stages.budget_guard])


SHORTER = [
    [name for name in NAMES if name not in dropped]
    for size in (1, 2)
    for dropped in itertools.combinations(
        ["loop_decision", "budget_guard", "circuit_breaker", "inject_results"], size
    )
]


@pytest.mark.parametrize(
    "names", [*SHORTER, [], ["parse_tool_calls"], NAMES[1:3], NAMES[:3], NAMES[:5]]
)
@pytest.mark.parametrize(
    "script",
    [
        ["Hi"],
        [calls(call("double", n=1)), "done"],
        [calls(call("double", n=1), call("nope"), text="so")] * 9,
        ["", "", ""],
    ],
    ids=["text", "a call", "many calls", "blanks"],
)
def test_a_loop_with_fewer_stages_still_ends_and_has_a_valid_history(names, script):
    result = run(named(*names), *script, max_iterations=4)
    assert isinstance(result, (Ok, Err))
    assert 1 <= result.iterations <= 4


def test_another_order_of_the_last_stages_gives_the_same_answer():
    order = [*NAMES[:DISPATCHED], "circuit_breaker", "inject_results", "budget_guard"]
    assert run(named(*order), calls(call("double", n=1)), "done").unwrap().content == "done"


def test_bare_functions_of_every_kind_are_stages():
    seen = []

    def plain(ctx: Context) -> Context:
        seen.append("plain")
        return ctx

    async def later(ctx: Context) -> Context:
        seen.append("later")
        return ctx

    def effects(ctx: Context):
        seen.append("effects")
        return ctx
        yield

    result = run([plain, later, *default_stages(), effects], calls(call("double", n=1)), "done")
    assert result.unwrap().content == "done"
    assert seen == ["plain", "later", "effects", "plain", "later"]


def test_one_function_can_be_the_whole_pipeline():
    result = run([lambda ctx: ctx.done("out")], "Hi")
    assert (result.output, result.messages[-1]["content"]) == ("out", "Hi")


@pytest.mark.parametrize(
    "component",
    [
        dead_end(name="split"),
        composer(lambda ctx, memo: ([ctx, ctx], memo), name="split"),
        plug_with((lambda ctx: 1, lambda inner, ctx: ctx), [lambda n: n], name="split"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        lambda component: component,
        lambda component: switch(bool, {True: [component], False: []}),
        lambda component: embed(StreamPipeline(component), name="inner"),
    ],
)
def test_a_component_that_drops_multiplies_or_converts_the_context_is_refused(component, place):
    with pytest.raises(PipelineError, match=r"split' drops, makes or converts items"):
        Loop(stages=[*default_stages(), place(component)])


def test_a_stage_may_change_the_response_before_the_others_see_it():
    def shout(ctx):
        text = ctx.response.content
        return ctx.with_response(Response(text.upper())) if text else ctx

    ask, *rest = default_stages()
    assert run([ask, shout, *rest], "done").messages[-1]["content"] == "DONE"


def test_a_response_with_calls_that_a_stage_makes_the_answer_is_not_an_output():
    def stop(ctx):
        return ctx.done() if ctx.response.tool_calls else ctx

    given = [*default_stages()]
    given.insert(1, stop)
    result = run(given, calls(call("double", n=1)))
    assert (result.stop_reason, result.output) == ("answered", "")


def test_a_stage_may_add_messages():
    def ask_again(ctx):
        if ctx.iteration > 1:
            return ctx.done()
        ctx = stages.inject(ctx)
        return ctx.replace(messages=ctx.messages.append({"role": "user", "content": "Sure?"}))

    result = run([ask_again], "Yes", "Quite")
    assert [m["content"] for m in result.messages] == ["Hi", "Yes", "Sure?", "Quite"]


@pytest.mark.parametrize("position", [1, 2])
def test_a_call_of_a_response_that_a_stage_replaced_is_repaired(position):
    def cut(ctx):
        broken = ToolCall("c", "double", '{"n": 4')
        return ctx.with_response(Response(tool_calls=(broken,))) if ctx.iteration == 1 else ctx

    def close(call, problems):
        return ToolCall(call.id, call.name, call.arguments + "}")

    given = default_stages()
    given[2] = stages.validate_calls(repair_call=close)
    given.insert(position, cut)
    result = run(given, calls(call("double", n=1)), "done")
    assert result.messages[2] == {"role": "tool", "tool_call_id": "c", "content": "8"}
