"""The Model Context Protocol's objects: its ``Tool``, and the ``CallToolResult`` of a call.

They are recognized by their form, so the SDK is not imported. Versions 1 and 2 of the SDK name their attributes in
different ways, and are read through the JSON form, which is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeGuard

from treadle.messages import JSONDict, is_dict, is_list, is_mapping, text_part
from treadle.messages.message import dumped_of
from treadle.messages.parts import audio_format
from treadle.tools.rendering import render


class MCPTool(Protocol):
    """A tool of an MCP server, as its SDK describes it, with hints about its behaviour."""

    name: str
    annotations: Any


def is_mcp_tool(given: Any) -> TypeGuard[MCPTool]:
    """Whether a value is a ``Tool`` of MCP's SDK: it has a name and an input schema, and cannot be called."""
    if callable(given) or not isinstance(getattr(given, "name", None), str):
        return False
    return any(is_mapping(getattr(given, name, None)) for name in ("inputSchema", "input_schema"))


def mcp_tool_as_json(given: MCPTool) -> Mapping[str, Any]:
    """The JSON form of an MCP tool: ``name``, ``title``, ``description``, ``inputSchema``, ``annotations``."""
    dumped = _dumped(given)
    if dumped is not None:
        return dumped
    names = ("name", "title", "description", "inputSchema", "input_schema", "annotations")
    found = {name: getattr(given, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def read_call_result(value: Any) -> tuple[Any, bool]:
    """Read the result of a call of an MCP tool.

    Args:
        value: what a tool or a resolver returned: a ``CallToolResult``, or its JSON form. That is a dict that has
            ``content``, a list of MCP's content blocks, and ``isError`` or ``structuredContent``, and nothing else
            but ``_meta``.

    Returns:
        The content as `tool_result` reads it, and whether the call failed. Any other value is returned unchanged.
    """
    if is_dict(value):
        result = value if _is_call_result(value) else None
    elif any(kind.__name__ == "CallToolResult" for kind in type(value).__mro__):
        result = _result_as_json(value)
    else:
        result = None
    if result is None:
        return value, False
    parts = [part for block in result.get("content") or () for part in _parts_of(block)]
    content: Any = parts or result.get("structuredContent")
    return content, result.get("isError") is True


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
    dumped = _dumped(value)
    if dumped is not None:
        return dumped
    blocks = getattr(value, "content", None)
    return {
        "content": [_dumped(block) or block for block in blocks] if is_list(blocks) else [],
        "structuredContent": getattr(value, "structured_content", None),
        "isError": getattr(value, "is_error", False),
    }


def _dumped(given: Any) -> JSONDict | None:
    dumped = dumped_of(given, mode="json", by_alias=True)
    return dumped if is_dict(dumped) else None


# Content blocks


def _parts_of(block: Any) -> list[JSONDict]:
    """The content parts of a block; one of an unknown type is its JSON."""
    read = _READERS.get(block.get("type")) if is_mapping(block) else None
    try:
        return [text_part(render(block)) if read is None else read(block)]
    except (KeyError, TypeError, AttributeError):  # a required field is missing
        return [text_part(render(block))]


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
