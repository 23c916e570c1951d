"""The input of a request to the Responses API, from OpenAI's chat dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping
from treadle.providers.call_ids import fitting_id
from treadle.providers.openai_responses.provider_state import (
    BETWEEN_MESSAGES,
    items_of,
    reasoning_of,
    texts_of,
)
from treadle.providers.translation import image_of, text_for

MAX_ID = 64
"""The length of a call's id, and of a function's name, that the API accepts."""


def input_items(messages: Iterable[JSONDict], *, is_stored: bool) -> list[JSONDict]:
    """The items for a conversation.

    Args:
        messages: a valid history; it is not changed.
        is_stored: whether OpenAI stores the responses. If not, ids are left out where they can be: the API would
            look for the item that has the id.
    """
    items: list[JSONDict] = []
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            items += _Answer(message, is_stored).items()
        elif role == "tool":
            output = _content(message.get("content"))
            call_id = fitting_id(str(message.get("tool_call_id")), MAX_ID)
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
        else:
            items.append({"role": role, "content": _content(message.get("content"))})
    return items


class _Answer:
    """The items for an assistant message, in the order of the response if this API made it."""

    def __init__(self, message: Mapping[str, Any], is_stored: bool) -> None:
        self._is_stored = is_stored
        self._kept = items_of(message)
        self._reasoning = reasoning_of(message)
        self._text = _text_of(message)
        self._calls = {str(call.get("id")): call for call in message.get("tool_calls") or ()}
        self._said = self._messages()

    def items(self) -> list[JSONDict]:
        placed = [made for item in self._kept for made in self._placed(item)]
        before = list(filter(self._is_readable, self._reasoning.values()))
        after = [self._call(call, {}) for call in self._calls.values()]
        return [*before, *placed, *self._said, *after]

    def _placed(self, item: JSONDict) -> list[JSONDict]:
        """What is sent in the place of a kept item: nothing if the message has no longer what it stood for."""
        kind = item.get("type")
        if kind == "reasoning":
            found = self._reasoning.pop(item.get("id"), None)
            made = None if found is None else {**_without_none(item), **found}
            return [made] if made is not None and self._is_readable(made) else []
        if kind == "message":
            return [self._said.pop(0)] if self._said else []
        if kind == "function_call":
            call = self._calls.pop(str(item.get("call_id")), None)
            return [] if call is None else [self._call(call, item)]
        return [item]

    def _is_readable(self, item: JSONDict) -> bool:
        """Whether the API can read a reasoning item: one with only an id, or with a summary, has to be stored."""
        return self._is_stored or bool(item.get("encrypted_content") or item.get("content"))

    def _messages(self) -> list[JSONDict]:
        """The messages of the response; or one with the text, if it is another than theirs."""
        kept = [item for item in self._kept if item.get("type") == "message"]
        texts = [texts_of(item) or texts_of(item, "refusal") for item in kept]
        if BETWEEN_MESSAGES.join(filter(None, texts)) == self._text:
            return [
                self._message(item, text) for item, text in zip(kept, texts, strict=True) if text
            ]
        return [self._message(kept[0] if kept else {}, self._text)] if self._text else []

    def _message(self, item: JSONDict, text: str) -> JSONDict:
        own = _without_none(item)
        if self._is_stored and "id" in own:
            part: JSONDict = {"type": "output_text", "text": text, "annotations": []}
            return {"status": "completed", **own, "content": item.get("content") or [part]}
        phase = {"phase": own["phase"]} if "phase" in own else {}
        return {"type": "message", "role": "assistant", "content": text, **phase}

    def _call(self, call: Mapping[str, Any], item: JSONDict) -> JSONDict:
        own = _without_none(item)
        if not self._is_stored:
            own.pop("id", None)
        function: JSONDict = call.get("function") or {}
        return {
            **own,
            "type": "function_call",
            "call_id": fitting_id(str(call.get("id")), MAX_ID),
            "name": fitting_id(str(function.get("name")), MAX_ID),
            "arguments": function.get("arguments"),
        }


def _without_none(item: JSONDict) -> JSONDict:
    return {key: value for key, value in item.items() if value is not None}


def _text_of(message: Mapping[str, Any]) -> str:
    """The text of an assistant message; else its refusal. What is not text becomes a placeholder."""
    content: Any = message.get("content")
    if is_list(content):
        content = "".join(map(_text_of_part, content))
    return content or message.get("refusal") or ""


def _text_of_part(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind in {"text", "output_text", "refusal"}:
        return str(part.get("refusal" if kind == "refusal" else "text") or "")
    return _placeholder(part)["text"]


# Content parts


def _content(content: Any) -> Any:
    return list(map(_part, content)) if is_list(content) else content or ""


def _part(part: Mapping[str, Any]) -> JSONDict:
    return _PARTS.get(str(part.get("type")), _placeholder)(part)


def _text_part(part: Mapping[str, Any]) -> JSONDict:
    return {"type": "input_text", "text": part.get("text"), **_hint(part)}


def _image(part: Mapping[str, Any]) -> JSONDict:
    image: Any = part.get("image_url")
    if image_of(image) is None:
        return _placeholder(part)
    given = image if is_mapping(image) else {"url": image}
    made = {"type": "input_image", "image_url": given.get("url")}
    return {**made, "detail": given.get("detail") or "auto", **_hint(part)}


def _file(part: Mapping[str, Any]) -> JSONDict:
    file: Any = part.get("file")
    given = {key: file[key] for key in _FILE_KEYS if key in file} if is_mapping(file) else {}
    return {"type": "input_file", **given, **_hint(part)}


_FILE_KEYS = ("file_id", "file_data", "filename")


def _hint(part: Mapping[str, Any]) -> JSONDict:
    """OpenAI's own hint for its cache."""
    hint = part.get("prompt_cache_breakpoint")
    return {} if hint is None else {"prompt_cache_breakpoint": hint}


def _placeholder(part: Mapping[str, Any]) -> JSONDict:
    return {"type": "input_text", "text": text_for(part, "OpenAI's Responses API")}


_PARTS: Mapping[str, Callable[[Mapping[str, Any]], JSONDict]] = {
    "text": _text_part,
    "image_url": _image,
    "file": _file,
    **dict.fromkeys(("input_text", "input_image", "input_file"), dict),
}
"""The API's form of each type of part; its own types stay as they are."""
