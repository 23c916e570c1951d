"""The attempts of a call: the effect in which its tool runs, its retries, and the result of a failure."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

from treadle import effects, labels
from treadle.context import Context
from treadle.effects import NOW, Call, Emit, Mode, Reporter, Steps, Then, Timed, is_awaitable
from treadle.errors import OutcomeUnknownError, Retry
from treadle.events import ToolRetried
from treadle.messages import ToolCall, ToolResult, copy_json, safe_str
from treadle.model.retry import doubled
from treadle.results import Err, Ok, Paused
from treadle.stages._progress import ProgressReporter
from treadle.tools import (
    Invoke,
    Resolver,
    Tool,
    ToolCallTable,
    ToolContext,
    error_text,
    is_plain,
    is_plain_error,
    make_text,
    tool_result,
    truncate,
)
from treadle.tracebacks import from_user_code, was_raised

RETRY_DELAY = 0.1
"""Seconds before the second attempt of a tool; each further delay is twice as long, up to 30 s."""
Work: TypeAlias = Steps[Timed[ToolResult]]
"""The steps that make a call."""

log = logging.getLogger("treadle.tools")


class SubagentPausedError(Exception):
    """A subagent waits for approval, so its call waits as well."""

    def __init__(self, paused: Paused) -> None:
        super().__init__("a subagent of this call waits for approval")
        self.paused = paused


class ReturnedError(Exception):
    """A tool returned an exception as ``Err(exception)``: the call failed, and is not tried again."""

    def __init__(self, error: BaseException, text: str) -> None:
        super().__init__(text)
        self.error = error
        self.text = text


def attempts(ctx: Context, call: ToolCall) -> Work:
    """Make a call, with the retries of its tool; an exception becomes its result."""
    tool = ctx.tools.get(call.name)
    timeout, retries = (None, 0) if tool is None else (tool.timeout, tool.retries)
    attempt = 1
    started = ctx.run.ledger.clock
    while True:
        try:
            steps = _attempt(ctx, call, tool, attempt)
            if timeout is None:
                return (yield from steps)
            return (yield effects.Bounded(steps, seconds=timeout))
        except (SubagentPausedError, OutcomeUnknownError):
            raise
        except Retry as error:
            ended = yield NOW
            return ToolResult(call.id, truncate(safe_str(error)), True, "retry"), started, ended
        except Exception as raised:  # noqa: BLE001 - a tool may raise anything; it becomes the result
            text, cause = failure_of_call(call, raised, timeout)
            is_final = attempt > retries or isinstance(raised, ReturnedError)
        ended = yield NOW
        if is_final:
            return failed_call(ctx, call, (text, cause)), started, ended
        delay = doubled(RETRY_DELAY, attempt)
        if ctx.run.has_listeners:
            yield Emit(
                ToolRetried(
                    iteration=ctx.iteration,
                    call=call,
                    attempt=attempt,
                    error=text,
                    error_type="timeout" if cause is None else type(cause).__name__,
                    delay=delay,
                    at=ended,
                    exception=cause,
                )
            )
        del cause  # and with it the frames of the tool
        yield effects.Sleep(delay)
        attempt += 1


def _attempt(ctx: Context, call: ToolCall, tool: Tool | None, attempt: int) -> Work:
    """Run the steps of a tool, such as a subagent; or make the effect in which a function runs."""
    run = ctx.run
    if tool is not None and tool.steps is not None:
        started = yield NOW
        steps: Steps[Any] = tool.steps(ctx, call)
        value = yield from steps
        ended = yield NOW
        return _result(call, value), started, ended
    context = progress = None
    if tool is not None and tool.fn is not None:
        takes_context, is_generator = tool.takes_context, tool.is_generator
    else:
        takes_context, is_generator = False, run.resolver is not None and run.resolver.is_generator
    if is_generator or (takes_context and run.has_listeners):
        progress = ProgressReporter(
            ctx.iteration, call, has_listeners=run.has_listeners, is_generator=is_generator
        )
    if takes_context:
        context = ToolContext(
            call.id,
            call.name,
            ctx.iteration,
            attempt,
            run.state.run_id,
            run.state.agent_name,
            run.budget.remaining(run.ledger.clock),
            run.deps,
            None if progress is None else progress.report,
        )
    effect = call_effect(call, tool, run.resolver, context, run.in_flight, progress=progress)
    try:
        return (yield effect)
    finally:
        if progress is not None:
            progress.end()


_ASYNC, _THREAD = Mode.ASYNC, Mode.THREAD  # access to a member of an Enum is slow
_NO_ARGUMENTS: Mapping[str, Any] = {}


def call_effect(
    call: ToolCall,
    tool: Tool | None,
    resolver: Resolver | None,
    context: ToolContext | None,
    in_flight: ToolCallTable,
    *,
    progress: ProgressReporter | None = None,
) -> Call:
    """Make the effect of one attempt: the tool's function, or the resolver. Its outcome is the result, `Timed`."""
    about: Any = tool
    if tool is not None and tool.fn is not None:
        invoke, mode = tool.invoke, _ASYNC if tool.is_async else _THREAD
    elif resolver is None:
        raise RuntimeError(f"there is no resolver to run {call.name!r}")
    else:
        invoke, mode, about = _resolving(resolver, call), resolver.mode, resolver
    return Call(
        CallAttempt.run_async if mode is _ASYNC else CallAttempt.run,
        CallAttempt(invoke, call, context, in_flight, progress),
        mode=mode,
        label=labels.EXECUTE_TOOL,
        key=call.id,
        reporting=True,
        about=about,
        once=tool is None or not tool.idempotent,
    )


