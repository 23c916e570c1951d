"""A custom stage in place of each built-in one: limits, approvals, events, spans, history are as before."""

import pytest
from tests.samples import add
from tests.telemetry.watching import Watch
from tests.ways import DRIVEN, WAYS

from treadle import (
    Err,
    Limits,
    Loop,
    Ok,
    Paused,
    PipelineFailed,
    approve,
    deny,
    stage,
    tool,
)
from treadle.events import ModelResponded, ToolFinished, ToolStarted
from treadle.messages import ToolResult
from treadle.stages import default_stages, dispatch_tools, plan_calls, run_calls
from treadle.testing import ScriptedLLM, call, calls, check_history
from treadle.tools import Plan

from .replaced import REPLACED, respond, stages_with

NAMES = list(REPLACED)
USAGE_MISSING = "usage_missing"
USER = [{"role": "user", "content": "Go"}]


@tool(requires_approval=True)
def wipe(n: int) -> str:
    """Wipe."""
    return f"wiped {n}"


@tool
def fail(n: int) -> None:
    """Fail."""
    raise ValueError("broken")


TOOLS = [add, wipe, fail]
TWO = calls(call("add", "c1", a=1, b=2), call("add", "c2", a=3, b=4))
SCENARIOS = {
    "calls": ([TWO, "Done."], {}),
    "an unknown tool": ([calls(call("nope", "c1"), call("add", "c2", a=1, b=2)), "Done."], {}),
    "a limit of calls": ([TWO, "Done."], {"max_tool_calls": 1}),
    "a limit of iterations": (
        [calls(call("add", f"c{n}", a=1, b=n)) for n in range(9)],
        {"max_iterations": 3},
    ),
    "a tool that fails": ([calls(call("fail", f"c{n}", n=n)) for n in range(9)], {}),
    "an approval": ([calls(call("add", "c1", a=1, b=2), call("wipe", "c2", n=7)), "Done."], {}),
    "an ending": (["Done."], {}),
}
KINDS_OF_EVENTS = (ToolStarted, ToolFinished, ModelResponded)


def observed(way, stages, scenario, decision=approve):
    """What is observed of a run: its results, events, spans, metrics."""
    script, options = SCENARIOS[scenario]
    watch = Watch()
    options = {"tools": TOOLS, "stages": stages, **watch.options, **options}
    model = ScriptedLLM(*script)
    run = way.run(USER, model, **options)
    if isinstance(run.result, Paused):
        [pending] = run.result.pending
        way.resume(run, {pending.call_id: decision}, model, **options)
    check_history(run.result.messages)
    return {
        "result": type(run.result).__name__,
        "stop_reason": run.result.stop_reason,
        "messages": [shown(message) for message in run.result.messages],
        "iterations": run.result.iterations,
        "calls": run.result.tool_calls_count,
        "events": sorted(shown_event(e) for e in run.events if isinstance(e, KINDS_OF_EVENTS)),
        "spans": sorted(span.name for span in watch.spans),
        "metrics": sorted(
            (metric.name, sum(getattr(p, "count", 1) for p in metric.data.data_points))
            for metric in watch.metrics()
        ),
    }


def shown(message):
    text = str(message.get("content"))
    return (
        message["role"],
        text.split("\n", maxsplit=1)[0].split(":", maxsplit=1)[0],
        len(message.get("tool_calls") or ()),
    )


def shown_event(event):
    made = getattr(event, "call", None)
    return type(event).__name__, event.iteration, made.id if made else ""


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", NAMES)
def test_a_replaced_stage_leaves_everything_as_it_was(name, scenario):
    way = DRIVEN[0]
    expected = observed(way, stages_with(), scenario)
    assert observed(way, stages_with(name), scenario) == expected


@pytest.mark.parametrize("way", WAYS, ids=repr)
@pytest.mark.parametrize("scenario", ["calls", "an approval"])
def test_all_stages_can_be_replaced_under_every_driver(way, scenario):
    assert observed(way, stages_with(*NAMES), scenario) == observed(way, stages_with(), scenario)


def test_a_denied_call_does_not_run_if_the_dispatcher_is_replaced():
    way, stages = DRIVEN[0], stages_with("dispatch_tools")
    expected = observed(way, stages_with(), "an approval", deny("no"))
    assert observed(way, stages, "an approval", deny("no")) == expected


