"""How one call is made: its tool's function, its steps, or the resolver; and what becomes of what it brings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from treadle.pipeline import (
    NOW,
    Call,
    Emit,
    Mode,
    Sleep,
    Steps,
    Then,
    TimeLimitReached,
    Within,
    is_awaitable,
)
from treadle.stages.resolver import Resolver
from treadle.stages.text import cut, error_text, render
from treadle.types import (
    ATOMS,
    Context,
    Err,
    Ok,
    Paused,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    ToolRetried,
    copy_json,
    labels,
)

RETRY_DELAY = 0.1
"""Seconds before the second try of a tool; each further try waits twice as long."""


class ChildPausedError(Exception):
    """A call is made of a run that waits for a person; so the call waits, too.

    Args:
        paused: how that run stands.
    """

    def __init__(self, paused: Paused) -> None:
        super().__init__("a run within this call waits for approval")
        self.paused = paused


def at_once(result: ToolResult) -> Steps[ToolResult]:
    """Steps that return a result and ask for nothing."""
    yield from ()
    return result


def attempts(ctx: Context, call: ToolCall) -> Steps[ToolResult]:
    """Run a call, again where its tool may be retried, and make a result of whatever comes."""
    tool = ctx.tools.get(call.name)
    retries = tool.retries if tool is not None else 0
    attempt = 1
    while True:
        try:
            if tool is not None and tool.steps is not None:
                return (yield from _by_steps(ctx, call, tool))
            effect = _effect(ctx, call, tool, attempt)
            if tool is None or tool.timeout is None:
                return (yield effect)
            return (yield Within(_one(effect), seconds=tool.timeout))
        except ChildPausedError:
            raise
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model is told
            result = _failed(call, tool, error)
            kind = "timeout" if result.status == "timeout" else type(error).__name__
        if attempt > retries:
            return result
        delay = RETRY_DELAY * 2 ** (attempt - 1)
        if ctx.watched:
            now = yield NOW
            yield Emit(
                ToolRetried(
                    iteration=ctx.iteration,
                    call=call,
                    attempt=attempt,
                    error=result.content,
                    error_type=kind,
                    delay=delay,
                    at=now,
                )
            )
        yield Sleep(delay)
        attempt += 1


def _effect(ctx: Context, call: ToolCall, tool: Tool | None, attempt: int) -> Call:
    """The effect of making a call once: its tool's function, or the resolver; its outcome is the result."""
    if tool is not None and tool.fn is not None:
        given = call.input or {}
        arguments = given if tool.has_flat_input else _for_this_try(given)
        fn = tool.bound(arguments, lambda: _context(ctx, call, attempt))
        mode = _ASYNC if tool.is_async else _THREAD
    else:
        resolver: Resolver = ctx.resolve_tool
        theirs = dataclasses.replace(call, input=_for_this_try(call.input or {}))
        fn, mode = functools.partial(resolver.fn, theirs), resolver.mode
    if mode is _ASYNC and (ctx.runner.is_bounded or (tool is not None and tool.timeout)):
        mode = Mode.DETACHED  # whoever has set a bound must not wait for one that ignores it
    return Call(
        _answering(fn, call, ctx.runner.brought), mode=mode, label=labels.EXECUTE_TOOL, key=call.id
    )


def _for_this_try(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments, for a function that may change what it is given: the call, and its next try, keep theirs."""
    for value in arguments.values():
        if value.__class__ not in ATOMS:
            return copy_json(dict(arguments))
    return arguments


def _by_steps(ctx: Context, call: ToolCall, tool: Tool) -> Steps[ToolResult]:
    """Run a tool that is made of steps, in the midst of this run's."""
    steps: Steps[Any] = tool.steps(ctx, call)  # type: ignore[misc]  # asked for above
    value = (
        (yield from steps) if tool.timeout is None else (yield Within(steps, seconds=tool.timeout))
    )
    return _result(call, value)


_ASYNC, _THREAD = Mode.ASYNC, Mode.THREAD


def _context(ctx: Context, call: ToolCall, attempt: int) -> ToolContext:
    return ToolContext(
        call.id,
        call.name,
        ctx.iteration,
        attempt,
        ctx.state.run_id,
        ctx.state.agent_name,
        ctx.budget.remaining(ctx.runner.now),
    )


def _answering(
    fn: Callable[[], Any], call: ToolCall, brought: dict[str, ToolResult]
) -> Callable[[], Any]:
    """Make the result where the tool runs: what it returns may be anything, a result is data.

    It is noted there, too: whoever is cancelled while he waits for it can still see that it came.
    """

    def answer() -> Any:
        value = fn()
        return Then(value, result) if is_awaitable(value) else result(value)

    def result(value: Any) -> ToolResult:
        made = brought[call.id] = _result(call, value)
        return made

    return answer


def _one(effect: Call) -> Steps[Any]:
    return (yield effect)


def _failed(call: ToolCall, tool: Tool | None, error: Exception) -> ToolResult:
    """The result of a try that raised; a time limit of the tool's own making is an error like others."""
    if isinstance(error, TimeLimitReached) and tool is not None and tool.timeout is not None:
        text = f"Error: {call.name!r} took longer than {tool.timeout:g} s."
        return ToolResult(call.id, text, True, "timeout")
    return ToolResult(call.id, error_text(error), True)


def _result(call: ToolCall, value: Any) -> ToolResult:
    if isinstance(value, Err):
        return ToolResult(call.id, cut(f"Error: {render(value.reason)}"), True)
    if isinstance(value, Ok):
        value = value.response
    return ToolResult(call.id, cut(render(value)))
