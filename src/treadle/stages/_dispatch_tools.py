"""`dispatch_tools`: runs the plan."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from treadle.context import Context
from treadle.effects import Bounded, Parallel, Steps, Stopped
from treadle.messages import JSONDict, ToolCall, ToolResult
from treadle.pipeline import stage
from treadle.results import Paused, PendingCall
from treadle.run_state import RunNode
from treadle.stages._plan_calls import again
from treadle.stages._run_call import ToolRunner, attempts, cook
from treadle.stages._shared_breaker import noted

Batches = tuple[tuple[ToolCall, ...], ...]


def decided(ctx: Context) -> tuple[Context, Batches, dict[str, Paused]]:
    """Tell what may run of a plan, some calls of which need approval.

    In the order of the request, everything up to the first call of which nothing was decided may run.

    Args:
        ctx: has the plan, the results so far and the decisions.

    Returns:
        The context with the answers to what was denied; the batches; and the runs within calls of which nothing
        was decided, by id of the call.
    """
    plan, results = ctx.plan, dict(ctx.tool_results)
    batches: list[tuple[ToolCall, ...]] = []
    still_paused: dict[str, Paused] = {}
    is_held = False
    for batch in plan.batches:
        runnable: list[ToolCall] = []
        for call in batch:
            if call.id in results:
                continue
            if call.id in ctx.children and (is_held or not _is_decided(ctx, call.id)):
                still_paused[call.id] = _paused(ctx.children[call.id])
                is_held = True
            if is_held:
                continue
            if call.id not in plan.approvals:
                runnable.append(call)
                continue
            approval = ctx.approvals.get(call.id)
            if approval is None:
                is_held = True
            elif not approval.runs:
                results[call.id] = _denied(call, approval.reason)
                ctx.budget.release_call(call.name)
            else:
                runnable.append(call)
        if runnable:
            batches.append(tuple(runnable))
    return ctx.replace(tool_results=results), tuple(batches), still_paused


def _is_decided(ctx: Context, call_id: str) -> bool:
    """Whether anything was decided for which the run within a call waits."""
    waiting = [pending["id"] for pending in ctx.children[call_id]["pending"]]
    return not waiting or any(f"{call_id}/{inner}" in ctx.approvals for inner in waiting)


def _paused(state: JSONDict) -> Paused:
    return Paused(tuple(PendingCall(**pending) for pending in state["pending"]), state=state)


def pending_of(ctx: Context) -> tuple[PendingCall, ...]:
    """The calls that wait for a person: those of the plan, and those of runs that are calls of it."""
    runner: ToolRunner = ctx.runner
    waiting: list[PendingCall] = []
    for call in ctx.plan.calls:
        paused = runner.paused.get(call.id)
        if paused is not None:
            waiting.extend(
                PendingCall(f"{call.id}/{inner.id}", inner.name, inner.arguments, inner.question)
                for inner in paused.pending
                if f"{call.id}/{inner.id}" not in ctx.approvals
            )
        elif call.id in ctx.plan.approvals and call.id not in ctx.tool_results:
            question = ctx.plan.approvals[call.id]
            if call.id not in ctx.approvals:
                waiting.append(PendingCall(call.id, call.name, dict(call.input or {}), question))
    return tuple(waiting)


def _denied(call: ToolCall, reason: str) -> ToolResult:
    why = f": {reason.rstrip('. ')}" if reason else ""
    text = f"Not run: a person did not approve this call{why}. Do without it, or ask."
    return ToolResult(call.id, text, True, "denied")


@stage(requires=("plan",), provides=("tool_results",))
def dispatch_tools(ctx: Context) -> Steps[Context]:
    """Run the planned calls, batch after batch, those of one batch at the same time.

    Every call comes to a result: an exception, a time limit and a cancellation too. One that fails leaves
    its siblings alone. Where a call waits for a person, what comes before it runs, and the run is put aside.
    """
    plan = ctx.plan
    if not plan.batches:
        return ctx
    batches: Batches = plan.batches
    still_paused: Mapping[str, Paused] = {}
    if plan.approvals or ctx.children:
        ctx, batches, still_paused = decided(ctx)
    calls = tuple(itertools.chain.from_iterable(batches))
    runner: ToolRunner = ctx.runner
    runner.next_batch()
    nodes, new = _nodes(ctx, calls)
    runner.start(calls, new)
    for batch in batches:
        if runner.stop is not None:
            if (yield from _is_stopped(ctx, batch, nodes)):
                break
        elif len(batch) == 1:
            yield from _run_call(ctx, batch[0], nodes[batch[0].id])
        else:
            yield from _run_batch(ctx, batch, nodes)
        if runner.paused:
            break
    runner.paused.update(still_paused)
    results = {**ctx.tool_results, **runner.results}
    ctx = ctx.replace(
        tool_results=results, tool_calls_count=ctx.tool_calls_count + len(runner.results)
    )
    waiting = pending_of(ctx) if plan.approvals or runner.paused else ()
    if waiting or runner.paused:  # a stage of a child's may have paused it for another reason
        return ctx.pause(waiting)
    if runner.breaker is not None:
        yield from noted(ctx, plan.calls)
    return _concluded(ctx)


def _is_stopped(
    ctx: Context, batch: tuple[ToolCall, ...], nodes: Mapping[str, RunNode]
) -> Steps[bool]:
    """Run a batch that may be stopped from outside; return whether it was."""
    runner: ToolRunner = ctx.runner
    try:
        yield Bounded(_run_batch(ctx, batch, nodes), until=runner.stop)
    except Stopped:
        runner.cancel_all()  # again: a recording knows only the effects, not who stopped them
        return True
    return False


def _concluded(ctx: Context) -> Context:
    """Take in what the calls brought, and answer those that another one of the same batch answers."""
    plan, results = ctx.plan, ctx.tool_results
    learned: list[tuple[str, str, bool]] = []
    has_changed = False
    for call in plan.calls:
        result = results.get(call.id)
        if result is not None and result.status in _RAN:
            learned.append((call.fingerprint, result.content, result.is_error))
            tool = ctx.tools.get(call.name)
            # What must not run beside others is taken for something that changes what they see.
            if tool is not None and not tool.parallel_safe and not result.is_error:
                has_changed = True
    if learned:
        ctx.runner.evidence.learn(ctx.iteration, learned, has_changed=has_changed)
    if not plan.duplicates:
        return ctx
    answers = {twin: _twin(twin, results.get(first)) for twin, first in plan.duplicates.items()}
    return ctx.replace(tool_results={**results, **answers})


_RAN = frozenset({"done", "timeout"})


def _twin(call_id: str, first: ToolResult | None) -> ToolResult:
    if first is None:
        return ToolResult(call_id, "Not run: the same call beside it was not.", True, "skipped")
    text = f"Not run twice: the same call stands beside it. Its result:\n{again(first.content)}"
    return ToolResult(call_id, text, first.is_error, "suppressed")


def _nodes(
    ctx: Context, calls: tuple[ToolCall, ...]
) -> tuple[dict[str, RunNode], tuple[ToolCall, ...]]:
    """Make a node for each call, in the order of the request, in the record of this iteration.

    Returns:
        The nodes by id, and the calls that had none; the others were begun before a pause.
    """
    iteration = ctx.state.current_node
    nodes: dict[str, RunNode] = {}
    if iteration is None:
        created, step_index = 0.0, ctx.iteration - 1
    else:
        created, step_index = iteration.created_at, iteration.step_index
        if iteration.tool_calls:
            nodes = {node.group_id or "": node for node in iteration.tool_calls}
            calls = tuple(call for call in calls if call.id not in nodes)
    agent_name = ctx.state.agent_name
    for call in calls:
        nodes[call.id] = node = RunNode(
            agent_name, step_index, "tool", call.name, call.id, created_at=created
        )
        if iteration is not None:
            iteration.tool_calls.append(node)
    return nodes, calls


def _run_batch(
    ctx: Context, batch: tuple[ToolCall, ...], nodes: Mapping[str, RunNode]
) -> Steps[None]:
    steps = [_run_call(ctx, call, nodes[call.id]) for call in batch]
    yield Parallel(steps, ctx.limits.max_parallel_calls)


def _run_call(ctx: Context, call: ToolCall, node: RunNode) -> Steps[ToolResult]:
    """Run one call: by its recipe where the resolver has one, else directly."""
    tool = ctx.tools.get(call.name)
    is_resolved = ctx.resolve_tool is not None and (tool is None or not tool.has_implementation)
    steps = cook(ctx, call, node) if is_resolved else attempts(ctx, call)
    runner: ToolRunner = ctx.runner
    return runner.run(ctx, call, node, steps)
