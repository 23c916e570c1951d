"""`validate_calls`: which calls make sense, and what the model is told of those that do not."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from treadle.context import Context
from treadle.messages import (
    MAX_VIOLATIONS,
    MalformedJSONError,
    ToolCall,
    ToolResult,
    parse_object,
    short_name,
)
from treadle.pipeline import stage
from treadle.tools import Resolver, fingerprint, marked

RepairCall = Callable[[ToolCall, tuple[str, ...]], ToolCall | None]
"""Takes a call and its problems; returns one to try instead, or None."""


@stage(requires=("tool_calls",), provides=("validation_errors", "tool_results"))
def validate_calls(ctx: Context, *, repair_call: RepairCall | None = None) -> Context:
    """Check every call: its name, its JSON, its arguments against the tool's schema.

    A bad call is answered, with all that is wrong in words a model can act on. It never runs, its
    arguments never become ``{}``, and it never fails its siblings. Nothing is coerced.

    Args:
        ctx: the context.
        repair_call: is asked once for each bad call; what it returns is checked in turn.
    """
    if not ctx.tool_calls:
        return ctx
    calls: list[ToolCall] = []
    errors: dict[str, tuple[str, ...]] = {}
    results: dict[str, ToolResult] = {}
    for call in ctx.tool_calls:
        checked, problems = check_call(ctx, call)
        if problems and repair_call is not None:
            mended = repair_call(call, problems)
            if mended is not None:
                again, problems_left = check_call(ctx, _under_id(mended, call.id))
                if not problems_left:
                    checked, problems = again, ()
        calls.append(checked)
        if problems:
            errors[call.id] = problems
            results[call.id] = ToolResult(call.id, told(call, problems), True, "invalid")
    if results:
        ctx = ctx.replace(tool_results={**ctx.tool_results, **results})
    return ctx.replace(tool_calls=tuple(calls), validation_errors=errors)


def _under_id(call: ToolCall, call_id: str) -> ToolCall:
    return ToolCall(call_id, call.name, call.arguments)


def check_call(
    ctx: Context, call: ToolCall, *, is_ours: bool = False
) -> tuple[ToolCall, tuple[str, ...]]:
    """Check one call.

    Args:
        ctx: has the tools and the resolver.
        call: the call.
        is_ours: it was written by the author of a recipe, not by a model: the resolver is asked for
            names that nobody lists, too.

    Returns:
        The call, with its input if it is valid, and the problems: none if it is.
    """
    tool = ctx.tools.get(call.name)
    if tool is None:
        resolver: Resolver | None = ctx.resolve_tool
        if resolver is None or not (is_ours or resolver.knows(call.name, bool(ctx.tools))):
            names = [*ctx.tools, *((resolver.names or ()) if resolver is not None else ())]
            return marked(call), (_unknown(call.name, names),)
    try:
        arguments: Mapping[str, Any] = parse_object(call.arguments)
    except MalformedJSONError as error:
        cut = ctx.response.finish_reason == "length"
        hint = "; the answer hit its length limit and was cut off" if cut else ""
        return marked(call), (f"the arguments are not valid JSON: {error}{hint}",)
    problems: list[str] = []
    if tool is not None:
        problems, arguments = tool.validate(arguments)
    told_apart = arguments
    if tool is not None and tool.dedupe_fields is not None:
        told_apart = tool.dedupe_key(arguments)
    print_ = fingerprint(call.name, told_apart)
    given = None if problems else arguments
    checked = ToolCall(call.id, call.name, call.arguments, given, print_, call.extra)
    return checked, tuple(problems)


def _unknown(name: str, names: Iterable[str]) -> str:
    known = sorted(set(names))
    close = difflib.get_close_matches(name[:128], known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    available = ", ".join(known) or "none"
    return f"there is no tool named {short_name(name)!r}.{hint} Available tools: {available}."


def told(call: ToolCall, problems: tuple[str, ...]) -> str:
    """The answer to a call that makes no sense."""
    lines = [f"- {problem}" for problem in problems[:MAX_VIOLATIONS]]
    if len(problems) > MAX_VIOLATIONS:
        lines.append(f"- and {len(problems) - MAX_VIOLATIONS} more")
    name = short_name(call.name)
    return f"Error: the call of {name!r} was not run:\n" + "\n".join(lines)
