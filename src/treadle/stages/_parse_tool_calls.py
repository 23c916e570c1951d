"""`parse_tool_calls`: from the response to the calls of this iteration."""

from __future__ import annotations

import dataclasses

from treadle.context import Context
from treadle.messages import ToolCall, sendable
from treadle.pipeline import stage


@stage(requires=("response",), provides=("tool_calls",))
def parse_tool_calls(ctx: Context) -> Context:
    """Take the calls out of the response, each with an id that no other call of the history has.

    A provider that gives no ids, or one twice, would leave it open which result answers which call.
    Arguments stay text: whether they make sense is for `validate_calls` to say.
    """
    calls = ctx.response.tool_calls
    if not calls:
        return ctx
    taken: dict[str, int] = {}
    made: list[ToolCall] = []
    for index, call in enumerate(calls):
        call_id = sendable(call.id) or f"call_{ctx.iteration}_{index + 1}"
        if "/" in call_id:  # it stands between the ids of a call and of what runs within it
            call_id = call_id.replace("/", "_")
        unique = ctx.messages.unused_id(call_id, taken)
        taken.setdefault(unique, 1)
        made.append(call if unique == call.id else dataclasses.replace(call, id=unique))
    return ctx.replace(tool_calls=tuple(made))
