"""Running one call: its locks, its attempts, its node in the run state, its events, and its result."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from treadle import effects, labels
from treadle.context import Context
from treadle.effects import (
    NOW,
    Bounded,
    Call,
    Emit,
    Mode,
    Reporter,
    Sleep,
    Steps,
    Then,
    Timed,
    TimeLimitReached,
    is_awaitable,
    without_frame,
)
from treadle.errors import OutcomeUnknownError, Retry
from treadle.events import ToolFinished, ToolRetried, ToolStarted
from treadle.messages import ATOMS, ToolCall, ToolResult, copy_json, safe_str
from treadle.model import doubled
from treadle.results import Err, Ok, Paused
from treadle.run_state import RunNode, RunNodeStatus
from treadle.stages._answers import RUN_AGAIN, unknown
from treadle.stages._progress import ProgressReporter
from treadle.tools import (
    Invoke,
    LockedError,
    NotRun,
    Resolver,
    Tool,
    ToolCallTable,
    ToolContext,
    error_text,
    is_plain,
    is_plain_error,
    make_text,
    not_run,
    render,
    tool_result,
    truncate,
)
from treadle.tracebacks import from_user_code, has_traceback

RETRY_DELAY = 0.1
"""Seconds before the second attempt of a tool; each further delay is twice as long, up to 30 s."""

log = logging.getLogger("treadle.tools")


class SubagentPausedError(Exception):
    """A subagent waits for approval, so its call waits as well.

    Args:
        paused: the paused subagent.
    """

    def __init__(self, paused: Paused) -> None:
        super().__init__("a subagent of this call waits for approval")
        self.paused = paused


class ReturnedError(Exception):
    """A tool returned an exception as ``Err(exception)``: the call failed, and is not tried again.

    Args:
        error: the exception.
        text: the result of the call, for the model.
    """

    def __init__(self, error: BaseException, text: str) -> None:
        super().__init__(text)
        self.error = error
        self.text = text


def perform_call(
    ctx: Context,
    call: ToolCall,
    node: RunNode,
    work: Steps[Timed[ToolResult]],
    within: str | None = None,
) -> Steps[ToolResult]:
    """Run a valid call that was started: take its locks, record and emit its start and its end.

    Args:
        ctx: the context.
        call: the call.
        node: its node in the run state.
        work: returns the result, with the times of its start and end.
        within: the id of the call that it is a step of; None for a call of the model.
    """
    tool = ctx.tools.get(call.name)
    run = _run if tool is None or tool.lock is None else _locked
    return run(ctx, call, node, work, within)


def _run(
    ctx: Context,
    call: ToolCall,
    node: RunNode,
    work: Steps[Timed[ToolResult]],
    within: str | None = None,
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
        if ctx.run.asks_unknown and within is None:  # nothing can be asked within a recipe
            in_flight.unknown[call.id] = RUN_AGAIN.format(call.name)
            return (yield from _waiting(ctx, call, started))
        result, began, ended = unknown(ctx, call), started, (yield NOW)
    except BaseException:
        yield from _interrupted(ctx, call, node, started, within)
        raise
    in_flight.running.pop(call.id, None)  # a thread may have cancelled the call as it ended
    in_flight.results[call.id] = result
    in_flight.calls_run += within is None
    node.started_at = began if is_new else node.started_at
    run.ledger.advance(ended)
    _end(node, result, ended)
    if run.has_listeners:
        yield _finished(ctx, call, started, ended, result)
    return result


def _waiting(ctx: Context, call: ToolCall, started: float) -> Steps[ToolResult]:
    """Note that a call, or its subagent, waits for a person: it is over for now, and has no result."""
    ctx.run.in_flight.running.pop(call.id, None)
    result = ToolResult(call.id, "It waits for approval.", status="waiting")
    ended = yield NOW
    if ctx.run.has_listeners:
        yield _finished(ctx, call, started, ended, result)
    return result


def _interrupted(
    ctx: Context, call: ToolCall, node: RunNode, started: float, within: str | None
) -> Steps[None]:
    """Record a cancelled call, with the result that it returned nevertheless, if any."""
    in_flight = ctx.run.in_flight
    if within is None:
        in_flight.calls_run += 1
    ended = yield NOW
    # "cancelled", or what it returned meanwhile: an effect, since it is set outside of the steps.
    late = yield Call(in_flight.late_result, call.id, label=labels.CANCELLED, key=call.id)
    if late is None:
        node.fail("cancelled", ended)
        return
    in_flight.running.pop(call.id, None)
    in_flight.results[call.id] = late
    _end(node, late, ended)
    if ctx.run.has_listeners:
        yield _finished(ctx, call, started, ended, late)


def _end(node: RunNode, result: ToolResult, ended: float) -> None:
    if result.status == "timeout":
        node.timeout(ended)
    elif result.is_error:
        node.fail(result.content, ended)
    else:
        node.succeed(at=ended)


def _finished(
    ctx: Context, call: ToolCall, started: float, ended: float, result: ToolResult
) -> Emit:
    return Emit(
        ToolFinished(
            iteration=ctx.iteration,
            call=call,
            result=result,
            at=ended,
            duration=ended - started,
            exception=ctx.run.ledger.failures.get((ctx.iteration, call.id))
            if result.is_error
            else None,
        )
    )


# Locks


def _locked(
    ctx: Context,
    call: ToolCall,
    node: RunNode,
    work: Steps[Timed[ToolResult]],
    within: str | None = None,
) -> Steps[ToolResult]:
    """Run a call while it holds its keys; it starts when it has them all.

    A key that an outer call holds is taken under another name, so that the calls inside one holder do not
    overlap either.
    """
    run = ctx.run
    try:
        keys = ctx.tools[call.name].lock_keys(call.input or {})
    except Exception as error:  # noqa: BLE001 - a function of the tool's author
        result = failed_call(ctx, call, failure_of_call(call, None, error), NotRun.LOCKED.value)
    else:
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


def held_locks(ctx: Context, call_id: str) -> Mapping[str, str]:
    """The keys that a call and its outer calls hold, each with the name under which it is held."""
    return ctx.run.in_flight.held_locks.get(call_id, ctx.run.held_locks)


def _at_once(ctx: Context, result: ToolResult) -> Steps[Timed[ToolResult]]:
    """Steps that return a result at once."""
    now = (yield NOW) if ctx.run.has_listeners else ctx.run.ledger.clock
    return result, now, now


# Attempts


def attempts(ctx: Context, call: ToolCall, tool: Tool | None) -> Steps[Timed[ToolResult]]:
    """Make a call, with the retries of its tool; an exception becomes its result."""
    retries = tool.retries if tool is not None else 0
    is_in_steps = _is_in_steps(ctx, tool)
    attempt = 1
    started = ctx.run.ledger.clock
    while True:
        try:
            if is_in_steps:
                return (yield from _in_steps(ctx, call, tool, attempt))
            effect = _effect(ctx, call, tool, attempt)
            if tool is None or tool.timeout is None:
                return (yield effect)
            return (yield Bounded(_one(effect), seconds=tool.timeout))
        except (SubagentPausedError, OutcomeUnknownError):
            raise
        except Retry as error:
            ended = yield NOW
            return ToolResult(call.id, truncate(safe_str(error)), True, "retry"), started, ended
        except Exception as raised:  # noqa: BLE001 - a tool may raise anything; it becomes the result
            failure = failure_of_call(call, tool, raised)
            is_final = attempt > retries or isinstance(raised, ReturnedError)
        ended = yield NOW
        if is_final:
            return failed_call(ctx, call, failure), started, ended
        delay = doubled(RETRY_DELAY, attempt)
        if ctx.run.has_listeners:
            yield Emit(
                ToolRetried(
                    iteration=ctx.iteration,
                    call=call,
                    attempt=attempt,
                    error=failure.text,
                    error_type="timeout" if failure.error is None else type(failure.error).__name__,
                    delay=delay,
                    at=ended,
                    exception=failure.error,
                )
            )
        del failure  # the exception, and with it the frames of the tool
        yield Sleep(delay)
        attempt += 1


def _is_in_steps(ctx: Context, tool: Tool | None) -> bool:
    """Whether an attempt takes more than one effect: the tool is made of steps, or its progress is followed."""
    if tool is not None and tool.has_implementation:
        may_report = tool.takes_context and ctx.run.has_listeners
        return tool.steps is not None or tool.is_generator or may_report
    return ctx.run.resolver is not None and ctx.run.resolver.is_generator


def _in_steps(
    ctx: Context, call: ToolCall, tool: Tool | None, attempt: int
) -> Steps[Timed[ToolResult]]:
    if tool is not None and tool.steps is not None:
        return (yield from _by_steps(call, tool.steps(ctx, call), tool.timeout))
    steps = _with_progress(ctx, call, tool, attempt)
    if tool is None or tool.timeout is None:
        return (yield from steps)
    return (yield Bounded(steps, seconds=tool.timeout))


def _with_progress(
    ctx: Context, call: ToolCall, tool: Tool | None, attempt: int
) -> Steps[Timed[ToolResult]]:
    """One attempt of a call that may report progress."""
    progress = ProgressReporter(
        ctx.iteration,
        call,
        has_listeners=ctx.run.has_listeners,
        is_generator=tool is None or tool.fn is None or tool.is_generator,
    )
    try:
        return (yield _effect(ctx, call, tool, attempt, progress))
    finally:
        progress.end()


def _one(effect: Call) -> Steps[Any]:
    return (yield effect)


def _by_steps(call: ToolCall, steps: Steps[Any], timeout: float | None) -> Steps[Timed[ToolResult]]:
    """Run a tool that is made of steps, such as a subagent, inside this run."""
    started = yield NOW
    value = (yield from steps) if timeout is None else (yield Bounded(steps, seconds=timeout))
    ended = yield NOW
    return _result(call, value), started, ended


_ASYNC, _THREAD, _INIT = Mode.ASYNC, Mode.THREAD, RunNodeStatus.INIT  # looked up slowly
_NO_ARGUMENTS: Mapping[str, Any] = {}


def _effect(
    ctx: Context,
    call: ToolCall,
    tool: Tool | None,
    attempt: int,
    progress: ProgressReporter | None = None,
) -> Call:
    """The effect of one attempt of a call in a run."""
    takes_context = tool is not None and tool.fn is not None and tool.takes_context
    context = _tool_context(ctx, call, attempt, progress) if takes_context else None
    return call_effect(call, tool, ctx.run.resolver, context, ctx.run.in_flight, progress=progress)


def call_effect(
    call: ToolCall,
    tool: Tool | None,
    resolver: Resolver | None,
    context: ToolContext | None,
    in_flight: ToolCallTable,
    *,
    progress: ProgressReporter | None = None,
) -> Call:
    """Make the effect of one attempt: the tool's function, or the resolver. Its outcome is the result, `Timed`.

    Args:
        call: the call.
        tool: its tool; None if only the resolver knows it.
        resolver: runs the calls of tools without a function; None if there is none.
        context: what the tool can read about the run; None if it takes none.
        in_flight: records the result where the call runs.
        progress: takes what the tool reports; None if nobody listens.
    """
    if tool is not None and tool.fn is not None:
        invoke, mode = tool.invoke, _ASYNC if tool.is_async else _THREAD
    elif resolver is None:
        raise RuntimeError(f"there is no resolver to run {call.name!r}")
    else:
        invoke, mode = _resolving(resolver, call), resolver.mode
    return Call(
        CallAttempt.run_async if mode is _ASYNC else CallAttempt.run_sync,
        CallAttempt(invoke, call, context, in_flight, progress),
        mode=mode,
        label=labels.EXECUTE_TOOL,
        key=call.id,
        reporting=True,
        about=resolver if tool is None or tool.fn is None else tool,
        once=tool is None or not tool.idempotent,
    )


def _resolving(resolver: Resolver, call: ToolCall) -> Invoke:
    """Invoke a resolver in place of a tool's function; it receives the call, with a copy of its arguments."""
    return lambda arguments, _context: resolver.fn(
        dataclasses.replace(call, input=copy_json(dict(arguments)))
    )


