"""Pictures and sounds of a message, in the form of OpenTelemetry's conventions: parts ``uri`` and ``blob``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from treadle.messages import JSONDict, is_mapping

IMAGE, AUDIO = "image", "audio"


def media(part: Mapping[str, Any]) -> JSONDict | None:
    """A part with a picture or a sound as the conventions have it; None of any other part.

    Args:
        part: of a content, in OpenAI's form.
    """
    kind = part.get("type")
    if kind == "image_url":
        given = part.get("image_url")
        return _picture(given.get("url") if is_mapping(given) else given)
    if kind == "input_audio":
        given = part.get("input_audio")
        return _sound(given) if is_mapping(given) else None
    return None


def _picture(url: Any) -> JSONDict | None:
    if not isinstance(url, str):
        return None
    data = _DATA_URL.fullmatch(url)
    if data is None:
        return {"type": "uri", "modality": IMAGE, "uri": url}
    return {"type": "blob", "modality": IMAGE, "mime_type": data["type"], "content": data["data"]}


def _sound(given: Mapping[str, Any]) -> JSONDict | None:
    data, form = given.get("data"), given.get("format")
    if not isinstance(data, str):
        return None
    told = {"type": "blob", "modality": AUDIO, "content": data}
    return {**told, "mime_type": f"audio/{form}"} if isinstance(form, str) else told


_DATA_URL = re.compile(r"data:(?P<type>[^;,]+)(?:;[^;,]+)*;base64,(?P<data>.*)", re.DOTALL)
