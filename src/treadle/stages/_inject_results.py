"""`inject_results`: appends the iteration to the history, whole or not at all."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Mapping
from typing import Any

from treadle.context import Context, decision_on, with_parsed_calls
from treadle.effects import Emit, Steps
from treadle.events import RepeatWarned
from treadle.messages import ORIGIN, Ending, History, JSONDict, ToolCall, ToolResult, is_list
from treadle.messages.origin import has_bound_values
from treadle.messages.parts import join_messages, sendable_parts, text_part
from treadle.messages.repair import can_join
from treadle.messages.sanitizing import (
    is_plain,
    sendable,
    sendable_json,
    valid_arguments,
    valid_name,
)
from treadle.pipeline import stage
from treadle.stages._answers import edit_note, is_unknown, unknown
from treadle.tools import NOTE_FROM, Catalog, NotRun, as_made, not_run


@stage(requires=("tool_results",), provides=("messages", "result_messages"))
def inject_results(ctx: Context) -> Steps[Context]:
    """Append the assistant message and exactly one tool message for each call, in order.

    From the third identical call in a turn, a successful result has a note with the count. The note is added
    here, after long results were truncated, so that it is never truncated.
    """
    if ctx.result_messages:
        return ctx
    ctx.run.release_idle()  # a stage did not dispatch them
    noted: dict[str, ToolResult] = {}
    counts = ctx.run.repeats.counts
    for call in ctx.tool_calls:
        count = counts.get(call.fingerprint, 0)
        if (count < NOTE_FROM and not ctx.approvals) or call.id not in ctx.tool_results:
            continue
        result = ctx.tool_results[call.id]
        notes: list[str] = []
        decided, tool = decision_on(ctx, call), ctx.tools.get(call.name)
        if decided is not None and decided.arguments is not None and result.status == "done":
            notes.append(edit_note(call))
        is_polled = tool is not None and tool.volatile
        if count >= NOTE_FROM and not (result.is_error or is_polled):
            notes.append(
                f"[note: this is call number {count} of {call.name!r} with the same arguments in this turn. "
                "Unless its results are new, change the arguments, try another approach, or answer with what "
                "you have.]"
            )
            if ctx.run.has_listeners:
                yield Emit(RepeatWarned(iteration=ctx.iteration, call=call, count=count))
        if notes:
            content, parts = "\n\n".join((result.content, *notes)), result.parts
            parts = None if parts is None else (*parts, *map(text_part, notes))
            noted[call.id] = dataclasses.replace(result, content=content, parts=parts)
    if not noted:
        return inject(ctx)
    injected = inject(ctx.evolve(tool_results={**ctx.tool_results, **noted}))
    # The notes are not part of the results, which show whether a call returned anything new.
    return injected.evolve(tool_results=ctx.tool_results)


def inject(ctx: Context, unanswered: str | None = None) -> Context:
    """Append the response, and an answer for each of its calls, to the history; once in an iteration.

    Calls without a result that did not run get the answer ``unanswered``; None says that they were not planned.
    """
    if ctx.result_messages:
        return ctx
    if ctx.response.tool_calls and not ctx.tool_calls:  # not parsed, or dropped
        ctx = with_parsed_calls(ctx.evolve(parsed=None))
    is_blank = not ctx.tool_calls and ctx.response.is_blank
    # A paused response may have blocks for the provider that continues it.
    if is_blank and not (ctx.response.ending is Ending.PAUSED and ctx.response.extra):
        return ctx
    history, message = ctx.messages, assistant_message(ctx)
    # The history was given so, or a stage continued after a text.
    is_joined = history.ends_with_assistant and can_join(history.raw()[-1], message)
    if is_joined:
        before = history.raw()
        history, message = History(before[:-1]), join_messages(before[-1], message)
    messages, is_flat = [message], not is_joined
    for call in ctx.tool_calls:
        result = ctx.tool_results.get(call.id) or _unanswered(ctx, call, unanswered)
        content: Any = sendable(result.content)
        if result.parts is not None:
            content, is_flat = sendable_parts(result.parts) or content, False
        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    longer = history.extended(messages, _copies(ctx, messages) if is_flat else None)
    ctx.run.ledger.last_response = ctx.response
    return ctx.evolve(messages=longer, result_messages=tuple(messages))


def _unanswered(ctx: Context, call: ToolCall, text: str | None) -> ToolResult:
    if is_unknown(ctx, call):
        return unknown(ctx, call)
    return not_run(call, NotRun.NOT_PLANNED) if text is None else ToolResult(call.id, text)


def _copies(ctx: Context, messages: list[JSONDict]) -> list[JSONDict] | None:
    """Copies of messages that were made here: flat except for the calls. None if a provider has added keys."""
    if ctx.response.extra:
        return None
    copies: list[JSONDict] = list(map(dict, messages))
    if ctx.tool_calls:
        if any(map(_extra_of, ctx.tool_calls)):
            return None
        calls: list[JSONDict] = messages[0]["tool_calls"]
        copies[0]["tool_calls"] = [{**one, "function": one["function"].copy()} for one in calls]
    return copies


_extra_of = operator.attrgetter("extra")


def assistant_message(ctx: Context) -> JSONDict:
    """Make the assistant message of the response, with unique ids and valid arguments of its calls."""
    response = ctx.response
    content = response.content
    message: JSONDict = {"role": "assistant", "content": content and sendable(content)}
    if response.extra:
        parts = sendable_parts(response.extra.get("content") or ())
        message["content"] = parts or message["content"]
        message.update(_extra(response.extra, _OURS))
    if response.refusal is not None:
        message["refusal"] = sendable(response.refusal)
    if ctx.tool_calls:
        catalogs = itertools.repeat(ctx.run.catalog)
        message["tool_calls"] = list(map(_call_message, ctx.tool_calls, catalogs))
    if response.origin is not None and has_bound_values(message):
        message[ORIGIN] = {"origin": response.origin}
    return message


def _call_message(call: ToolCall, catalog: Catalog | None) -> JSONDict:
    name, arguments = call.name, call.arguments
    if call.raw_arguments is not None:
        name, arguments = as_made(catalog, call)
    is_valid = call.input is not None and arguments and not arguments.isspace()
    if not (is_valid and is_plain(arguments)):
        arguments = valid_arguments(arguments)
    function = {"name": valid_name(name), "arguments": arguments}
    message: JSONDict = {"id": call.id, "type": "function", "function": function}
    if call.extra:
        message.update(_extra(call.extra, _OURS_OF_A_CALL))
    return message


_OURS = frozenset({"role", "content", "tool_calls", "logprobs", ORIGIN})
"""Keys of a response that are not added to its message as they are. Log probabilities are no part of a
conversation, and no server may say that its values belong to another one."""
_OURS_OF_A_CALL = frozenset({"id", "type", "function"})


def _extra(extra: Mapping[str, Any], ours: frozenset[str]) -> JSONDict:
    """The keys that the provider added, in a form that can be sent back. No list has an entry without a value."""
    return sendable_json(
        {
            key: [one for one in value if one is not None] if is_list(value) else value
            for key, value in extra.items()
            if key not in ours
        }
    )
