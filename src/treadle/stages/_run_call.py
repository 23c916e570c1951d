"""Running one call: its locks, its node in the run state, its events, and its result."""

from __future__ import annotations

from collections.abc import Mapping

from treadle import labels
from treadle.context import Context
from treadle.effects import NOW, Call, Emit, Steps, Timed
from treadle.errors import OutcomeUnknownError
from treadle.events import ToolFinished, ToolStarted
from treadle.messages import ToolCall, ToolResult
from treadle.run_state import RunNode, RunNodeStatus
from treadle.stages._answers import unknown
from treadle.stages._attempts import SubagentPausedError, Work, failed_call, failure_of_call
from treadle.tools import LockedError, NotRun, not_run

_INIT = RunNodeStatus.INIT  # access to a member of an Enum is slow


def perform_call(
    ctx: Context, call: ToolCall, node: RunNode, work: Work, within: str | None = None
) -> Steps[ToolResult]:
    """Run a valid call that was started, within another one as a step of its recipe; first take its locks."""
    tool = ctx.tools.get(call.name)
    run = _run if tool is None or tool.lock is None else _locked
    return run(ctx, call, node, work, within)


def _run(
    ctx: Context, call: ToolCall, node: RunNode, work: Work, within: str | None
) -> Steps[ToolResult]:
    """Run a call that holds its locks; record and report its start and its end, whatever the outcome."""
    run = ctx.run
    in_flight, started = run.in_flight, run.ledger.clock
    if run.has_listeners:
        started = yield NOW
    is_new = node.status is _INIT  # after a pause it is running already
    if is_new:
        node.start(started)
    try:
        if run.has_listeners:
            yield Emit(ToolStarted(iteration=ctx.iteration, call=call, at=started, within=within))
        result, began, ended = yield from work
    except GeneratorExit:
        raise
    except SubagentPausedError as waiting:
        in_flight.paused[call.id] = waiting.paused
        return (yield from _waiting(ctx, call, started))
    except OutcomeUnknownError:
        if run.asks_unknown and within is None:  # nothing can be asked within a recipe
            text = "ran, so it may have taken effect already. Run it again?"
            in_flight.unknown[call.id] = f"The program ended while {call.name!r} {text}"
            return (yield from _waiting(ctx, call, started))
        result, began, ended = unknown(ctx, call), started, (yield NOW)
    except BaseException:
        in_flight.calls_run += within is None
        yield from _interrupted(ctx, call, node, started)
        raise
    in_flight.calls_run += within is None
    node.started_at = began if is_new else node.started_at
    run.ledger.advance(ended)
    run.record(call, node, result, ended)
    if run.has_listeners:
        yield _finished(ctx, call, (result, started, ended))
    return result


def _interrupted(ctx: Context, call: ToolCall, node: RunNode, started: float) -> Steps[None]:
    """Record and report the end of a call that was interrupted."""
    ended = yield NOW
    # "cancelled", or what it returned meanwhile: an effect, since it is set outside of the steps.
    ask = ctx.run.in_flight.late_result
    late = yield Call(ask, call.id, label=labels.CANCELLED, key=call.id)
    if late is None:
        node.fail("cancelled", ended)
        return
    ctx.run.record(call, node, late, ended)
    if ctx.run.has_listeners:
        yield _finished(ctx, call, (late, started, ended))


def _waiting(ctx: Context, call: ToolCall, started: float) -> Steps[ToolResult]:
    """Note that a call, or its subagent, waits for a person: it is over for now, and has no result."""
    ctx.run.in_flight.running.pop(call.id, None)
    result = ToolResult(call.id, "It waits for approval.", status="waiting")
    ended = yield NOW
    if ctx.run.has_listeners:
        yield _finished(ctx, call, (result, started, ended))
    return result


def _finished(ctx: Context, call: ToolCall, outcome: Timed[ToolResult]) -> Emit:
    result, started, ended = outcome
    failures = ctx.run.ledger.failures
    return Emit(
        ToolFinished(
            iteration=ctx.iteration,
            call=call,
            result=result,
            at=ended,
            duration=ended - started,
            exception=failures.get(call.id) if result.is_error else None,
        )
    )


def _locked(
    ctx: Context, call: ToolCall, node: RunNode, work: Work, within: str | None
) -> Steps[ToolResult]:
    """Run a call while it holds its keys; it starts when it has them all."""
    run = ctx.run
    try:
        keys = ctx.tools[call.name].lock_keys(call.input or {})
    except Exception as error:  # noqa: BLE001 - a function of the tool's author
        result = failed_call(ctx, call, failure_of_call(call, error), NotRun.LOCKED.value)
    else:
        # What an outer call holds has another name: the calls inside one holder do not overlap either.
        outer = run.held_locks if within is None else held_locks(ctx, within)
        names = {key: f"{outer[key]}>" if key in outer else key for key in keys}
        run.in_flight.held_locks[call.id] = {**outer, **names}
        # A call that holds a key must not wait for another key: two such calls could deadlock.
        may_wait = {name: key in outer or not outer for key, name in names.items()}
        try:
            running = _run(ctx, call, node, work, within)
            return (yield from run.locks.holding(may_wait, running))
        except LockedError as error:
            result = not_run(call, NotRun.LOCKED, error=error)
        finally:
            run.in_flight.held_locks.pop(call.id, None)
    return (yield from _run(ctx, call, node, _at_once(ctx, result), within))


def _at_once(ctx: Context, result: ToolResult) -> Work:
    now = (yield NOW) if ctx.run.has_listeners else ctx.run.ledger.clock
    return result, now, now


def held_locks(ctx: Context, call_id: str) -> Mapping[str, str]:
    """The keys that a call and its outer calls hold, each with the name under which it is held."""
    return ctx.run.in_flight.held_locks.get(call_id, ctx.run.held_locks)
