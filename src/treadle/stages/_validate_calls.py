"""`validate_calls`: checks every call; an invalid call is answered and never runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from treadle import labels
from treadle.checks import ValueCheck
from treadle.context import Context, check_call, invalid_answer
from treadle.effects import Call, Mode, Steps, is_sync_callable
from treadle.messages import ToolCall, ToolResult
from treadle.pipeline import stage

RepairCall: TypeAlias = Callable[[ToolCall, tuple[str, ...]], ToolCall | None]
"""Takes a call and its problems; returns a call to check instead, or None."""

MAX_INLINE = 10_000
"""The length of the arguments of one response that are checked at once, in characters. Longer ones are checked in
a worker thread, where time limits apply, since this may take seconds."""


@stage(requires=("tool_calls",), provides=("tool_calls", "validation_errors", "tool_results"))
def validate_calls(
    ctx: Context,
    *,
    repair_call: Annotated[
        RepairCall | None,
        ValueCheck(is_sync_callable, "a sync callable that takes a call and its problems"),
    ] = None,
) -> Steps[Context]:
    """Check every call: its name, its JSON, its arguments against the tool's schema.

    An invalid call is answered with every violation and its path. It never runs, its arguments never become
    ``{}``, and the other calls are not affected. A call that is not known to be whole is invalid, see
    `treadle.messages.settled`. Nothing is coerced. If a stage has already answered a
    call, its answer is kept.

    Long arguments, and those whose check may take long (`Tool.is_slow_to_check`), are checked in a worker thread,
    so that ``max_seconds`` and a cancellation end it.

    Args:
        ctx: the context.
        repair_call: called once for each invalid call; the call that it returns is checked as well.
    """
    if not ctx.tool_calls:
        return ctx
    # The calls that a stage has run or answered already; the result of an earlier check is no answer.
    answered = ctx.tool_results.keys() - ctx.validation_errors.keys() if ctx.tool_results else ()
    calls: list[ToolCall] = []
    errors: dict[str, tuple[str, ...]] = {}
    results: dict[str, ToolResult] = {}
    length, tools = 0, ctx.tools
    hints: dict[str, str] = {}
    for call in ctx.tool_calls:
        if call.fingerprint and call.id in answered:
            calls.append(call)
            continue
        length += len(call.arguments)
        tool = tools.get(call.name)
        if length <= MAX_INLINE and (tool is None or not tool.is_slow_to_check):
            checked, problems = check_call(ctx, call, hints)
        else:
            checked, problems = yield _check(ctx, call, hints)
        if call.id in answered:
            problems = ()
        if problems and repair_call is not None:
            checked, problems = yield from _repaired(ctx, repair_call, checked, problems, hints)
        calls.append(checked)
        if problems:
            errors[call.id] = problems
            results[call.id] = invalid_answer(call, problems)
    if results or ctx.validation_errors:
        others = {key: one for key, one in ctx.tool_results.items() if key in answered}
        ctx = ctx.evolve(tool_results={**others, **results})
    return ctx.evolve(tool_calls=tuple(calls), validation_errors=errors)


def _check(ctx: Context, call: ToolCall, hints: dict[str, str]) -> Call:
    return Call(check_call, ctx, call, hints, mode=Mode.THREAD, label=labels.VALIDATE, key=call.id)


def _repaired(
    ctx: Context,
    repair_call: RepairCall,
    call: ToolCall,
    problems: tuple[str, ...],
    hints: dict[str, str],
) -> Steps[tuple[ToolCall, tuple[str, ...]]]:
    """Ask `repair_call` for a valid call; return it, or the invalid call and its problems."""
    made: Any = repair_call(call, problems)
    if made is None:
        return call, problems
    if not isinstance(made, ToolCall):
        raise TypeError(f"repair_call: expected a ToolCall or None, got {type(made).__name__}")
    extra = made.extra or call.extra
    again = dataclasses.replace(
        call, name=made.name, arguments=made.arguments, input=None, fingerprint="", extra=extra
    )
    checked, remaining = yield _check(ctx, again, hints)
    return (call, problems) if remaining else (checked, ())
