"""What a history keeps of Gemini's responses besides texts and calls: thoughts, signatures, other kinds of parts.

Thoughts are under ``reasoning_details``, in items of the format `FORMAT`. The signature of a call is in its
``extra_content["google"]["thought_signature"]``, as in Google's API that is compatible with OpenAI's; that of a
text is in the same place of the message. ``extra_content["google"]["parts"]`` has parts of other kinds, such as
executed code, each with its ``index``. All of it is sent back to Gemini, and to no one else.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping

FORMAT = "gemini-content"
"""The ``format`` of items of ``reasoning_details`` that came from Gemini."""


def thought_of(part: Any, index: int) -> JSONDict:
    """The item of ``reasoning_details`` for a part with a thought, or for a piece of one."""
    item = {"type": "reasoning.text", "format": FORMAT, "index": index, "text": part.text or ""}
    signature = signature_of(part)
    return item if signature is None else {**item, "signature": signature}


def signature_of(part: Any) -> str | None:
    """The signature of a part, in base64; None if it has none."""
    given: bytes | None = part.thought_signature
    return base64.b64encode(given).decode() if given else None


def signed(signature: str | None) -> JSONDict:
    """The key of a message or a call that holds a signature; empty without one."""
    return {"extra_content": {"google": {"thought_signature": signature}}} if signature else {}


def own_of(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    """What Gemini added to a message or a call; empty if nothing."""
    content: Any = holder.get("extra_content")
    own: Any = content.get("google") if is_mapping(content) else None
    return own if is_mapping(own) else {}


def signature_in(holder: Mapping[str, Any]) -> bytes | None:
    """The signature that a message, a call or an item has kept; None if it has none."""
    given: Any = own_of(holder).get("thought_signature") or holder.get("signature")
    try:
        return base64.b64decode(given, validate=True) if isinstance(given, str) else None
    except binascii.Error:
        return None


def kept_parts(message: Mapping[str, Any]) -> dict[int, JSONDict]:
    """The thoughts and the parts of other kinds that a message has kept, by their index in the response."""
    placed: dict[int, JSONDict] = {}
    details: Any = message.get("reasoning_details")
    for item in details if is_list(details) else ():
        if is_mapping(item) and item.get("format") == FORMAT:
            part: JSONDict = {"text": item.get("text") or "", "thought": True}
            signature = signature_in(item)
            _place(placed, item, {**part, "thought_signature": signature} if signature else part)
    parts: Any = own_of(message).get("parts")
    for item in parts if is_list(parts) else ():
        if is_mapping(item):
            _place(placed, item, {key: item[key] for key in item if key != "index"})
    return placed


def _place(placed: dict[int, JSONDict], item: Mapping[str, Any], part: JSONDict) -> None:
    index = item.get("index")
    place = index if isinstance(index, int) else len(placed)
    while place in placed:
        place += 1
    placed[place] = part
