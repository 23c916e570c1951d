"""`read_result`: the tool that reads a result which a strategy has replaced by a stub."""

from __future__ import annotations

from treadle.context import Context
from treadle.effects import Steps
from treadle.messages import ToolCall, short_name
from treadle.sessions.compaction.strategies import READ_RESULT, text_of
from treadle.tools import Tool

MAX_CHARACTERS = 20_000
"""The number of characters that one call reads."""


def _reading(ctx: Context, call: ToolCall) -> Steps[str]:
    """Read a part of a result in the history of the run."""
    yield from ()  # it needs no effect
    given = call.input or {}
    wanted, offset = given["id"], given.get("offset", 0)
    for message in reversed(ctx.messages.raw()):
        if message.get("tool_call_id") == wanted:
            return _part(text_of(message), offset)
    raise LookupError(
        f"there is no result with the id {short_name(wanted)!r}; the id is in the text that replaced it"
    )


def _part(text: str, offset: int) -> str:
    end = offset + MAX_CHARACTERS
    part = text[offset:end]
    if not part and text:
        return f"[The result has {len(text):,} characters; offset has to be below that.]"
    if end >= len(text):
        return part
    return f"{part}\n[{len(text) - end:,} characters follow; read them with offset {end}.]"


READ_RESULT_TOOL = Tool(
    READ_RESULT,
    "Read a result of an earlier call that was removed from the conversation to save space.",
    {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id in the text that replaced it."},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "The character to start at; 0 by default.",
            },
        },
        "required": ["id"],
        "additionalProperties": False,
    },
    steps=_reading,
    read_only=True,
)