def test_a_replacement_takes_over_what_the_stage_requires_and_provides():
    made = stage(lambda ctx: ctx, "mine", replaces=plan_calls)
    assert (made.requires, made.provides) == (plan_calls.requires, plan_calls.provides)
    pipeline = Loop().pipeline.replace("plan_calls", lambda ctx: ctx)
    [mine] = [one for one in pipeline.components if one.name == "lambda"]
    assert mine.provides == plan_calls.provides


def test_a_stage_that_answers_in_place_of_the_model_counts_as_a_request():
    watch, events = Watch(), []
    stages = [respond, *default_stages()[1:]]
    options = {**watch.options, "on_event": events.append, "limits": Limits(max_requests=2)}
    result = Loop.run_sync("Go", ScriptedLLM(), tools=TOOLS, stages=stages, **options)
    assert isinstance(result, Ok)
    assert (result.output, result.iterations, result.tool_calls_count) == ("3", 2, 1)
    assert [e.iteration for e in events if isinstance(e, ModelResponded)] == [1, 2]
    assert [node.model_calls[0].status for node in result.run.nodes] == [USAGE_MISSING] * 2
    assert len(watch.kind("chat")) == 2


# A dispatcher that runs the tools itself


@stage(replaces=dispatch_tools)
def naive(ctx):
    """Run every call that is not answered, whatever the plan says."""
    made = {
        one.id: ToolResult(one.id, str(ctx.tools[one.name].fn(**one.input)))
        for one in ctx.tool_calls
        if one.id not in ctx.tool_results
    }
    return ctx.replace(tool_results={**ctx.tool_results, **made})


@stage(replaces=dispatch_tools)
def naive_answers(ctx):
    for one in ctx.tool_calls:
        if one.id not in ctx.tool_results:
            ctx = ctx.answer(one, ctx.tools[one.name].fn(**one.input))
    return ctx


@stage(provides=("tool_results",))
async def naive_async(ctx):
    return naive_answers(ctx)


NAIVE = [naive, naive_answers, naive_async]


def with_dispatcher(dispatcher):
    return [dispatcher if one.name == "dispatch_tools" else one for one in default_stages()]


@pytest.mark.parametrize("way", WAYS, ids=repr)
@pytest.mark.parametrize("dispatcher", NAIVE, ids=lambda one: one.name)
def test_a_dispatcher_that_runs_calls_itself_is_counted_and_emitted(dispatcher, way):
    watch = Watch()
    options = {"tools": TOOLS, "stages": with_dispatcher(dispatcher), **watch.options}
    run = way.run(USER, ScriptedLLM(TWO, "Done."), **options)
    result = run.result
    assert (result.tool_calls_count, result.stop_reason) == (2, "answered")
    assert [message["content"] for message in result.messages[2:4]] == ["3", "7"]
    kinds = [shown_event(e)[::2] for e in run.events if isinstance(e, (ToolStarted, ToolFinished))]
    assert kinds == [
        ("ToolStarted", "c1"),
        ("ToolFinished", "c1"),
        ("ToolStarted", "c2"),
        ("ToolFinished", "c2"),
    ]
    assert len(watch.kind("execute_tool")) == 2
    nodes = result.run.nodes[0].tool_calls
    assert [(node.name, node.status) for node in nodes] == [("add", "success"), ("add", "success")]
    check_history(result.messages)


@stage(replaces=dispatch_tools)
def greedy(ctx):
    made = {one.id: ToolResult(one.id, "ran") for one in ctx.tool_calls}
    return ctx.replace(tool_results={**ctx.tool_results, **made})


WITH_WIPE = calls(call("add", "c1", a=1, b=2), call("wipe", "c2", n=7))


@pytest.mark.parametrize("way", WAYS, ids=repr)
@pytest.mark.parametrize(
    ("dispatcher", "script", "limit", "results", "why"),
    [
        (naive_answers, WITH_WIPE, 9, ["3", "wiped 7"], "a person has to approve it"),
        (greedy, TWO, 1, ["ran", "ran"], ""),
    ],
    ids=["an open approval", "a limit"],
)
def test_a_result_of_a_call_that_was_not_allowed_ends_the_run(
    dispatcher, script, limit, results, why, way
):
    stages, model = with_dispatcher(dispatcher), ScriptedLLM(script, "Done.")
    run = way.run(USER, model, tools=TOOLS, stages=stages, max_tool_calls=limit)
    result = run.result
    assert isinstance(result, Err)
    assert isinstance(result.reason, PipelineFailed)
    assert result.reason.stage == dispatcher.name
    assert f"(c2): {why}" in result.reason.message
    answers = [message["content"] for message in result.messages if message["role"] == "tool"]
    assert answers[0] == results[0]
    assert answers[1].startswith(
        f"Stage {dispatcher.name!r} reported a result for this call, which was not allowed to run: {why}"
    )
    assert answers[1].endswith(". It may have taken effect.")
    assert result.tool_calls_count == 2
    [reported] = [e for e in run.events if isinstance(e, ToolFinished) and e.call.id == "c2"]
    assert reported.result.content == results[1]


