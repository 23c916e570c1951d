"""A plain replacement of each stage that does what the built-in stage does."""

from __future__ import annotations

import json

from treadle import Loop, stage
from treadle.messages import Response, ToolCall
from treadle.results import CircuitBroken
from treadle.stages import (
    ask_model,
    budget_guard,
    run_calls,
)
from treadle.tools import Plan, PlanReason


def ask_it(ctx):
    """Ask the model through the built-in stage."""
    return (yield from ask_model(ctx))


def parse_by_hand(ctx):
    return ctx.replace(tool_calls=ctx.response.tool_calls) if ctx.response.tool_calls else ctx


async def validate_by_hand(ctx):
    for one in ctx.tool_calls:
        tool = ctx.tools.get(one.name)
        if tool is None:
            ctx = ctx.answer(one, f"Error: the call of {one.name!r} was not run", is_error=True)
            continue
        ctx = ctx.edit_call(one, json.loads(one.arguments))
    return ctx


def decide_by_hand(ctx):
    return ctx if ctx.tool_calls else ctx.done()


def plan_by_hand(ctx):
    left = tuple(one for one in ctx.tool_calls if one.id not in ctx.tool_results)
    reason = PlanReason.SINGLE_CALL if len(left) == 1 else PlanReason.PARALLEL_BATCH
    return ctx.replace(plan=Plan((left,), reason)) if left else ctx


def dispatch_by_hand(ctx):
    return (yield from run_calls(ctx, ctx.plan.calls))


def inject_by_hand(ctx):
    said = {"role": "assistant", "content": ctx.response.content}
    if ctx.tool_calls:
        said["tool_calls"] = [
            {
                "id": one.id,
                "type": "function",
                "function": {"name": one.name, "arguments": one.arguments},
            }
            for one in ctx.tool_calls
        ]
    answers = [
        {"role": "tool", "tool_call_id": one.id, "content": ctx.tool_results[one.id].content}
        for one in ctx.tool_calls
    ]
    return ctx.replace(messages=[*ctx.messages, said, *answers])


def guard_by_hand(ctx):
    return budget_guard(ctx)


def break_by_hand(ctx):
    errors = [one.content for one in ctx.tool_results.values() if one.is_error]
    count = ctx.memo.get("errors", 0) + 1 if errors else 0
    ctx = ctx.remember("errors", count)
    return ctx.stop(CircuitBroken("fail", errors[0], count)) if count == 3 else ctx


REPLACED = {
    "ask_model": ask_it,
    "parse_tool_calls": parse_by_hand,
    "validate_calls": validate_by_hand,
    "loop_decision": decide_by_hand,
    "plan_calls": plan_by_hand,
    "dispatch_tools": dispatch_by_hand,
    "inject_results": inject_by_hand,
    "budget_guard": guard_by_hand,
    "circuit_breaker": break_by_hand,
}


def stages_with(*names):
    """The default list with some stages replaced, each by a plain function."""
    pipeline = Loop().pipeline
    for name in names:
        pipeline = pipeline.replace(name, REPLACED[name])
    return pipeline


@stage(replaces=ask_model)
def respond(ctx):
    """Answer without a model: a call first, then a text."""
    if ctx.iteration == 1:
        return ctx.with_response(Response(tool_calls=(ToolCall("c1", "add", '{"a": 1, "b": 2}'),)))
    return ctx.with_response("3")
