"""A response that a custom stage replaced, and the calls of the new one."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from treadle.context import Context
from treadle.loop.stage_guard.calls import CallReview, call_request, call_requests, started_calls
from treadle.loop.stage_guard.fields import changed
from treadle.messages import ToolResult
from treadle.stages import parse_tool_calls, validated
from treadle.tools import Plan, as_made


def is_new_response(before: Context, after: Context) -> bool:
    """Whether a stage replaced the response before any of its calls ran."""
    is_replaced = before.is_asked and changed("response", before, after)
    has_run = before.is_injected or started_calls(before) or started_calls(after)
    return is_replaced and not has_run


def with_calls_of_response(stage: str, before: Context, after: Context) -> Context:
    """Replace the calls of the old response, which do not run, with those of the new one."""
    for call in before.plan.calls:
        after.run.release(call)
    nothing: dict[str, Any] = {"tool_results": {}, "plan": Plan(), "validation_errors": {}}
    if call_requests(before) != call_requests(after):  # the stage set the calls itself
        empty = before.evolve(tool_calls=(), **nothing)
        after = CallReview(stage, empty, after.evolve(**nothing)).reviewed()
    else:
        after = parse_tool_calls(after.evolve(tool_calls=(), **nothing))
    after = validated(after)
    if before.plan.batches:  # too late for a plan
        text = f"Not run: {stage} replaced the response."
        results = {call.id: ToolResult(call.id, text, True, "skipped") for call in after.tool_calls}
        after = after.evolve(tool_results={**results, **after.tool_results})
    return after


def with_ids_of_calls(ctx: Context) -> Context:
    """Give the calls of the response their unique ids, which they keep if they are parsed again."""
    given, calls = ctx.response.tool_calls, ctx.tool_calls
    if ctx.is_injected or len(given) != len(calls):
        return ctx
    renamed = [dataclasses.replace(one, id=call.id) for one, call in zip(given, calls, strict=True)]
    are_edited = any(
        call_request(one) != (call.id, *as_made(ctx.run.catalog, call))
        for one, call in zip(renamed, calls, strict=True)
    )
    if are_edited or all(map(operator.eq, given, renamed)):
        return ctx
    return ctx.evolve(response=dataclasses.replace(ctx.response, tool_calls=tuple(renamed)))
