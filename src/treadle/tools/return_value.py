"""Makes the result of a call from the value that its tool returned: text, or content parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from treadle.messages import ATOMS, JSONDict, ToolResult, is_dict, is_list, read_only
from treadle.messages.message import dumped_of
from treadle.messages.parts import (
    audio_format,
    content_parts,
    sendable_parts,
    text_of_parts,
    text_part,
)
from treadle.tools.rendering import MAX_BYTES, MAX_LINES, render, truncate


def tool_result(call_id: str, value: Any, *, is_error: bool = False) -> ToolResult:
    """Make the result of a call from any value, content parts, or MCP's ``CallToolResult``."""
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
        has_text = parts[0]["type"] == "text"
        text = f"Error: {parts.pop(0)['text']}" if has_text else "Error:"
        parts = [text_part(text), *parts]
    sent = sendable_parts(_truncated(parts))
    text = text_of_parts(sent)
    if all(part["type"] == "text" for part in sent):
        return ToolResult(call_id, truncate(text) or "(no output)", is_error)
    return ToolResult(call_id, text, is_error, parts=tuple(map(read_only, sent)))


def _truncated(parts: list[JSONDict]) -> list[JSONDict]:
    """The parts, with their texts truncated at the limits of one result; empty texts are left out."""
    kept: list[JSONDict] = []
    lines, size = MAX_LINES, MAX_BYTES
    for part in parts:
        if part["type"] != "text":
            kept.append(part)
        elif part["text"]:
            text = truncate(render(part["text"]), max(0, lines), max(0, size))
            lines -= text.count("\n") + 1
            size -= len(text.encode("utf-8", "replace"))
            kept.append(text_part(text))
    return kept


# MCP's results, recognized by their form. The JSON form is the same in versions 1 and 2 of the SDK.


def read_call_result(value: Any) -> tuple[Any, bool]:
    """The content of MCP's ``CallToolResult`` or its JSON form, and whether it failed; else the value itself."""
    if any(kind.__name__ == "CallToolResult" for kind in type(value).__mro__):
        value = _result_as_json(value)
    elif not (is_dict(value) and _is_call_result(value)):
        return value, False
    parts = [_part_of(block) for block in value.get("content") or ()]
    return parts or value.get("structuredContent"), value.get("isError") is True


_RESULT_KEYS = frozenset({"content", "isError", "structuredContent", "_meta", "resultType"})


def _is_call_result(value: JSONDict) -> bool:
    if not ("isError" in value or "structuredContent" in value) or not value.keys() <= _RESULT_KEYS:
        return False
    blocks, is_error = value.get("content"), value.get("isError")
    if not is_list(blocks) or not (is_error is None or isinstance(is_error, bool)):
        return False
    return all(is_dict(block) and block.get("type") in _READERS for block in blocks)


def _result_as_json(value: Any) -> JSONDict:
    """The JSON form of a result object. FastMCP's client has one of the same name that is no pydantic model."""
    dump = functools.partial(dumped_of, mode="json", by_alias=True)
    blocks = getattr(value, "content", None)
    return dump(value) or {
        "content": [dump(block) or block for block in blocks] if is_list(blocks) else [],
        "structuredContent": getattr(value, "structured_content", None),
        "isError": getattr(value, "is_error", False),
    }


def _part_of(block: Any) -> JSONDict:
    """The content part of a block; that of an unknown or incomplete one is its JSON."""
    try:
        return _READERS[block["type"]](block)
    except (KeyError, TypeError, AttributeError):
        return text_part(render(block))


def _media(media_type: str, data: str, uri: str = "") -> JSONDict:
    """The part for base64 data: an image, audio, or a file."""
    family, _, subtype = media_type.partition("/")
    url = f"data:{media_type};base64,{data}"
    if family == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if family == "audio":
        sound = {"data": data, "format": audio_format(subtype)}
        return {"type": "input_audio", "input_audio": sound}
    filename = uri.rstrip("/").rpartition("/")[2] or "file"
    return {"type": "file", "file": {"filename": filename, "file_data": url}}


def resource_part(resource: Mapping[str, Any]) -> JSONDict:
    """The content part of a resource's contents, in their JSON form: a text with its address, or a file."""
    uri = str(resource.get("uri", ""))
    if "text" in resource:
        return text_part(f"[resource {uri}]\n{resource['text']}")
    return _media(resource.get("mimeType") or "application/octet-stream", resource["blob"], uri)


def _link(block: Mapping[str, Any]) -> JSONDict:
    name = block.get("title") or block.get("name") or ""
    kind = f", {block['mimeType']}" if block.get("mimeType") else ""
    description = f"\n{block['description']}" if block.get("description") else ""
    return text_part(f"[resource {name}: {block['uri']}{kind}]{description}")


_READERS: Mapping[Any, Callable[[Mapping[str, Any]], JSONDict]] = {
    "text": lambda block: text_part(str(block["text"])),
    **dict.fromkeys(("image", "audio"), lambda block: _media(block["mimeType"], block["data"])),
    "resource": lambda block: resource_part(block["resource"]),
    "resource_link": _link,
}
"""The function that makes a part of a block, by the type of the block."""
