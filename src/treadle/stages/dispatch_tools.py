"""`dispatch_tools`: runs the plan."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.pipeline import Parallel, Steps, Stopped, Within, stage
from treadle.stages.recipes import cook
from treadle.stages.tool_runner import ToolRunner, attempts
from treadle.types import Context, RunNode, ToolCall, ToolResult


@stage(requires=("plan",), provides=("tool_results",))
def dispatch_tools(ctx: Context) -> Steps[Context]:
    """Run the planned calls, batch after batch, those of one batch at the same time.

    Every call comes to a result: an exception, a time limit and a cancellation too. One that fails leaves
    its siblings alone.
    """
    if not ctx.plan.batches:
        return ctx
    runner: ToolRunner = ctx.runner
    calls = ctx.plan.calls
    runner.next_batch()
    runner.start(calls)
    nodes = _nodes(ctx, calls)
    for batch in ctx.plan.batches:
        if runner.stop is None:
            yield from _run_batch(ctx, batch, nodes)
        else:
            try:
                yield Within(_run_batch(ctx, batch, nodes), until=runner.stop)
            except Stopped:
                runner.cancel_all()  # again: a recording knows only the effects, not who stopped them
                break
    results = {**ctx.tool_results, **runner.results}
    count = ctx.tool_calls_count + len(calls)
    return ctx.replace(tool_results=results, tool_calls_count=count)


def _nodes(ctx: Context, calls: tuple[ToolCall, ...]) -> dict[str, RunNode]:
    """Make a node for each call, in the order of the request, in the record of this iteration."""
    iteration = ctx.state.current_node
    created = iteration.created_at if iteration is not None else 0.0
    step_index = iteration.step_index if iteration is not None else ctx.iteration - 1
    agent_name = ctx.state.agent_name
    nodes: dict[str, RunNode] = {}
    for call in calls:
        nodes[call.id] = RunNode(
            agent_name, step_index, "tool", call.name, call.id, created_at=created
        )
    if iteration is not None:
        iteration.tool_calls.extend(nodes.values())
    return nodes


def _run_batch(
    ctx: Context, batch: tuple[ToolCall, ...], nodes: Mapping[str, RunNode]
) -> Steps[None]:
    if len(batch) == 1:
        yield from _run_call(ctx, batch[0], nodes[batch[0].id])
    else:
        steps = [_run_call(ctx, call, nodes[call.id]) for call in batch]
        yield Parallel(steps, ctx.limits.max_parallel_calls)


def _run_call(ctx: Context, call: ToolCall, node: RunNode) -> Steps[ToolResult]:
    """Run one call: by its recipe where the resolver has one, else directly."""
    tool = ctx.tools.get(call.name)
    is_resolved = ctx.resolve_tool is not None and (tool is None or tool.fn is None)
    steps = cook(ctx, call, node) if is_resolved else attempts(ctx, call)
    runner: ToolRunner = ctx.runner
    return runner.run(ctx, call, node, steps)
