"""Calls of terminal tools: which call ends the run, and how the others are answered."""

from __future__ import annotations

import dataclasses
from typing import Any

from treadle.context import Context
from treadle.messages import ToolCall, ToolResult
from treadle.results import PendingCall
from treadle.stages._decisions import edit_note, refusal
from treadle.tools import NotRun, not_run


def ending_call(ctx: Context) -> tuple[Context, ToolCall | None]:
    """Find the call that ends the run: the first of a terminal tool that may.

    Args:
        ctx: the context.

    Returns:
        The context with the answers to denied calls, and the call. If a call needs approval and has no
        decision, the context pauses the run, and there is no call.
    """
    call = terminal_call(ctx)
    while call is not None:
        decided = ctx.approvals.get(call.id)
        if decided is None:
            paused = _pausing(ctx, call)
            return (ctx, call) if paused is None else (paused, None)
        refused = refusal(ctx, call, decided)
        if refused is None:
            return ctx, call
        ctx = ctx.evolve(tool_results={**ctx.tool_results, call.id: refused})
        call = terminal_call(ctx)
    return ctx, None


def terminal_call(ctx: Context) -> ToolCall | None:
    """The first call of a terminal tool that has no result yet; None if there is none."""
    for call in ctx.tool_calls:
        tool = ctx.tools.get(call.name)
        if tool is not None and tool.terminal and call.id not in ctx.tool_results:
            return call
    return None


def _pausing(ctx: Context, call: ToolCall) -> Context | None:
    """The context that waits for the approval of a call; None if the call needs none."""
    # A rule is asked once: it may depend on more than the arguments.
    question = ctx.plan.approvals.get(call.id)
    if question is None:
        question = ctx.tools[call.name].approval_question(call.input or {})
    if question is None:
        return None
    plan = dataclasses.replace(ctx.plan, approvals={**ctx.plan.approvals, call.id: question})
    waiting = PendingCall(call.id, call.name, dict(call.input or {}), question)
    return ctx.evolve(plan=plan).pause((waiting,))


def with_output(ctx: Context, ending: ToolCall, output: Any) -> Context:
    """End the run with a call of a terminal tool; the other calls are answered and do not run."""
    results = dict(ctx.tool_results)
    text, decided = "Accepted: this is the final output.", ctx.approvals.get(ending.id)
    if decided is not None and decided.arguments is not None:
        text = f"{text}\n\n{edit_note(ending)}"
    results[ending.id] = ToolResult(ending.id, text)
    for call in ctx.tool_calls:
        if call.id not in results:
            results[call.id] = not_run(call, NotRun.ENDED_RUN, ending=ending.name)
    return ctx.evolve(tool_results=results).done(output)
