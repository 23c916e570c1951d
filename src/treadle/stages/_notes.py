"""The notes of stages: emitted as events before the next request, and at the end of an iteration."""

from __future__ import annotations

from typing import Any

from treadle.context import Context, Note
from treadle.effects import Emit, Steps
from treadle.events import (
    CallNotRun,
    HistoryRepaired,
    ModelRequested,
    ModelResponded,
    ToolFinished,
    ToolStarted,
)
from treadle.messages import ToolCall, ToolResult
from treadle.stages._circuit_breaker import report_calls
from treadle.tools import NotRun


def _is_refused(ctx: Context, call: ToolCall, reason: NotRun) -> bool:
    """Whether a noted refusal holds: a verb notes it at once, also in a context that its stage discards."""
    answer = ctx.tool_results.get(call.id)
    is_open = any(one.id == call.id for one in ctx.tool_calls)
    is_answered = answer is not None and answer.status == reason
    return not ctx.run.has_run(call) and (is_answered or not is_open)


def report_notes(ctx: Context) -> Steps[None]:
    """Emit the notes of stages, and report the calls that the shared circuit breaker does not know yet."""
    run = ctx.run
    when: dict[str, Any] = {"iteration": ctx.iteration, "at": run.ledger.clock}
    while run.ledger.notes:
        note = run.ledger.notes.pop(0)
        if not run.has_listeners:
            continue
        match note:
            case Note(ToolCall() as call, NotRun() as reason):
                if _is_refused(ctx, call, reason):
                    yield Emit(CallNotRun(iteration=ctx.iteration, call=call, reason=reason))
            case Note(ToolCall() as call, ToolResult() as result):
                yield Emit(ToolStarted(call=call, **when))
                yield Emit(ToolFinished(call=call, result=result, duration=0.0, **when))
            case Note(str() as stage, repairs):
                yield Emit(HistoryRepaired(repairs=repairs, stage=stage))
            case Note(messages, response):
                status = response.status
                yield Emit(ModelRequested(messages=messages, **when))
                yield Emit(ModelResponded(response=response, duration=0.0, status=status, **when))
    while run.ledger.unsettled:
        yield from report_calls(ctx, (run.ledger.unsettled.pop(0),))
