"""`validate_calls`: checks every call; an invalid call is answered and never runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from treadle import labels
from treadle.checks import ValueCheck
from treadle.context import Context
from treadle.effects import Call, Mode, Steps, is_sync_callable
from treadle.errors import closest, one_of
from treadle.messages import (
    MAX_COUNTED,
    MAX_VIOLATIONS,
    Ending,
    MalformedJSONError,
    Response,
    ToolCall,
    ToolResult,
    parse_object,
    short_name,
)
from treadle.pipeline import stage
from treadle.tools import CALL_TOOL, SEARCH_TOOLS, fingerprint, marked

RepairCall: TypeAlias = Callable[[ToolCall, tuple[str, ...]], ToolCall | None]
"""Takes a call and its problems; returns a call to check instead, or None."""

MAX_INLINE = 10_000
"""The length of the arguments of one response that are checked at once, in characters. Longer ones are checked in
a worker thread, where time limits apply, since this may take seconds."""

MAX_HINTS = 10
"""The number of unknown names in one response that are answered with a suggestion and the available tools."""

MAX_LISTED = 100
"""The number of available tools that an answer lists."""


@stage(requires=("tool_calls",), provides=("validation_errors", "tool_results"))
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
    hints: Hints | None = None  # made when it is needed
    for call in ctx.tool_calls:
        if call.fingerprint and call.id in answered:
            calls.append(call)
            continue
        length += len(call.arguments)
        tool = tools.get(call.name)
        if hints is None and (tool is None or ctx.request_changes):
            hints = Hints()
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


def validated(ctx: Context) -> Context:
    """Do what `validate_calls` does, in this thread, for code that cannot yield effects."""
    steps: Steps[Context] = validate_calls(ctx)
    try:
        effect: Any = next(steps)
        while True:
            effect = steps.send(effect.fn(*effect.args))
    except StopIteration as stop:
        return stop.value


def _check(ctx: Context, call: ToolCall, hints: Hints | None) -> Call:
    args = ctx, call, hints
    return Call.of(check_call, args, Mode.THREAD, label=labels.VALIDATE, key=call.id)


def _repaired(
    ctx: Context,
    repair_call: RepairCall,
    call: ToolCall,
    problems: tuple[str, ...],
    hints: Hints | None,
) -> Steps[tuple[ToolCall, tuple[str, ...]]]:
    """Ask `repair_call` for a valid call; return it, or the invalid call and its problems."""
    made: Any = repair_call(call, problems)
    if made is None:
        return call, problems
    if not isinstance(made, ToolCall):
        raise TypeError(f"repair_call: expected a ToolCall or None, got {type(made).__name__}")
    again = ToolCall(
        call.id,
        made.name,
        made.arguments,
        extra=made.extra or call.extra,
        written=call.written,
        is_whole=call.is_whole,
    )
    checked, remaining = yield _check(ctx, again, hints)
    return (call, problems) if remaining else (checked, ())


def check_call(
    ctx: Context, call: ToolCall, hints: Hints | None = None, *, is_ours: bool = False
) -> tuple[ToolCall, tuple[str, ...]]:
    """Check one call.

    Args:
        ctx: has the tools and the resolver.
        call: the call.
        hints: those of the response; None if it is the only call.
        is_ours: whether the call is a step of a recipe: its tool need not be offered to the model, and the
            resolver runs names that it does not list, too.

    Returns:
        The call, with its input if it is valid, and the problems: none if it is.
    """
    catalog, written = ctx.run.catalog, call.name
    if catalog is not None:
        call = catalog.unwrapped(call, ctx.tools)  # one that a stage made
        written = call.name if call.written is None else CALL_TOOL
        if call.written is not None and call.name in catalog.fixed:
            return marked(call), (
                f"{CALL_TOOL!r} cannot call {call.name!r}, which is offered itself.",
            )
    tool = ctx.tools.get(call.name)
    offered = None if is_ours else ctx.request_changes.get("tools")
    if tool is None:
        resolver = ctx.run.resolver
        if resolver is None or not (is_ours or resolver.knows(call.name, bool(ctx.tools))):
            return marked(call), (_on_unknown(ctx, call.name, offered, hints or Hints()),)
    elif offered is not None and written not in offered:
        return marked(call), ((hints or Hints()).on_not_offered(written, _present(ctx, offered)),)
    if call.is_whole is False:
        return marked(call), (_why_not_whole(ctx.response),)
    try:
        arguments: Mapping[str, Any] = parse_object(call.arguments)
    except MalformedJSONError as error:
        is_cut = ctx.response.ending is Ending.CUT
        hint = f"; {_why_not_whole(ctx.response)}" if is_cut else ""
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
        call.written,
        call.is_whole,
    )
    return checked, tuple(problems)


def _why_not_whole(response: Response) -> str:
    """Why a call of a response did not run, although it may look complete."""
    ended = _ENDED.get(response.ending, "the provider marked the call as incomplete")
    return f"{ended} (finish reason {response.finish_reason!r})"


_ENDED = {
    Ending.CUT: "the response was cut off before the call was known to be complete; make the call again, with "
    "shorter arguments",
    Ending.PAUSED: "the response paused before the call was known to be complete; make the call again",
    Ending.FILTERED: "the response was filtered or refused",
}


def _on_unknown(ctx: Context, name: str, offered: Iterable[str] | None, hints: Hints) -> str:
    """The problem of a call of a tool that does not exist."""
    catalog, resolver = ctx.run.catalog, ctx.run.resolver
    if catalog is not None:
        return hints.on_not_found(name, functools.partial(catalog.closest, name, ctx.tools))
    names = ctx.tools if offered is None else _present(ctx, offered)
    return hints.on_unknown(name, [*names, *((resolver and resolver.names) or ())])


def _present(ctx: Context, names: Iterable[str]) -> list[str]:
    """The names of tools without those that a stage has removed since."""
    return [name for name in names if name in ctx.tools]


class Hints:
    """The hints in the answers to calls of unknown tools: one for each name, and for a few names only."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def on_unknown(self, name: str, known: Iterable[str]) -> str:
        """Describe a name that no tool has."""
        text = f"there is no tool named {short_name(name)!r}."
        return self._text(name, text, known, suggests=True)

    def on_not_found(self, name: str, closest_to_it: Callable[[], Sequence[str]]) -> str:
        """Describe a name that no tool of a catalog has: there are too many tools to list them."""
        made = self._texts.get(name)
        if made is not None:
            return made
        close = closest_to_it() if len(self._texts) < MAX_HINTS else ()
        hint = f" Did you mean {one_of(close)}?" if close else ""
        text = f"there is no tool named {short_name(name)!r}.{hint} Search for it with {SEARCH_TOOLS!r}."
        if close:
            self._texts[name] = text
        return text

    def on_not_offered(self, name: str, known: Iterable[str]) -> str:
        """Describe the name of a tool that the request does not offer."""
        return self._text(name, f"{name!r} is not offered in this request.", known)

    def _text(self, name: str, text: str, known: Iterable[str], *, suggests: bool = False) -> str:
        made = self._texts.get(name)
        if made is not None:
            return made
        if len(self._texts) >= MAX_HINTS:
            return f"{text} The answers above list the available tools."
        names = sorted(set(known))
        close = closest(name, names) if suggests else None
        hint = "" if close is None else f" Did you mean {close!r}?"
        made = self._texts[name] = f"{text}{hint} {_available(names)}"
        return made


def _available(names: list[str]) -> str:
    listed = ", ".join(names[:MAX_LISTED]) or "none"
    more = len(names) - MAX_LISTED
    return f"Available tools: {listed}{f', and {more} more' if more > 0 else ''}."


def invalid_call_text(call: ToolCall, problems: tuple[str, ...]) -> str:
    """The answer to an invalid call."""
    lines = [f"- {problem}" for problem in problems[:MAX_VIOLATIONS]]
    if len(problems) > MAX_VIOLATIONS:
        least = "at least " if len(problems) >= MAX_COUNTED else ""
        lines.append(f"- and {least}{len(problems) - MAX_VIOLATIONS} more")
    return f"Error: the call of {short_name(call.name)!r} was not run:\n" + "\n".join(lines)
