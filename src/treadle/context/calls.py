"""The calls of an iteration: read from the response, checked, admitted to the budget.

The built-in stages and the verbs of a context share these functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from treadle.context.iteration import Iteration
from treadle.context.services import Note
from treadle.errors import closest
from treadle.messages import (
    MAX_COUNTED,
    MAX_VIOLATIONS,
    Ending,
    MalformedJSONError,
    Response,
    ToolCall,
    ToolResult,
    parse_object,
    sendable,
    short_name,
)
from treadle.tools import (
    Catalog,
    NotRun,
    Tool,
    as_made,
    fingerprint,
    marked,
    not_run,
)

IterationT = TypeVar("IterationT", bound=Iteration)

MAX_HINTS = 10
"""The number of unknown names in one response that are answered with a suggestion and the available tools."""

MAX_LISTED = 100
"""The number of available tools that an answer lists."""


def with_parsed_calls(ctx: IterationT) -> IterationT:
    """Take the calls out of the response, each with an id that is unique in the history."""
    calls = ctx.response.tool_calls
    if not calls or ctx.response is ctx.parsed:  # a stage may have edited or run them since
        return ctx
    catalog = ctx.run.catalog
    if ctx.tool_calls and _requests(ctx.tool_calls, catalog) == _requests(calls, catalog):
        return ctx
    taken: dict[str, int] = {}
    made: list[ToolCall] = []
    for index, call in enumerate(calls):
        call_id = sendable(call.id) or f"call_{ctx.iteration}_{index + 1}"
        if "/" in call_id:  # it separates the id of a call from those of its steps and subagents
            call_id = call_id.replace("/", "_")
        unique = ctx.messages.unused_id(call_id, taken)
        taken.setdefault(unique, 1)
        made.append(call if unique == call.id else dataclasses.replace(call, id=unique))
    if catalog is not None:
        made = [catalog.unwrapped(one, ctx.tools) for one in made]
    return ctx.evolve(tool_calls=tuple(made), parsed=ctx.response)


def _requests(calls: Sequence[ToolCall], catalog: Catalog | None) -> list[tuple[str, str, str]]:
    return [(call.id, *as_made(catalog, call)) for call in calls]


def has_run(ctx: Iteration, call: ToolCall) -> bool:
    """Whether a call of the iteration was started, here or before a pause."""
    return ctx.run.has_begun(call) or call.id in ctx.run.in_flight.results


def over_budget(
    ctx: Iteration, call: ToolCall, left: int | None, used: int = 0
) -> ToolResult | None:
    """The answer to a call for which no budget is left; None if there is.

    Args:
        ctx: the context.
        call: the call.
        left: how many calls may still run; None if their number is unlimited.
        used: the uses of its tool that are planned and not reserved yet.
    """
    tool, budget = ctx.tools.get(call.name), ctx.run.budget
    most = None if tool is None else tool.max_uses
    if most is not None and budget.uses_left(call.name, most) <= used:
        return not_run(call, NotRun.MAX_USES, most=most)
    if left is None or left > 0:
        return None
    spent, then = "for this task", "Give your final answer"
    if not budget.is_finishing:
        spent, then = f"of {budget.calls_limit()} tool calls", "Answer"
    return not_run(call, NotRun.OVER_BUDGET, budget=spent, then=then)


def admitted(ctx: Iteration, call: ToolCall) -> ToolResult | None:
    """Reserve the budget of a call that a stage has planned; return the answer to it if no budget is left."""
    answer = over_budget(ctx, call, ctx.run.budget.calls_left())
    if answer is not None:
        ctx.run.ledger.notes.append(Note(call, NotRun(answer.status)))
        return answer
    tool = ctx.tools.get(call.name)
    has_uses = tool is not None and tool.max_uses is not None
    ctx.run.reserve([call], {call.name: 1} if has_uses else {})
    return None


def approval_questions(ctx: Iteration, calls: Iterable[ToolCall]) -> Mapping[str, str]:
    """The questions of the calls that need approval, by id of the call."""
    questions: dict[str, str] = {}
    for call in calls:
        tool = ctx.tools.get(call.name)
        question = None if tool is None else tool.approval_question(call.input or {})
        if question is not None:
            questions[call.id] = question
    return questions


def check_call(
    ctx: Iteration, call: ToolCall, hints: Hints | None = None, *, is_ours: bool = False
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
    catalog = ctx.run.catalog
    if catalog is not None:
        call = catalog.unwrapped(call, ctx.tools)  # one that a stage made
    tool = ctx.tools.get(call.name)
    offered = None if is_ours else ctx.request_changes.get("tools")
    if tool is None:
        resolver = ctx.run.resolver
        if resolver is None or not (is_ours or resolver.knows(call.name, bool(ctx.tools))):
            return marked(call), (_on_unknown(ctx, call.name, offered, hints or Hints()),)
    elif offered is not None and (name := as_made(catalog, call)[0]) not in offered:
        return marked(call), ((hints or Hints()).on_not_offered(name, _present(ctx, offered)),)
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
        call.raw_arguments,
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


def _on_unknown(ctx: Iteration, name: str, offered: Iterable[str] | None, hints: Hints) -> str:
    """The problem of a call of a tool that does not exist."""
    catalog, resolver = ctx.run.catalog, ctx.run.resolver
    if catalog is not None:
        return hints.on_not_found(name, catalog, ctx.tools)
    names = ctx.tools if offered is None else _present(ctx, offered)
    return hints.on_unknown(name, [*names, *((resolver and resolver.names) or ())])


def _present(ctx: Iteration, names: Iterable[str]) -> list[str]:
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

    def on_not_found(self, name: str, catalog: Catalog, tools: Mapping[str, Tool]) -> str:
        """Describe a name that no tool of a catalog has."""
        if name not in self._texts:
            suggests = len(self._texts) < MAX_HINTS
            self._texts[name] = catalog.on_unknown(name, tools, suggests=suggests)
        return self._texts[name]

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


def invalid_answer(call: ToolCall, problems: tuple[str, ...]) -> ToolResult:
    """The answer to an invalid call: its violations."""
    lines = [f"- {problem}" for problem in problems[:MAX_VIOLATIONS]]
    if len(problems) > MAX_VIOLATIONS:
        least = "at least " if len(problems) >= MAX_COUNTED else ""
        lines.append(f"- and {least}{len(problems) - MAX_VIOLATIONS} more")
    text = "\n".join(lines)
    return not_run(call, NotRun.INVALID, name=short_name(call.name), problems=text)