class CallAttempt(NamedTuple):
    """One attempt of a call: the argument of its effect, made where the driver performs it."""

    invoke: Invoke
    call: ToolCall
    context: ToolContext | None
    in_flight: ToolCallTable
    progress: ProgressReporter | None

    async def run_async(self, reporter: Reporter) -> Timed[ToolResult]:
        """Call an async tool."""
        invoke, call = self.invoke, self.call
        if self.progress is not None:
            invoke = self.progress.wrap_async(invoke, reporter)
        started = reporter.now()
        try:
            value = await invoke(call.input or _NO_ARGUMENTS, self.context)
        except Exception as error:
            if not is_plain_error(error):
                await effects.in_daemon_thread(functools.partial(make_text, error))
            raise
        result = _quick_result(call, value) or await _late_result(call, value)
        return self.in_flight.complete(result), started, reporter.now()

    def run_sync(self, reporter: Reporter) -> Any:
        """Call a sync tool. It may return anything, but a result is data, so it is made here."""
        invoke, call = self.invoke, self.call
        if self.progress is not None:
            invoke = self.progress.wrap(invoke, reporter)
        started = reporter.now()

        def timed(result: ToolResult) -> Timed[ToolResult]:
            return self.in_flight.complete(result), started, reporter.now()

        try:
            value = invoke(call.input or _NO_ARGUMENTS, self.context)
            if is_awaitable(value):
                return Then(value, functools.partial(_awaited, call, timed), _raise_late)
            return timed(_result(call, value))
        except Exception as error:
            if not is_plain_error(error):
                make_text(error)
            raise