def plan_and_run(ctx):
    ctx = ctx.replace(plan=Plan((ctx.tool_calls,)))
    return naive.fn(ctx)


def plan_and_answer(ctx):
    ctx = ctx.replace(plan=Plan((ctx.tool_calls,)))
    return naive_answers.fn(ctx)


@pytest.mark.parametrize("is_planner", [True, False])
@pytest.mark.parametrize("fn", [plan_and_run, plan_and_answer, naive.fn, naive_answers.fn])
def test_a_stage_that_plans_calls_and_runs_them_itself_is_bound_by_the_approvals(fn, is_planner):
    merged = stage(fn, "merged", replaces=plan_calls, provides=("plan", "tool_results"))
    names = {"plan_calls", "dispatch_tools"} if is_planner else {"dispatch_tools"}
    stages = [one for one in default_stages() if one.name not in names]
    stages.insert(4 if is_planner else 5, merged)
    script = calls(call("add", "c1", a=1, b=2), call("wipe", "c2", n=7))
    events = []
    result = Loop.run_sync(
        "Go", ScriptedLLM(script, "Done."), tools=TOOLS, stages=stages, on_event=events.append
    )
    check_history(result.messages)
    assert isinstance(result, Err)
    assert result.reason.stage == "merged"
    assert "reported a result for a call that was not allowed to run" in result.reason.message
    assert [one.call.id for one in events if isinstance(one, ToolFinished)] == [
        f"c{n + 1}" for n in range(result.tool_calls_count)
    ]


def test_a_planner_that_runs_a_call_that_waits_for_a_person_ends_the_run():
    stages = [plan_calls, stage(plan_and_run, "planner", replaces=plan_calls)]
    stages = [*default_stages()[:4], *stages, *default_stages()[5:]]
    script = calls(call("add", "c1", a=1, b=2), call("wipe", "c2", n=7))
    result = Loop.run_sync("Go", ScriptedLLM(script, "Done."), tools=TOOLS, stages=stages)
    assert isinstance(result, Err)
    assert "'wipe' (c2): a person has to approve it" in result.reason.message
    assert result.tool_calls_count == 2


def test_a_dispatcher_may_add_a_call_to_the_plan():
    def one_by_one(ctx):
        for one in ctx.tool_calls:
            ctx = yield from run_calls(ctx, [one])
            if ctx.decision is not None:
                return ctx
        return ctx

    stages = Loop().pipeline.replace("dispatch_tools", one_by_one)
    result = Loop.run_sync("Go", ScriptedLLM(TWO, "Done."), tools=TOOLS, stages=stages)
    assert (result.tool_calls_count, result.output) == (2, "Done.")
    limited = Loop.run_sync(
        "Go", ScriptedLLM(TWO, "Done."), tools=TOOLS, stages=stages, max_tool_calls=1
    )
    assert limited.tool_calls_count == 1


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        (lambda ctx: None, "expected a list of calls or of their ids, got nothing"),
        (lambda ctx: "c1", "expected a list of calls or of their ids, got str 'c1'"),
        (lambda ctx: ctx.tool_calls[0], "expected a list of calls or of their ids, got ToolCall"),
        (lambda ctx: [None], "expected a call of ctx.tool_calls or its id, got nothing"),
        (lambda ctx: ["nope"], "no call of this iteration has the id 'nope'; its calls: c1, c2"),
    ],
)
def test_a_dispatcher_that_runs_what_is_no_call_is_told_so(chosen, text):
    def dispatch(ctx):
        return (yield from run_calls(ctx, chosen(ctx)))

    stages = Loop().pipeline.replace("dispatch_tools", dispatch)
    result = Loop.run_sync("Go", ScriptedLLM(TWO, "Done."), tools=TOOLS, stages=stages)
    assert isinstance(result, Err)
    assert (result.reason.stage, result.reason.error_type) == ("dispatch", "OptionError")
    assert result.reason.message == f"run_calls: {text}"
