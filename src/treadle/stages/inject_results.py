"""`inject_results`: the iteration goes into the history, whole or not at all."""

from __future__ import annotations

import dataclasses
from typing import Any

from treadle.pipeline import Emit, Steps, stage
from treadle.types import (
    Context,
    JSONDict,
    ToolCall,
    ToolNudged,
    ToolResult,
    copy_json,
    valid_arguments,
)

NUDGE_FROM = 3
"""The identical call of a turn from which on its result carries a note. Three is Planck's number."""


@stage(requires=("tool_results",), provides=("messages", "result_messages"))
def inject_results(ctx: Context) -> Steps[Context]:
    """Append the assistant message and exactly one tool message for each call, in order.

    A successful result of a call that was made for the third time in this turn, or more often, carries a
    note that says so. It is added here, after long results were cut, so that it cannot be cut off.
    """
    if not ctx.tool_calls:
        return inject(ctx)
    results = dict(ctx.tool_results)
    for call in ctx.tool_calls:
        result = results.get(call.id)
        count: int = ctx.runner.counts[call.fingerprint] if ctx.runner is not None else 0
        if count < NUDGE_FROM or result is None or not _may_be_nudged(ctx, call, result):
            continue
        note = nudge(call, count)
        results[call.id] = dataclasses.replace(result, content=f"{result.content}\n\n{note}")
        if ctx.watched:
            yield Emit(ToolNudged(iteration=ctx.iteration, call=call, count=count))
    injected = inject(ctx.replace(tool_results=results))
    # What was told stays out of the results, which tell whether there was anything new.
    return injected.replace(tool_results=ctx.tool_results)


def _may_be_nudged(ctx: Context, call: ToolCall, result: ToolResult) -> bool:
    tool = ctx.tools.get(call.name)
    return not result.is_error and not (tool is not None and tool.volatile)


def nudge(call: ToolCall, count: int) -> str:
    """The note on the result of a repeated call."""
    return (
        f"[note: this is call number {count} of {call.name!r} with the same arguments in this turn. "
        f"Change the arguments, try another approach, or answer with what you have.]"
    )


def inject(ctx: Context, unanswered: str = "Not run: the run ended first.") -> Context:
    """Append the response, and an answer for each of its calls, to the history.

    Args:
        ctx: the context; a response that is blank adds nothing.
        unanswered: what the model is told of a call that has no result.
    """
    if ctx.response.is_blank:
        return ctx
    messages = [assistant_message(ctx)]
    for call in ctx.tool_calls:
        result = ctx.tool_results.get(call.id)
        content = unanswered if result is None else result.content
        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    return ctx.replace(messages=ctx.messages.append(*messages), result_messages=tuple(messages))


def assistant_message(ctx: Context) -> JSONDict:
    """The message as the provider gave it, its calls under their unique ids, with arguments that parse."""
    given = copy_json(dict(ctx.response.message))
    given.pop("tool_calls", None)
    message: JSONDict = {"role": "assistant", "content": ctx.response.content, **given}
    if ctx.tool_calls:
        message["tool_calls"] = [_call_message(call) for call in ctx.tool_calls]
        _keep_extras(message["tool_calls"], ctx.response.message.get("tool_calls"))
    return message


def _call_message(call: ToolCall) -> JSONDict:
    arguments = call.arguments if call.input is not None else valid_arguments(call.arguments)
    function = {"name": call.name, "arguments": arguments or "{}"}
    return {"id": call.id, "type": "function", "function": function}


def _keep_extras(calls: list[JSONDict], given: Any) -> None:
    """Keep what a provider puts on a call that treadle does not know, such as a signature."""
    if isinstance(given, list) and len(given) == len(calls):  # pyright: ignore
        for call, original in zip(calls, given, strict=True):  # pyright: ignore
            if isinstance(original, dict):
                for key, value in original.items():  # pyright: ignore
                    call.setdefault(key, copy_json(value))