async def _raise_late(error: Exception) -> NoReturn:
    """Raise an exception of a tool; its own code, such as its ``__str__``, must not block the event loop."""
    if not is_plain_error(error):
        await effects.in_daemon_thread(functools.partial(make_text, error))
    raise error


def _quick_result(call: ToolCall, value: Any) -> ToolResult | None:
    """The result of a call, if making it runs no code of the value; else None."""
    if value.__class__ is not str and value.__class__ in ATOMS:
        return ToolResult(call.id, truncate(render(value)))
    return _result(call, value) if is_plain(value) else None


def _late_result(call: ToolCall, value: Any) -> Awaitable[ToolResult]:
    """Make a result in a thread: the code of a value, such as its ``__str__``, must not block the event loop."""
    return effects.in_daemon_thread(functools.partial(_result, call, value))


def _awaited(
    call: ToolCall, timed: Callable[[ToolResult], Timed[ToolResult]], value: Any
) -> Timed[ToolResult] | Awaitable[Timed[ToolResult]]:
    result = _quick_result(call, value)
    if result is not None:
        return timed(result)
    return Then[Timed[ToolResult]](_late_result(call, value), timed)


def _tool_context(
    ctx: Context, call: ToolCall, attempt: int, progress: ProgressReporter | None
) -> ToolContext:
    return ToolContext(
        call.id,
        call.name,
        ctx.iteration,
        attempt,
        ctx.run.state.run_id,
        ctx.run.state.agent_name,
        ctx.run.budget.remaining(ctx.run.ledger.clock),
        ctx.run.deps,
        None if progress is None else progress.report,
    )


