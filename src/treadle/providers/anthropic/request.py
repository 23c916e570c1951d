"""The conversation of a request to Anthropic, from OpenAI's chat dicts."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from treadle.messages import JSONDict, is_list, is_mapping, parse_object, sha256
from treadle.messages.parts import DataURL, data_url
from treadle.messages.sanitizing import valid_arguments
from treadle.providers.anthropic.provider_state import REASONING, own_of, placed_blocks
from treadle.providers.call_ids import fitting_id
from treadle.providers.translation import (
    BEGINNING,
    image_of,
    in_places,
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

    A system message after another one is sent as a text of the user, within ``<system>``: only some models take
    system messages within a conversation, and only in some places.

    Args:
        messages: a valid history; it is not changed.
    """
    system: list[JSONDict] = []
    turns: list[JSONDict] = []
    names: dict[str, None] = {}
    for message in messages:
        role = message.get("role")
        if role in {"system", "developer"} and not turns:
            system += _hinted(message, _texts(message.get("content")))
        elif role == "assistant":
            names |= dict.fromkeys(tool_name(call["function"]["name"]) for call in _calls(message))
            _add(turns, "assistant", _hinted(message, _answer(message)))
        elif role == "tool":
            _add(turns, "user", [_result(message)])
        elif role == "user":
            _add(turns, "user", _hinted(message, _blocks(message.get("content"))))
        else:
            _add(turns, "user", _hinted(message, _marked(_texts(message.get("content")))))
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
    if not hint or not blocks or blocks[-1]["type"] in REASONING:  # which take no hint
        return blocks
    return [*blocks[:-1], {**blocks[-1], "cache_control": hint}]


def _marked(texts: list[JSONDict]) -> list[JSONDict]:
    return [{**block, "text": marked_system(block["text"])} for block in texts]


# Assistant messages


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call for call in message.get("tool_calls") or () if is_mapping(call.get("function"))]


def _answer(message: Mapping[str, Any]) -> list[JSONDict]:
    """The blocks of an assistant message, in the order of the response if Anthropic made it."""
    placed = placed_blocks(message)
    has_texts = any(block["type"] == "text" for block in placed.values())
    content = [] if has_texts else _texts(message.get("content") or message.get("refusal"))
    others = [*content, *map(_tool_use, _calls(message))]
    return _without_blanks(in_places(placed, others))


def _tool_use(call: Mapping[str, Any]) -> JSONDict:
    function = call["function"]
    return {
        **own_of(call),
        "type": "tool_use",
        "id": tool_use_id(call["id"]),
        "name": tool_name(function["name"]),
        "input": parse_object(valid_arguments(function.get("arguments") or "")),
    }


_VALID = re.compile(r"[a-zA-Z0-9_-]+")
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")


def tool_use_id(call_id: str) -> str:
    """A call's id in the form that the API accepts: letters, digits, ``_`` and ``-``."""
    if _VALID.fullmatch(call_id):
        return fitting_id(call_id, MAX_ID)
    digest = sha256(call_id.encode("utf-8", "replace"))[:12]
    return fitting_id(f"{_INVALID.sub('_', call_id)}_{digest}", MAX_ID)


MAX_ID = 128
"""The length of a call's id that the API accepts."""


def tool_name(name: str) -> str:
    """The name of a past call in the form that the API accepts: other models may call what has no such name."""
    return _INVALID.sub("_", name)


def _result(message: Mapping[str, Any]) -> JSONDict:
    content = _blocks(message.get("content"))
    is_text = all(
        block["type"] == "text" for block in content
    )  # all that the API takes in an error
    is_error = {"is_error": True} if is_text and is_error_result(message) else {}
    made = {"type": "tool_result", "tool_use_id": tool_use_id(message["tool_call_id"]), **is_error}
    hint = {"cache_control": message["cache_control"]} if message.get("cache_control") else {}
    return {**made, "content": content, **hint} if content else {**made, **hint}


# Content


def _blocks(content: Any) -> list[JSONDict]:
    """The blocks of message content."""
    return _without_blanks([_block(part, _BLOCKS) for part in _parts(content)])


def _texts(content: Any) -> list[JSONDict]:
    """The blocks of the content of messages in which the API takes only texts: of the system and the assistant."""
    return _without_blanks([_block(part, _TEXTS) for part in _parts(content)])


def _parts(content: Any) -> list[Mapping[str, Any]]:
    parts: list[Any] = content if is_list(content) else [_text(content or "")]
    return [part for part in parts if is_mapping(part)]


def _without_blanks(blocks: list[JSONDict]) -> list[JSONDict]:
    """The blocks without texts that have no visible characters: the API refuses them."""
    return [one for one in blocks if one["type"] != "text" or one["text"].strip()]


_Makers: TypeAlias = Mapping[Any, Callable[[Any], JSONDict | None]]


def _block(part: Mapping[str, Any], makers: _Makers) -> JSONDict:
    make = makers.get(part.get("type"))
    block = None if make is None else make(part.get(str(part.get("type"))))
    if block is None:
        block = _text(text_for(part, "Anthropic"))
    hint = part.get("cache_control")
    return {**block, "cache_control": hint} if hint else block


def _text(text: Any) -> JSONDict:
    return {"type": "text", "text": str(text)}


def _image(value: Any) -> JSONDict | None:
    found = image_of(value)
    if found is None:
        return None
    media, data = found
    if data is None:
        return {"type": "image", "source": {"type": "url", "url": media}}
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def _file(value: Any) -> JSONDict | None:
    if not is_mapping(value):
        return None
    title = {"title": str(value["filename"])} if value.get("filename") else {}
    if value.get("file_id"):
        uploaded = {"type": "file", "file_id": value["file_id"]}
        return {"type": "document", "source": uploaded, **title}
    source = _document(data_url(str(value.get("file_data") or "")))
    return None if source is None else {"type": "document", "source": source, **title}


def _document(found: DataURL | None) -> JSONDict | None:
    """The source of a document; None if the API does not take the media type, or the data are not what it says."""
    data = None if found is None else found.data
    if found is None or data is None:
        return None
    if found.media == "application/pdf":
        return {"type": "base64", "media_type": found.media, "data": data}
    if not found.media.startswith("text/"):
        return None
    try:
        text = base64.b64decode(data).decode()
    except ValueError:
        return None
    plain = {"type": "text", "media_type": "text/plain", "data": text}
    return plain if text.strip() else None


_TEXTS: _Makers = {
    "text": lambda text: _text(text or ""),
    "refusal": lambda text: _text(text or ""),
}
_BLOCKS: _Makers = {**_TEXTS, "image_url": _image, "file": _file}
"""Makes the block for the value of a part, by its type; None if the API takes no such content."""
