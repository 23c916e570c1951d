"""`validate_calls`: checks every call; an invalid call is answered and never runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from treadle.context import Context
from treadle.errors import closest
from treadle.messages import (
    MAX_VIOLATIONS,
    MalformedJSONError,
    ToolCall,
    ToolResult,
    parse_object,
    short_name,
)
from treadle.pipeline import stage
from treadle.tools import fingerprint, marked

RepairCall: TypeAlias = Callable[[ToolCall, tuple[str, ...]], ToolCall | None]
"""Takes a call and its problems; returns a call to check instead, or None."""


@stage(requires=("tool_calls",), provides=("validation_errors", "tool_results"))
def validate_calls(ctx: Context, *, repair_call: RepairCall | None = None) -> Context:
    """Check every call: its name, its JSON, its arguments against the tool's schema.

    An invalid call is answered with every violation and its path. It never runs, its arguments never become
    ``{}``, and the other calls are not affected. Nothing is coerced. If a stage has already answered a
    call, its answer is kept.

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
    for call in ctx.tool_calls:
        if call.fingerprint and call.id in answered:
            calls.append(call)
            continue
        checked, problems = check_call(ctx, call)
        if call.id in answered:
            problems = ()
        if problems and repair_call is not None:
            repaired = _repaired(repair_call, call, problems)
            if repaired is not None:
                extra = repaired.extra or call.extra
                again = ToolCall(call.id, repaired.name, repaired.arguments, extra=extra)
                again, remaining = check_call(ctx, again)
                if not remaining:
                    checked, problems = again, ()
        calls.append(checked)
        if problems:
            errors[call.id] = problems
            results[call.id] = ToolResult(
                call.id, invalid_call_text(call, problems), True, "invalid"
            )
    if results or ctx.validation_errors:
        # `stage_guard` validates a new response as well, without `repair_call`: its results are replaced.
        others = {
            call_id: result
            for call_id, result in ctx.tool_results.items()
            if call_id not in ctx.validation_errors
        }
        ctx = ctx.evolve(tool_results={**others, **results})
    return ctx.evolve(tool_calls=tuple(calls), validation_errors=errors)


def _repaired(
    repair_call: RepairCall, call: ToolCall, problems: tuple[str, ...]
) -> ToolCall | None:
    made: Any = repair_call(call, problems)
    if made is not None and not isinstance(made, ToolCall):
        raise TypeError(f"repair_call: expected a ToolCall or None, got {type(made).__name__}")
    return made


def check_call(
    ctx: Context, call: ToolCall, *, is_ours: bool = False
) -> tuple[ToolCall, tuple[str, ...]]:
    """Check one call.

    Args:
        ctx: has the tools and the resolver.
        call: the call.
        is_ours: whether the call is a step of a recipe: its tool need not be offered to the model, and the
            resolver runs names that it does not list, too.

    Returns:
        The call, with its input if it is valid, and the problems: none if it is.
    """
    tool = ctx.tools.get(call.name)
    offered = None if is_ours else ctx.request_changes.get("tools")
    if tool is None:
        resolver = ctx.run.resolver
        if resolver is None or not (is_ours or resolver.knows(call.name, bool(ctx.tools))):
            names = ctx.tools if offered is None else _present(ctx, offered)
            known = [*names, *((resolver.names or ()) if resolver is not None else ())]
            return marked(call), (_unknown(call.name, known),)
    elif offered is not None and call.name not in offered:
        text = f"{call.name!r} is not offered in this request. {_available(_present(ctx, offered))}"
        return marked(call), (text,)
    try:
        arguments: Mapping[str, Any] = parse_object(call.arguments)
    except MalformedJSONError as error:
        is_cut = ctx.response.finish_reason == "length"
        hint = "; the response reached its length limit and was cut off" if is_cut else ""
        return marked(call), (f"the arguments are not valid JSON: {error}{hint}",)
    problems: list[str] = []
    if tool is not None:
        problems, arguments = tool.validate(arguments)
    key = arguments
    if tool is not None and tool.dedupe_fields is not None:
        key = tool.dedupe_key(arguments)
    checked = ToolCall(
        call.id,
        call.name,
        call.arguments,
        None if problems else arguments,
        fingerprint(call.name, key),
        call.extra,
    )
    return checked, tuple(problems)


def _present(ctx: Context, names: Iterable[str]) -> list[str]:
    """The names of tools without those that a stage has removed since."""
    return [name for name in names if name in ctx.tools]


def _unknown(name: str, names: Iterable[str]) -> str:
    known = sorted(set(names))
    close = closest(name[:128], known)
    hint = "" if close is None else f" Did you mean {close!r}?"
    return f"there is no tool named {short_name(name)!r}.{hint} {_available(known)}"


def _available(names: Iterable[str]) -> str:
    return f"Available tools: {', '.join(sorted(set(names))) or 'none'}."


def invalid_call_text(call: ToolCall, problems: tuple[str, ...]) -> str:
    """The answer to an invalid call."""
    lines = [f"- {problem}" for problem in problems[:MAX_VIOLATIONS]]
    if len(problems) > MAX_VIOLATIONS:
        lines.append(f"- and {len(problems) - MAX_VIOLATIONS} more")
    return f"Error: the call of {short_name(call.name)!r} was not run:\n" + "\n".join(lines)
