"""What was learned from the calls that a compaction removes from the view: it survives outside the history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from treadle.context import Context
from treadle.messages import JSONDict, ToolCall
from treadle.sessions.compaction.strategies import text_of
from treadle.stages import check_call

MAX_ARGUMENTS = 100
"""The number of characters of the arguments of a call in the list of calls."""
MAX_RESULT = 80
"""The number of characters of a result in the list of calls."""


class Made(NamedTuple):
    """A call that has a result in the history.

    Args:
        call: the call, as it was checked.
        result: its tool message.
    """

    call: ToolCall
    result: Mapping[str, Any]

    @property
    def line(self) -> str:
        """The call and the start of its result, on one line."""
        call = self.call
        arguments = _start(call.arguments, MAX_ARGUMENTS)
        return f"{call.name}({arguments}): {_start(text_of(self.result), MAX_RESULT)}"


def _start(text: str, most: int) -> str:
    """The start of a text, on one line."""
    words = " ".join(text[: most * 2].split())
    return words if len(words) <= most and len(text) <= most * 2 else f"{words[:most]}…"


def calls_in(ctx: Context, messages: Sequence[JSONDict]) -> Iterator[Made]:
    """The calls in a part of a history that have results, in order of their results."""
    made: dict[str, ToolCall] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            made[call["id"]] = _checked(ctx, call)
        found = made.get(message.get("tool_call_id", ""))
        if found is not None:
            yield Made(found, message)


def _checked(ctx: Context, call: JSONDict) -> ToolCall:
    function = call["function"]
    made = ToolCall(call["id"], function["name"], function["arguments"])
    return check_call(ctx, made, is_ours=True)[0]


def hide_results(ctx: Context, before: Sequence[JSONDict], view: Sequence[JSONDict]) -> None:
    """Note which results the model no longer sees: such a call is no repetition, and may be recalled.

    Args:
        ctx: the context.
        before: the messages, or parts of them, that the model saw.
        view: what it sees from now on; a message that is shown as it is, is the same object.
    """
    run, shown = ctx.run, {id(message) for message in view}
    made = list(calls_in(ctx, before))
    visible = {one.call.fingerprint for one in made if id(one.result) in shown}
    removed = {
        one.call.fingerprint: isinstance(one.result.get("content"), str)
        for one in made
        if one.call.fingerprint not in visible
    }
    run.result_cache.hide(removed)
    for fingerprint in removed:
        run.in_flight.counts.pop(fingerprint, None)
