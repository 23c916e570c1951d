"""`plan_calls`: which calls run now, together or one after another."""

from __future__ import annotations

from treadle.pipeline import stage
from treadle.types import Context, Plan, ToolCall, ToolResult


@stage(requires=("tool_calls",), provides=("plan", "tool_results"))
def plan_calls(ctx: Context) -> Context:
    """Put the valid calls into batches, in the order of the request, within the budget of calls.

    Parallel-safe calls that follow each other run together, up to ``max_parallel_calls``; any other call
    runs alone. Calls beyond ``max_tool_calls`` are answered, and not run.
    """
    done = ctx.tool_results
    waiting = [call for call in ctx.tool_calls if call.id not in done]
    if not waiting:
        return ctx
    limit = ctx.limits.max_tool_calls
    if limit is not None:
        left = max(0, limit - ctx.tool_calls_count)
        if len(waiting) > left:
            ctx = _over_budget(ctx, waiting[left:], limit)
            waiting = waiting[:left]
    batches = (tuple(waiting),) if len(waiting) == 1 else _batches(ctx, waiting)
    return ctx.replace(plan=Plan(batches))


def _over_budget(ctx: Context, calls: list[ToolCall], limit: int) -> Context:
    text = f"Not run: the budget of {limit} tool calls is spent. Answer with what you have."
    results = dict(ctx.tool_results)
    for call in calls:
        results[call.id] = ToolResult(call.id, text, True, "over_budget")
    return ctx.replace(tool_results=results)


def _batches(ctx: Context, calls: list[ToolCall]) -> tuple[tuple[ToolCall, ...], ...]:
    batches: list[list[ToolCall]] = []
    open_batch: list[ToolCall] = []
    for call in calls:
        tool = ctx.tools.get(call.name)
        if tool is not None and not tool.parallel_safe:
            batches.append([call])
            open_batch = []
            continue
        if not open_batch or len(open_batch) >= ctx.limits.max_parallel_calls:
            open_batch = []
            batches.append(open_batch)
        open_batch.append(call)
    return tuple(map(tuple, batches))
