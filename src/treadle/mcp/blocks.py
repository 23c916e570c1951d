"""The result of a call as MCP's content blocks: the way back of `treadle.tools.return_value`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.messages import JSONDict, ToolResult
from treadle.messages.parts import data_url, placeholder


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
    found = data_url(url)
    if found is None:
        return {"type": "resource_link", "uri": url, "name": "image"}
    if found.data is None:
        return _text(placeholder(part))
    return {"type": "image", "data": found.data, "mimeType": found.media}


def _audio(part: Mapping[str, Any]) -> JSONDict:
    audio = part["input_audio"]
    subtype = "mpeg" if audio["format"] == "mp3" else audio["format"]
    return {"type": "audio", "data": audio["data"], "mimeType": f"audio/{subtype}"}


def _file(part: Mapping[str, Any]) -> JSONDict:
    file = part["file"]
    name = file.get("filename") or "file"
    found = data_url(file.get("file_data") or "")
    if found is None or found.data is None:
        return _text(f"[file {file.get('file_id') or name}]")
    resource = {"uri": f"file:///{name}", "mimeType": found.media, "blob": found.data}
    return {"type": "resource", "resource": resource}


_MAKERS: Mapping[Any, Callable[[Mapping[str, Any]], JSONDict]] = {
    "text": _unknown,
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
"""The function that makes a block of a part, by the type of the part."""
