"""What stages noted: emitted as events before the next request, and at the end of an iteration."""

from __future__ import annotations

from treadle.context import Context, Refused, Repaired, Reported
from treadle.effects import Emit, Steps
from treadle.events import (
    CallNotRun,
    HistoryRepaired,
    ModelRequested,
    ModelResponded,
    ToolFinished,
    ToolStarted,
)
from treadle.stages._circuit_breaker import report_calls


def report_notes(ctx: Context) -> Steps[None]:
    """Emit what stages noted, and report the calls that the shared circuit breaker does not know yet."""
    run, at = ctx.run, ctx.run.ledger.clock
    while run.ledger.notes:
        note = run.ledger.notes.pop(0)
        if not run.has_listeners:
            continue
        match note:
            case Repaired(stage, repairs):
                yield Emit(HistoryRepaired(repairs=repairs, stage=stage))
            case Refused(call, reason):
                yield Emit(CallNotRun(iteration=ctx.iteration, call=call, reason=reason))
            case Reported(call, result):
                yield Emit(ToolStarted(iteration=ctx.iteration, call=call, at=at))
                yield Emit(
                    ToolFinished(
                        iteration=ctx.iteration, call=call, result=result, at=at, duration=0.0
                    )
                )
            case _:
                yield Emit(ModelRequested(iteration=ctx.iteration, at=at, messages=note.messages))
                yield Emit(
                    ModelResponded(
                        iteration=ctx.iteration,
                        response=note.response,
                        at=at,
                        duration=0.0,
                        status=note.response.status,
                    )
                )
    while run.ledger.unsettled:
        yield from report_calls(ctx, (run.ledger.unsettled.pop(0),))
