"""Calls that wait for a person: what may run before they do, and what was decided of them."""

from __future__ import annotations

from treadle.stages.tool_runner import ToolRunner
from treadle.types import Context, JSONDict, Paused, PendingCall, ToolCall, ToolResult

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
                ctx.budget.give_back_call(call.name)
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
