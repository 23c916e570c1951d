"""The notes of stages: emitted as events before the next request, and at the end of an iteration."""

from __future__ import annotations

from typing import Any

from treadle import events
from treadle.context import Context, Note
from treadle.effects import Emit, Steps
from treadle.messages import ToolCall
from treadle.stages._circuit_breaker import report_calls
from treadle.tools import NotRun


def report_refused(ctx: Context) -> Steps[None]:
    """Emit the calls that do not run, each once, with the first reason."""
    run = ctx.run
    for call in ctx.tool_calls:
        key, reason = (ctx.iteration, call.id), ctx.plan.not_run.get(call.id)
        # The reasons of a custom plan may be other texts.
        if isinstance(reason, NotRun) and key not in run.ledger.refused:
            run.ledger.refused.add(key)
            yield Emit(events.CallNotRun(iteration=ctx.iteration, call=call, reason=reason))


def report_notes(ctx: Context) -> Steps[None]:
    """Emit the notes of stages, and report the calls that the shared circuit breaker may not know yet."""
    run = ctx.run
    when: dict[str, Any] = {"iteration": ctx.iteration, "at": run.ledger.clock}
    for note in (*ctx.notes, *run.ledger.notes) if run.has_listeners else ():
        if note.is_reported:
            continue
        note.is_reported = True
        match note:
            case Note(ToolCall() as call, result):
                yield Emit(events.ToolStarted(call=call, **when))
                yield Emit(events.ToolFinished(call=call, result=result, duration=0.0, **when))
            case Note(str() as stage, repairs):
                yield Emit(events.HistoryRepaired(repairs=repairs, stage=stage))
            case Note(messages, response):
                status = response.status
                yield Emit(events.ModelRequested(messages=messages, **when))
                yield Emit(
                    events.ModelResponded(response=response, duration=0.0, status=status, **when)
                )
    run.ledger.notes.clear()
    if run.has_listeners and ctx.plan.not_run:
        yield from report_refused(ctx)
    while run.ledger.unsettled:
        yield from report_calls(ctx, (run.ledger.unsettled.pop(0),))