class CallFailure(NamedTuple):
    """Why an attempt failed: the text for the model, and the exception; None if it took too long."""

    text: str
    error: BaseException | None


def failure_of_call(call: ToolCall, tool: Tool | None, raised: Exception) -> CallFailure:
    """Describe the exception of an attempt. A TimeoutError of the tool itself is an ordinary one."""
    if isinstance(raised, ReturnedError):
        return CallFailure(raised.text, from_user_code(raised.error))
    if isinstance(raised, TimeLimitReached) and tool is not None and tool.timeout is not None:
        return CallFailure(f"Error: {call.name!r} took longer than {tool.timeout:g} s.", None)
    return CallFailure(error_text(raised), from_user_code(without_frame(raised)))


def failed_call(
    ctx: Context, call: ToolCall, failure: CallFailure, status: str = "done"
) -> ToolResult:
    """The result of a call that failed; its exception is logged with its traceback."""
    text, error = failure
    if error is None:
        return ToolResult(call.id, text, True, "timeout")
    ctx.run.ledger.note_failure(ctx.iteration, call.id, error)
    if has_traceback(error):
        log_exception(ctx, call, "call of %s raised %s", type(error).__name__, error=error)
    return ToolResult(call.id, text, True, status)


def log_exception(
    ctx: Context, call: ToolCall, text: str, *values: object, error: BaseException
) -> None:
    """Log an exception of user-supplied code that belongs to a call.

    Args:
        ctx: the context.
        call: the call.
        text: a format string; its first value is the name of the tool.
        *values: the other values.
        error: the exception.
    """
    if log.hasHandlers():  # else Python would write it to stderr
        extra = {
            "run_id": ctx.run.state.run_id,
            "agent_name": ctx.run.state.agent_name,
            "iteration": ctx.iteration,
            "call_id": call.id,
            "tool": call.name,
        }
        log.warning(text, call.name, *values, exc_info=error, extra=extra)


def _result(call: ToolCall, value: Any) -> ToolResult:
    if isinstance(value, Err):
        reason: Any = value.reason
        if isinstance(reason, BaseException):
            raise ReturnedError(reason, error_text(reason))
        return tool_result(call.id, reason, is_error=True)
    if isinstance(value, Ok):
        value = value.response
    return tool_result(call.id, value)
