"""The messages of a history as OpenAI's and xAI's own endpoints take them: a key that they do not know is refused.

Other servers that implement chat completions have their own keys, such as OpenRouter's ``reasoning_details`` and
``cache_control``. They receive messages as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping
from treadle.messages.parts import placeholder, text_part
from treadle.providers.call_ids import fitting_id
from treadle.providers.translation import image_of

MAX_ID = 40
"""The length of a call's id that the API accepts."""

MAX_NAME = 64
"""The length of a function's name that the API accepts; a model may write a longer one."""

MESSAGE_KEYS: Mapping[str, frozenset[str]] = {
    "assistant": frozenset(
        {"role", "content", "name", "audio", "function_call", "refusal", "tool_calls"}
    ),
    "tool": frozenset({"role", "content", "tool_call_id"}),
    **dict.fromkeys(("developer", "system", "user"), frozenset({"role", "content", "name"})),
}
"""The keys of a message, by its role; those of the SDK's types."""

CALL_KEYS: Mapping[str, frozenset[str]] = {
    "function": frozenset({"name", "arguments"}),
    "custom": frozenset({"name", "input"}),
}
"""The keys of what is called, by the type of the call."""

PART_KEYS: Mapping[str, frozenset[str] | None] = {
    "text": None,
    "refusal": None,
    "image_url": frozenset({"url", "detail"}),
    "input_audio": frozenset({"data", "format"}),
    "file": frozenset({"file_data", "file_id", "filename"}),
}
"""The keys within a content part, by its type; None if its value is a text."""

PART_HINT = "prompt_cache_breakpoint"
"""A key that parts have besides their type and their value; refusals have none."""


def known_messages(messages: Iterable[JSONDict]) -> list[JSONDict]:
    """The messages with the keys that OpenAI knows; they are not changed."""
    return list(map(_message, messages))


def _message(message: JSONDict) -> JSONDict:
    role = str(message.get("role"))
    sent = {key: message[key] for key in message if key in MESSAGE_KEYS.get(role, message)}
    if is_list(sent.get("content")):
        sent["content"] = [_part(part, role) for part in sent["content"]]
    if is_list(sent.get("tool_calls")):
        sent["tool_calls"] = list(map(_call, sent["tool_calls"]))
    if "tool_call_id" in sent:
        sent["tool_call_id"] = fitting_id(str(sent["tool_call_id"]), MAX_ID)
    if is_mapping(sent.get("audio")):  # a response has the sound too, a request only its id
        sent["audio"] = {"id": sent["audio"].get("id")}
    return sent


def _call(call: Mapping[str, Any]) -> JSONDict:
    kind = "custom" if "custom" in call else "function"
    made = {"id": fitting_id(str(call.get("id")), MAX_ID), "type": kind}
    called = _only(call.get(kind), CALL_KEYS[kind])
    return {**made, kind: {**called, "name": fitting_id(str(called.get("name")), MAX_NAME)}}


def _part(part: Mapping[str, Any], role: str) -> JSONDict:
    kind = str(part.get("type"))
    if kind not in _PART_TYPES.get(role, _TEXTS) or not _is_taken(kind, part.get(kind)):
        return text_part(placeholder(part))
    sent = {"type": kind, kind: _only(part.get(kind), PART_KEYS[kind])}
    return {**sent, PART_HINT: part[PART_HINT]} if PART_HINT in part else sent


def _is_taken(kind: str, value: Any) -> bool:
    if kind == "input_audio":
        return is_mapping(value) and value.get("format") in {"wav", "mp3"}
    return kind != "image_url" or image_of(value) is not None


_TEXTS = frozenset({"text"})
_PART_TYPES = {
    "assistant": frozenset({"text", "refusal"}),
    "user": frozenset(PART_KEYS) - {"refusal"},
}
"""The types of parts that a message may have, by its role; by default texts only."""


def _only(value: Any, keys: frozenset[str] | None) -> Any:
    if keys is None or not is_mapping(value):
        return value
    return {key: value[key] for key in value if key in keys}
