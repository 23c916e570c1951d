"""The conversation of a request to Anthropic, from OpenAI's chat dicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from treadle.messages import (
    JSONDict,
    is_list,
    is_mapping,
    parse_object,
    sha256,
    valid_arguments,
)
from treadle.providers.anthropic.kept import placed_blocks
from treadle.providers.conventions import (
    BEGINNING,
    data_of,
    is_error_result,
    marked_system,
    text_for,
)


class Conversation(NamedTuple):
    """What a request says.

    Args:
        system: the blocks of the system messages at the start.
        messages: the other messages, in alternating roles.
        tool_names: the names of the tools that were called, in order.
    """

    system: list[JSONDict]
    messages: list[JSONDict]
    tool_names: tuple[str, ...]


def conversation_of(messages: Iterable[JSONDict]) -> Conversation:
    """Translate a conversation.

    A system message after another one is sent as a text of the user, within ``<system>``.

    Args:
        messages: a valid history; it is not changed.
    """
    system: list[JSONDict] = []
    turns: list[JSONDict] = []
    names: dict[str, None] = {}
    for message in messages:
        role = message.get("role")
        if role in {"system", "developer"} and not turns:
            system += _hinted(message, _blocks(message.get("content")))
        elif role == "assistant":
            names |= dict.fromkeys(call["function"]["name"] for call in _calls(message))
            _add(turns, "assistant", _hinted(message, _answer(message)))
        elif role == "tool":
            _add(turns, "user", [_result(message)])
        else:
            blocks = _hinted(message, _blocks(message.get("content")))
            _add(turns, "user", _in_system(blocks) if role != "user" else blocks)
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": [_text(BEGINNING)]})
    _strip_end(turns[-1])
    return Conversation(system, turns, tuple(names))


def _add(turns: list[JSONDict], role: str, blocks: list[JSONDict]) -> None:
    """Add blocks to the last turn if it is of the same role: roles have to alternate."""
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": blocks})


def _strip_end(turn: JSONDict) -> None:
    """Remove white space at the end of an assistant message that the model continues: the API refuses it."""
    last = turn["content"][-1]
    if turn["role"] == "assistant" and last["type"] == "text":
        turn["content"][-1] = {**last, "text": last["text"].rstrip()}


def _hinted(message: Mapping[str, Any], blocks: list[JSONDict]) -> list[JSONDict]:
    """The blocks of a message, the last of them with the cache hint of the message."""
    hint = message.get("cache_control")
    return [*blocks[:-1], {**blocks[-1], "cache_control": hint}] if hint and blocks else blocks


def _in_system(blocks: list[JSONDict]) -> list[JSONDict]:
    return [
        {**block, "text": marked_system(block["text"])} if block["type"] == "text" else block
        for block in blocks
    ]


# Assistant messages


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call for call in message.get("tool_calls") or () if is_mapping(call.get("function"))]


def _answer(message: Mapping[str, Any]) -> list[JSONDict]:
    """The blocks of an assistant message, in the order of the response if Anthropic made it."""
    placed = placed_blocks(message)
    content = _blocks(message.get("content") or message.get("refusal"))
    others = iter([*content, *map(_tool_use, _calls(message))])
    made: list[JSONDict] = []
    for index in range(max(placed, default=-1) + 1):
        block = placed.get(index) or next(others, None)
        if block is not None:
            made.append(block)
    return [*made, *others]


def _tool_use(call: Mapping[str, Any]) -> JSONDict:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": tool_use_id(call["id"]),
        "name": function["name"],
        "input": parse_object(valid_arguments(function.get("arguments") or "")),
    }


_VALID_ID = re.compile(r"[a-zA-Z0-9_-]+")


def tool_use_id(call_id: str) -> str:
    """A call's id in the form that the API accepts: letters, digits, ``_`` and ``-``."""
    if _VALID_ID.fullmatch(call_id):
        return call_id
    digest = sha256(call_id.encode("utf-8", "replace"))[:12]
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', call_id)}_{digest}"


def _result(message: Mapping[str, Any]) -> JSONDict:
    content = _blocks(message.get("content"))
    is_error = {"is_error": True} if is_error_result(message) else {}
    made = {"type": "tool_result", "tool_use_id": tool_use_id(message["tool_call_id"]), **is_error}
    hint = {"cache_control": message["cache_control"]} if message.get("cache_control") else {}
    return {**made, "content": content, **hint} if content else {**made, **hint}


# Content


def _blocks(content: Any) -> list[JSONDict]:
    """The blocks of message content; the API refuses texts without visible characters."""
    parts: list[Any] = content if is_list(content) else [_text(content or "")]
    blocks = [_block(part) for part in parts if is_mapping(part)]
    return [one for one in blocks if one["type"] != "text" or one["text"].strip()]


def _block(part: Mapping[str, Any]) -> JSONDict:
    make = _BLOCKS.get(part.get("type"))
    block = None if make is None else make(part.get(str(part.get("type"))))
    if block is None:
        block = _text(text_for(part, "Anthropic"))
    hint = part.get("cache_control")
    return {**block, "cache_control": hint} if hint else block


def _text(text: Any) -> JSONDict:
    return {"type": "text", "text": str(text)}


def _image(value: Any) -> JSONDict | None:
    url = value.get("url") if is_mapping(value) else value
    if not isinstance(url, str):
        return None
    media, data = data_of(url)
    if data is None:
        return {"type": "image", "source": {"type": "url", "url": url}}
    source = {"type": "base64", "media_type": media, "data": data}
    return {"type": "image", "source": source} if media in IMAGES else None


IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The media types of images that the API takes."""


def _file(value: Any) -> JSONDict | None:
    if not is_mapping(value):
        return None
    title = {"title": value["filename"]} if value.get("filename") else {}
    if value.get("file_id"):
        source = {"type": "file", "file_id": value["file_id"]}
        return {"type": "document", "source": source, **title}
    media, data = data_of(str(value.get("file_data") or ""))
    if media != "application/pdf" or data is None:
        return None
    source = {"type": "base64", "media_type": media, "data": data}
    return {"type": "document", "source": source, **title}


_BLOCKS: Mapping[Any, Callable[[Any], JSONDict | None]] = {
    "text": lambda text: _text(text or ""),
    "refusal": lambda text: _text(text or ""),
    "image_url": _image,
    "file": _file,
}
"""Makes the block for the value of a part, by its type; None if the API takes no such content."""