def _resolving(resolver: Resolver, call: ToolCall) -> Invoke:
    """Invoke a resolver in place of a tool's function; it receives the call, with a copy of its arguments."""
    return lambda arguments, _context: resolver.fn(
        dataclasses.replace(call, input=copy_json(dict(arguments)))
    )


@dataclasses.dataclass(slots=True, eq=False)
class CallAttempt:
    """One attempt of a call: the argument of its effect, made where the driver performs it."""

    invoke: Invoke
    call: ToolCall
    context: ToolContext | None
    in_flight: ToolCallTable
    progress: ProgressReporter | None

    async def run_async(self, reporter: Reporter) -> Timed[ToolResult]:
        """Call a tool on an event loop, which code of its value or exception (``__str__``) must not block."""
        invoke, call = self.invoke, self.call
        if self.progress is not None:
            invoke = self.progress.wrap(invoke, reporter, is_async=True)
        started = reporter.now()
        try:
            value = await invoke(call.input or _NO_ARGUMENTS, self.context)
        except Exception as error:  # noqa: BLE001 - it is raised again
            await _raise_late(error)
        if is_plain(value):
            result = _result(call, value)
        else:
            result = await effects.in_daemon_thread(functools.partial(_result, call, value))
        return self.in_flight.complete(result), started, reporter.now()

    def run(self, reporter: Reporter) -> Any:
        """Call a tool in a thread, and make its result; an awaitable of the result if the tool returned one."""
        invoke, call = self.invoke, self.call
        if self.progress is not None:
            invoke = self.progress.wrap(invoke, reporter, is_async=False)
        started = reporter.now()

        def timed(result: ToolResult) -> Timed[ToolResult]:
            return self.in_flight.complete(result), started, reporter.now()

        def awaited(value: Any) -> Any:
            if is_plain(value):
                return timed(_result(call, value))
            late = effects.in_daemon_thread(functools.partial(_result, call, value))
            return Then[Timed[ToolResult]](late, timed)

        try:
            value = invoke(call.input or _NO_ARGUMENTS, self.context)
            if is_awaitable(value):
                return Then[Timed[ToolResult]](value, awaited, _raise_late)
            return timed(_result(call, value))
        except Exception as error:
            if not is_plain_error(error):
                make_text(error)
            raise


async def _raise_late(error: Exception) -> NoReturn:
    if not is_plain_error(error):
        await effects.in_daemon_thread(functools.partial(make_text, error))
    raise error


def _result(call: ToolCall, value: Any) -> ToolResult:
    if isinstance(value, Err):
        reason: Any = value.reason
        if isinstance(reason, BaseException):
            raise ReturnedError(reason, error_text(reason))
        return tool_result(call.id, reason, is_error=True)
    return tool_result(call.id, value.response if isinstance(value, Ok) else value)


# Failures


def failure_of_call(
    call: ToolCall, raised: Exception, timeout: float | None = None
) -> tuple[str, BaseException | None]:
    """The text for the model about a failed attempt, and its exception; None if it took too long."""
    if isinstance(raised, ReturnedError):
        return raised.text, from_user_code(raised.error)
    if (
        isinstance(raised, effects.TimeLimitReached) and timeout is not None
    ):  # not one of the tool itself
        return f"Error: {call.name!r} took longer than {timeout:g} s.", None
    return error_text(raised), from_user_code(effects.without_frame(raised))


def failed_call(
    ctx: Context, call: ToolCall, failure: tuple[str, BaseException | None], status: str = "done"
) -> ToolResult:
    """The result of a call that failed; its exception is logged with its traceback."""
    text, error = failure
    if error is None:
        return ToolResult(call.id, text, True, "timeout")
    ctx.run.ledger.failures[call.id] = error
    if was_raised(error):
        log_exception(ctx, call, "call of %s raised %s", type(error).__name__, error=error)
    return ToolResult(call.id, text, True, status)


def log_exception(
    ctx: Context, call: ToolCall, text: str, *values: object, error: BaseException
) -> None:
    """Log an exception of code of the user in a call; the first value of the text is the name of the tool."""
    if log.hasHandlers():  # else Python would write it to stderr
        extra = {
            "run_id": ctx.run.state.run_id,
            "agent_name": ctx.run.state.agent_name,
            "iteration": ctx.iteration,
            "call_id": call.id,
            "tool": call.name,
        }
        log.warning(text, call.name, *values, exc_info=error, extra=extra)
