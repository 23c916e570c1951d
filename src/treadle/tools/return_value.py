"""Makes the result of a call from what its tool returned: text, or content parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.messages import (
    ATOMS,
    JSONDict,
    ToolResult,
    content_parts,
    read_only,
    sendable_parts,
    text_of_parts,
    text_part,
)
from treadle.tools.mcp import read_call_result
from treadle.tools.rendering import MAX_BYTES, MAX_LINES, render, truncate


def tool_result(call_id: str, value: Any, *, is_error: bool = False) -> ToolResult:
    """Make the result of a call.

    Args:
        call_id: the id of the call.
        value: what the tool returned: any value, content parts, or an MCP ``CallToolResult``, whose ``isError``
            makes the result an error.
        is_error: whether the call failed; then the text starts with ``Error:``.
    """
    if value.__class__ not in ATOMS:
        value, has_failed = read_call_result(value)
        is_error = is_error or has_failed
        parts = content_parts(value)
        if parts is not None:
            return _of_parts(call_id, parts, is_error)
    text = render(value)
    return ToolResult(call_id, truncate(f"Error: {text}" if is_error else text), is_error)


def _of_parts(call_id: str, parts: list[JSONDict], is_error: bool) -> ToolResult:
    if is_error:
        first = parts[0]
        if first["type"] == "text":
            parts[0] = text_part(f"Error: {first['text']}")
        else:
            parts.insert(0, text_part("Error:"))
    sent = sendable_parts(_truncated(parts))
    text = text_of_parts(sent)
    if all(part["type"] == "text" for part in sent):
        return ToolResult(call_id, truncate(text) or "(no output)", is_error)
    return ToolResult(call_id, text, is_error, parts=tuple(map(read_only, sent)))


def _truncated(parts: Iterable[JSONDict]) -> list[JSONDict]:
    """The parts, with their texts truncated at the limits of one result; empty texts are left out."""
    kept: list[JSONDict] = []
    lines, size = MAX_LINES, MAX_BYTES
    for part in parts:
        if part["type"] != "text":
            kept.append(part)
            continue
        if not part["text"]:
            continue
        text = truncate(render(part["text"]), max(0, lines), max(0, size))
        lines -= text.count("\n") + 1
        size -= len(text.encode("utf-8", "replace"))
        kept.append(text_part(text))
    return kept
