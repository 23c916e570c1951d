"""The result of a call as MCP's content blocks: the way back of `treadle.tools.mcp`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.messages import JSONDict, ToolResult


def blocks_of(result: ToolResult) -> list[JSONDict]:
    """The content blocks of a result, in their JSON form; a result without parts is one text."""
    if result.parts is None:
        return [_text(result.content)]
    return [_MAKERS.get(part["type"], _unknown)(part) for part in result.parts]


def _text(text: str) -> JSONDict:
    return {"type": "text", "text": text}


def _unknown(part: Mapping[str, Any]) -> JSONDict:
    return _text(str(part.get("text", "")))


def _image(part: Mapping[str, Any]) -> JSONDict:
    url: str = part["image_url"]["url"]
    found = _data_of(url)
    if found is None:
        return {"type": "resource_link", "uri": url, "name": "image"}
    media_type, data = found
    return {"type": "image", "data": data, "mimeType": media_type}


def _audio(part: Mapping[str, Any]) -> JSONDict:
    audio = part["input_audio"]
    subtype = "mpeg" if audio["format"] == "mp3" else audio["format"]
    return {"type": "audio", "data": audio["data"], "mimeType": f"audio/{subtype}"}


def _file(part: Mapping[str, Any]) -> JSONDict:
    file = part["file"]
    name = file.get("filename") or "file"
    found = _data_of(file.get("file_data") or "")
    if found is None:
        return _text(f"[file {file.get('file_id') or name}]")
    media_type, data = found
    resource = {"uri": f"file:///{name}", "mimeType": media_type, "blob": data}
    return {"type": "resource", "resource": resource}


def _data_of(url: str) -> tuple[str, str] | None:
    """The media type and the base64 data of a ``data:`` URL; None for another one."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        return None
    return head.removeprefix("data:").removesuffix(";base64"), data


_MAKERS: Mapping[Any, Callable[[Mapping[str, Any]], JSONDict]] = {
    "text": _unknown,
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
"""The function that makes a block of a part, by the type of the part."""
