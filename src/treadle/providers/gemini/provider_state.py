"""What a history keeps of Gemini's responses besides texts and calls, so that it can be sent back as it came.

Thoughts are under ``reasoning_details``, in items of the format `FORMAT`. Signatures are under
``extra_content["google"]["thought_signature"]`` of a call, or of the message for its text, in base64, as Google's
chat completions have them. ``extra_content["google"]["parts"]`` has parts of other kinds, such as code that ran at
Google, each with its ``index`` in the response. All of it is sent to Gemini, in its place, and to no one else.
"""

from __future__ import annotations

import base64
import functools
import importlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping
from treadle.providers.translation import log

FORMAT = "gemini-content"
"""The ``format`` of items of ``reasoning_details`` that came from Gemini."""


def google(values: Mapping[str, Any]) -> JSONDict:
    """The key of a message or a call for values that only Gemini reads; empty without any."""
    return {"extra_content": {"google": dict(values)}} if values else {}


def _google_of(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    content: Any = holder.get("extra_content")
    own: Any = content.get("google") if is_mapping(content) else None
    return own if is_mapping(own) else {}


# Signatures


def signature_text(signature: bytes) -> str:
    """A signature as a history has it."""
    return base64.b64encode(signature).decode()


def signature_of(holder: Mapping[str, Any]) -> Any:
    """The signature of a message or a call, as a history has it."""
    return _google_of(holder).get("thought_signature")


def signature_bytes(signature: Any) -> bytes | None:
    """A signature as the SDK takes it; None for one that is not valid."""
    if not isinstance(signature, str) or not signature:
        return None
    try:
        return base64.b64decode(signature, altchars=b"-_") or None  # of either alphabet
    except ValueError:
        return None


# Parts in their places


def detail(text: str, signature: bytes | None, index: int) -> JSONDict:
    """The item of ``reasoning_details`` for a thought, or for a piece of one."""
    signed = {} if signature is None else {"signature": signature_text(signature)}
    return {"type": "reasoning.text", "text": text, "format": FORMAT, "index": index, **signed}


def placed_parts(message: Mapping[str, Any]) -> dict[int, Any]:
    """The parts that a message has kept, by their index in the response."""
    placed: dict[int, Any] = {}
    for index, part in _thoughts(message.get("reasoning_details")):
        placed[_free(placed, index)] = part
    kept = _google_of(message).get("parts")
    for one in kept if is_list(kept) else ():
        if is_mapping(one):
            given = {key: value for key, value in one.items() if key != "index"}
            part = _part_of_sdk(given)
            if part is not None:
                placed[_free(placed, one.get("index"))] = part
    return placed


def _thoughts(details: Any) -> Iterable[tuple[Any, JSONDict]]:
    for item in details if is_list(details) else ():
        if is_mapping(item) and item.get("format") == FORMAT:
            part: JSONDict = {"text": str(item.get("text") or ""), "thought": True}
            signature = signature_bytes(item.get("signature"))
            signed = {} if signature is None else {"thought_signature": signature}
            if part["text"] or signed:
                yield item.get("index"), {**part, **signed}


def _part_of_sdk(given: JSONDict) -> Any:
    """A part as the SDK takes it; None for one that it cannot read, such as that of a later version."""
    types = importlib.import_module("google.genai.types")
    try:
        return types.Part.model_validate_json(json.dumps(given))  # which decodes the bytes
    except (TypeError, ValueError):
        _log_once(repr([*given])[:200])
        return None


@functools.lru_cache(maxsize=256)
def _log_once(keys: str) -> None:
    """Log once, and not with each request of a run."""
    log.warning("a part of a Gemini response is not sent: its SDK cannot read one with %s", keys)


def _free(placed: Mapping[int, Any], index: Any) -> int:
    place = index if isinstance(index, int) else len(placed)
    while place in placed:
        place += 1
    return place
