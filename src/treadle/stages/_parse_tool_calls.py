"""`parse_tool_calls`: reads the calls of this iteration from the response."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from treadle.context import Context
from treadle.messages import ToolCall, sendable
from treadle.pipeline import stage
from treadle.tools import Catalog, as_made


@stage(requires=("response",), provides=("tool_calls",))
def parse_tool_calls(ctx: Context) -> Context:
    """Take the calls out of the response, each with an id that is unique in the history.

    Some providers send no ids, or the same id twice. Then it would not be clear which result belongs to which
    call. Arguments stay text: `validate_calls` checks them. With tool search, a call of `call_tool` becomes the
    call of the tool that it names.
    """
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
