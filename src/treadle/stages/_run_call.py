"""Running one call: its locks, its attempts, its node in the run state, its events, and its result."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from treadle import labels
from treadle.context import Context
from treadle.effects import (
    NOW,
    Bounded,
    Call,
    Emit,
    Mode,
    Parallel,
    Reporter,
    Sleep,
    Steps,
    Then,
    Timed,
    TimeLimitReached,
    in_daemon_thread,
    is_awaitable,
    without_frame,
)
from treadle.errors import OutcomeUnknownError, Retry
from treadle.events import ToolFinished, ToolRetried, ToolStarted
from treadle.messages import ATOMS, ToolCall, ToolResult, copy_json, safe_str
from treadle.model import doubled
from treadle.results import Err, Ok, Paused
from treadle.run_state import RunNode, RunNodeStatus
from treadle.stages._progress import ProgressReporter
from treadle.stages._unknown_calls import RUN_AGAIN, unknown
from treadle.stages._validate_calls import check_call, invalid_call_text
from treadle.tools import (
    Invoke,
    LockedError,
    Recipe,
    RecipeStep,
    Resolver,
    Tool,
    ToolCallTable,
    ToolContext,
    as_recipe,
    error_text,
    is_plain,
    is_plain_error,
    make_text,
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


def run_call(ctx: Context, call: ToolCall, node: RunNode) -> Steps[ToolResult]:
    """Run a valid call that was started, by its recipe if the resolver has one, and record its result.

    Args:
        ctx: the context.
        call: the call.
        node: its node in the run state.
    """
    tool = ctx.tools.get(call.name)
    resolver = ctx.run.resolver
    if resolver is not None and (tool is None or not tool.has_implementation):
        work = _by_recipe(ctx, call, node, resolver)
    else:
        work = _attempts(ctx, call, tool)
    run = _run if tool is None or tool.lock is None else _locked
    return run(ctx, call, node, work)


def _run(
    ctx: Context,
    call: ToolCall,
    node: RunNode,
    work: Steps[Timed[ToolResult]],
    within: str | None = None,
) -> Steps[ToolResult]:
    """Run a call that holds its locks; record and report its start and its end, whatever the outcome.

    Args:
        ctx: the context.
        call: the call.
        node: its node in the run state.
        work: returns the result, with the times of its start and end.
        within: the id of the call that it is a step of; None for a call of the model.
    """
    run = ctx.run
    in_flight, started = run.in_flight, run.clock
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
    run.clock = max(run.clock, ended)
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
            exception=ctx.run.failures.get((ctx.iteration, call.id)) if result.is_error else None,
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
        result = _failed(ctx, call, _failure(call, None, error), "skipped")
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
            result = ToolResult(call.id, f"Not run: {error}", True, "skipped")
        finally:
            run.in_flight.held_locks.pop(call.id, None)
    return (yield from _run(ctx, call, node, _at_once(ctx, result), within))


def held_locks(ctx: Context, call_id: str) -> Mapping[str, str]:
    """The keys that a call and its outer calls hold, each with the name under which it is held."""
    return ctx.run.in_flight.held_locks.get(call_id, ctx.run.held_locks)


def _at_once(ctx: Context, result: ToolResult) -> Steps[Timed[ToolResult]]:
    """Steps that return a result at once."""
    now = (yield NOW) if ctx.run.has_listeners else ctx.run.clock
    return result, now, now


# Attempts


def _attempts(ctx: Context, call: ToolCall, tool: Tool | None) -> Steps[Timed[ToolResult]]:
    """Make a call, with the retries of its tool; an exception becomes its result."""
    retries = tool.retries if tool is not None else 0
    is_in_steps = (tool is None or not tool.is_one_effect) and _is_in_steps(ctx, tool)
    attempt = 1
    started = ctx.run.clock
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
            failure = _failure(call, tool, raised)
            is_final = attempt > retries or isinstance(raised, ReturnedError)
        ended = yield NOW
        if is_final:
            return _failed(ctx, call, failure), started, ended
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
    bound: Any = invoke
    run: Callable[..., Any] = _async_run if mode is _ASYNC else _sync_run
    if progress is not None:
        run = _async_reporting_run if mode is _ASYNC else _sync_reporting_run
        wrap = progress.wrap_async if mode is _ASYNC else progress.wrap
        bound = functools.partial(wrap, invoke)
    return Call(
        run,
        bound,
        call,
        context,
        in_flight,
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


async def _async_run(
    invoke: Invoke,
    call: ToolCall,
    context: ToolContext | None,
    in_flight: ToolCallTable,
    reporter: Reporter,
) -> Timed[ToolResult]:
    started = reporter.now()
    try:
        value = await invoke(call.input or _NO_ARGUMENTS, context)
    except Exception as error:
        if not is_plain_error(error):
            await in_daemon_thread(functools.partial(make_text, error))
        raise
    result = _quick_result(call, value) or await _late_result(call, value)
    return in_flight.complete(result), started, reporter.now()


async def _raise_late(error: Exception) -> NoReturn:
    """Raise an exception of a tool; its own code, such as its ``__str__``, must not block the event loop."""
    if not is_plain_error(error):
        await in_daemon_thread(functools.partial(make_text, error))
    raise error


def _quick_result(call: ToolCall, value: Any) -> ToolResult | None:
    """The result of a call, if making it runs no code of the value; else None."""
    if value.__class__ is not str and value.__class__ in ATOMS:
        return ToolResult(call.id, truncate(render(value)))
    return _result(call, value) if is_plain(value) else None


def _late_result(call: ToolCall, value: Any) -> Awaitable[ToolResult]:
    """Make a result in a thread: the code of a value, such as its ``__str__``, must not block the event loop."""
    return in_daemon_thread(functools.partial(_result, call, value))


def _sync_run(
    invoke: Invoke,
    call: ToolCall,
    context: ToolContext | None,
    in_flight: ToolCallTable,
    reporter: Reporter,
) -> Any:
    """Make the result where the tool runs: a tool may return anything, but a result is data."""
    started = reporter.now()

    def timed(result: ToolResult) -> Timed[ToolResult]:
        return in_flight.complete(result), started, reporter.now()

    try:
        value = invoke(call.input or _NO_ARGUMENTS, context)
        if is_awaitable(value):
            return Then(value, functools.partial(_awaited, call, timed), _raise_late)
        return timed(_result(call, value))
    except Exception as error:
        if not is_plain_error(error):
            make_text(error)
        raise


def _awaited(
    call: ToolCall, timed: Callable[[ToolResult], Timed[ToolResult]], value: Any
) -> Timed[ToolResult] | Awaitable[Timed[ToolResult]]:
    result = _quick_result(call, value)
    if result is not None:
        return timed(result)
    return Then[Timed[ToolResult]](_late_result(call, value), timed)


Bind: TypeAlias = Callable[[Reporter], Invoke]
"""Takes the reporter of a call, and returns what invokes its tool."""


async def _async_reporting_run(
    bind: Bind,
    call: ToolCall,
    context: ToolContext | None,
    in_flight: ToolCallTable,
    reporter: Reporter,
) -> Timed[ToolResult]:
    return await _async_run(bind(reporter), call, context, in_flight, reporter)


def _sync_reporting_run(
    bind: Bind,
    call: ToolCall,
    context: ToolContext | None,
    in_flight: ToolCallTable,
    reporter: Reporter,
) -> Any:
    return _sync_run(bind(reporter), call, context, in_flight, reporter)


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
        ctx.run.budget.remaining(ctx.run.clock),
        ctx.run.deps,
        None if progress is None else progress.report,
    )


class _Failure(NamedTuple):
    """Why an attempt failed: the text for the model, and the exception; None if it took too long."""

    text: str
    error: BaseException | None


def _failure(call: ToolCall, tool: Tool | None, raised: Exception) -> _Failure:
    """Describe the exception of an attempt. A TimeoutError of the tool itself is an ordinary one."""
    if isinstance(raised, ReturnedError):
        return _Failure(raised.text, from_user_code(raised.error))
    if isinstance(raised, TimeLimitReached) and tool is not None and tool.timeout is not None:
        return _Failure(f"Error: {call.name!r} took longer than {tool.timeout:g} s.", None)
    return _Failure(error_text(raised), from_user_code(without_frame(raised)))


def _failed(ctx: Context, call: ToolCall, failure: _Failure, status: str = "done") -> ToolResult:
    """The result of a call that failed; its exception is logged with its traceback."""
    text, error = failure
    if error is None:
        return ToolResult(call.id, text, True, "timeout")
    ctx.run.note_failure(ctx.iteration, call.id, error)
    if has_traceback(error):
        _log_exception(ctx, call, "call of %s raised %s", type(error).__name__, error=error)
    return ToolResult(call.id, text, True, status)


def _log_exception(
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


# Recipes


def _by_recipe(
    ctx: Context, call: ToolCall, node: RunNode, resolver: Resolver
) -> Steps[Timed[ToolResult]]:
    """Run a call by the resolver's recipe, or directly if there is none or it cannot be built.

    If a recipe fails after its steps ran, the call fails: resolving it directly would repeat their side
    effects.
    """
    try:
        maker = resolver.recipe(call.name)
        recipe = None if maker is None else as_recipe(maker(call.input or {}))
    except Exception as error:  # noqa: BLE001 - a function of the resolver's author
        text = "the recipe of %r cannot be built; resolving it directly"
        _log_exception(ctx, call, text, error=from_user_code(without_frame(error)))
        recipe = None
    if recipe is None:
        return (yield from _attempts(ctx, call, ctx.tools.get(call.name)))
    started = yield NOW
    try:
        result = yield from _run_recipe(ctx, call, node, recipe)
    except Exception as error:  # noqa: BLE001 - as above
        result = _failed(ctx, call, _failure(call, None, error))
    ended = yield NOW
    return result, started, ended


def _run_recipe(ctx: Context, call: ToolCall, node: RunNode, recipe: Recipe) -> Steps[ToolResult]:
    results: dict[str, ToolResult] = {}

    def sub_call(label: str, step: RecipeStep) -> Steps[ToolResult]:
        """Make the steps of a sub-call, and its node at once, so that the driver does not affect the order."""
        made = RunNode(
            node.agent_name,
            node.step_index,
            "tool",
            step.tool,
            f"{call.id}/{label}",
            created_at=node.created_at,
        )
        node.tool_calls.append(made)
        return _run_step(ctx, call.id, made, step, results)

    serial = _labelled(recipe.serial, ())
    parallel = _labelled(recipe.parallel, serial)
    for label, step in serial.items():
        results[label] = yield from sub_call(label, step)
    together = [sub_call(label, step) for label, step in parallel.items()]
    outcomes = yield Parallel(together, ctx.limits.max_parallel_calls)
    results.update(zip(parallel, outcomes, strict=True))
    made = recipe.compose
    composed = compose(results, tuple(serial)) if made is None else made(results)
    return tool_result(call.id, composed)


def _labelled(
    steps: Sequence[RecipeStep], taken: Sequence[str] | Mapping[str, RecipeStep]
) -> dict[str, RecipeStep]:
    """The steps by label; steps with the same label are numbered."""
    labelled: dict[str, RecipeStep] = {}
    for step in steps:
        label, number = step.label or step.tool, 1
        while label in labelled or label in taken:
            number += 1
            label = f"{step.label or step.tool} {number}"
        labelled[label] = step
    return labelled


def _run_step(
    ctx: Context, outer_id: str, node: RunNode, step: RecipeStep, results: Mapping[str, ToolResult]
) -> Steps[ToolResult]:
    """Make a sub-call, which is checked like any other call; a failure becomes its result."""
    call_id = node.group_id or ""
    try:
        arguments = step.arguments(dict(results)) if callable(step.arguments) else step.arguments
        result = yield from prepare_call(ctx, step.tool, call_id, arguments, node, within=outer_id)
    except Exception as error:  # noqa: BLE001 - a function of the recipe's author
        call = ToolCall(call_id, step.tool, "{}")
        return _failed(ctx, call, _failure(call, None, error))
    ctx.run.in_flight.results.pop(call_id, None)
    if ctx.run.in_flight.paused.pop(call_id, None) is not None:
        text = "Error: it needs approval, which cannot be requested within a recipe."
        return ToolResult(call_id, text, True, "denied")
    return result


def prepare_call(
    ctx: Context,
    name: str,
    call_id: str,
    arguments: Mapping[str, Any] | str,
    node: RunNode | None = None,
    *,
    within: str | None = None,
) -> Steps[ToolResult]:
    """Make the steps that check a call and run it; they always return a result.

    Args:
        ctx: has the tools and the resolver.
        name: the tool's name.
        call_id: the call's id.
        arguments: JSON text, or a mapping that is serialized as JSON.
        node: its node in the run state; None makes one that is not kept.
        within: the id of the call whose recipe has it as a step; None if it is not a step.
    """
    in_flight = ctx.run.in_flight
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
    call, problems = check_call(ctx, ToolCall(call_id, name, text), is_ours=within is not None)
    in_flight.start((call,))
    refusal = (
        ToolResult(call_id, invalid_call_text(call, problems), True, "invalid")
        if problems
        else _refusal(ctx, call)
    )
    if refusal is not None:
        in_flight.mark_done(call_id, refusal)
        return _returned(refusal)
    tool = ctx.tools.get(call.name)
    node = node or RunNode(kind="tool", created_at=0.0)
    if within is not None:
        in_flight.held_locks[call.id] = held_locks(ctx, within)
    work = _attempts(ctx, call, tool)
    run = _run if tool is None or tool.lock is None else _locked
    return run(ctx, call, node, work, within)


def _returned(result: ToolResult) -> Steps[ToolResult]:
    yield from ()
    return result


def _refusal(ctx: Context, call: ToolCall) -> ToolResult | None:
    """The refusal of a call that is not in a plan; None if it may run, which counts as a use of its tool."""
    tool = ctx.tools.get(call.name)
    if tool is None:
        return None
    if tool.approval_question(call.input or {}) is not None:
        text = f"Error: {call.name!r} needs approval, which cannot be requested within a recipe."
        return ToolResult(call.id, text, True, "denied")
    if tool.max_uses is not None:
        budget = ctx.run.budget
        if not budget.uses_left(call.name, tool.max_uses):
            text = f"Not run: {call.name!r} has reached its maximum number of uses in a run, {tool.max_uses}."
            return ToolResult(call.id, text, True, "over_budget")
        budget.reserve_uses({call.name: 1})
    return None


def compose(results: Mapping[str, ToolResult], serial: Sequence[str]) -> Any:
    """Compose the results of a recipe without ``compose``: serial ones, additional ones, errors.

    Args:
        results: all results, by label.
        serial: the labels of the serial steps.

    Returns:
        A text; or a list of the text, which has placeholders, and the content parts for which they stand.
    """
    good = {label: result for label, result in results.items() if not result.is_error}
    sections = [
        ("Results", {label: good[label] for label in serial if label in good}),
        ("Additional results", {k: v for k, v in good.items() if k not in serial}),
        ("Errors", {label: result for label, result in results.items() if result.is_error}),
    ]
    made = [
        f"## {title}\n\n"
        + "\n\n".join(f"### {label}\n{result.content}" for label, result in part.items())
        for title, part in sections
        if part
    ]
    text = "\n\n".join(made) or "No results."
    parts = [part for result in results.values() for part in result.parts or ()]
    media = [part for part in parts if part.get("type") != "text"]
    return [text, *media] if media else text
