"""The contents of a request to Gemini, from OpenAI's chat dicts."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from treadle.messages import JSONDict, is_list, is_mapping, parse_object, valid_arguments
from treadle.providers.conventions import (
    BEGINNING,
    data_of,
    is_error_result,
    marked_system,
    text_for,
)
from treadle.providers.gemini.kept import kept_parts, signature_in

NO_SIGNATURE = base64.urlsafe_b64decode("skip_thought_signature_validator")
"""The signature of a call that another model made. Gemini 3 and later refuse a call without one; Google's
documentation of thought signatures has this value for conversations that began elsewhere."""
_WITH_SIGNATURES = 3
"""The first generation of Gemini that requires signatures."""


class Conversation(NamedTuple):
    """What a request says.

    Args:
        system: the parts of the system messages at the start.
        contents: the other messages.
    """

    system: list[JSONDict]
    contents: list[JSONDict]


def generation_of(model: str) -> int:
    """The generation of a model of Gemini by its name; 0 for another name."""
    found = re.search(r"gemini-(\d+)", model)
    return int(found[1]) if found else 0


def conversation_of(messages: Iterable[JSONDict], model: str) -> Conversation:
    """Translate a conversation.

    A system message after another one is sent as a text of the user, within ``<system>``.

    Args:
        messages: a valid history; it is not changed.
        model: the name of the model.
    """
    needs_signatures = generation_of(model) >= _WITH_SIGNATURES
    system: list[JSONDict] = []
    contents: list[JSONDict] = []
    names: dict[str, str] = {}
    results: list[JSONDict] = []
    for message in messages:
        role = message.get("role")
        if role == "tool":
            results.append(_result(message, names))
            if len(results) == 1:  # the results of one exchange are one content
                contents.append({"role": "user", "parts": results})
            continue
        results = []
        if role == "assistant":
            names |= {call["id"]: call["function"]["name"] for call in _calls(message)}
            _add(contents, "model", _answer(message, needs_signatures))
        elif role == "user":
            _add(contents, "user", _parts(message.get("content")))
        elif contents:
            _add(contents, "user", _in_system(_parts(message.get("content"))))
        else:
            system += _parts(message.get("content"))
    if not contents or contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": BEGINNING}]})
    return Conversation(system, contents)


def _add(contents: list[JSONDict], role: str, parts: list[JSONDict]) -> None:
    if parts:
        contents.append({"role": role, "parts": parts})


def _in_system(parts: list[JSONDict]) -> list[JSONDict]:
    return [{"text": marked_system(part["text"])} if "text" in part else part for part in parts]


# Assistant messages and results


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call for call in message.get("tool_calls") or () if is_mapping(call.get("function"))]


def _answer(message: Mapping[str, Any], needs_signatures: bool) -> list[JSONDict]:
    """The parts of an assistant message, in the order of the response if Gemini made it."""
    placed = kept_parts(message)
    texts = _parts(message.get("content") or message.get("refusal"))
    signature = signature_in(message)
    if signature is not None:
        texts = [
            *texts[:-1],
            {**(texts[-1] if texts else {"text": ""}), "thought_signature": signature},
        ]
    calls = list(map(_call, _calls(message)))
    if needs_signatures and calls and not any("thought_signature" in part for part in calls):
        calls[0]["thought_signature"] = NO_SIGNATURE
    others = iter([*texts, *calls])
    made: list[JSONDict] = []
    for index in range(max(placed, default=-1) + 1):
        part = placed.get(index) or next(others, None)
        if part is not None:
            made.append(part)
    return [*made, *others]


def _call(call: Mapping[str, Any]) -> JSONDict:
    function = call["function"]
    arguments = parse_object(valid_arguments(function.get("arguments") or ""))
    part: JSONDict = {
        "function_call": {"id": call["id"], "name": function["name"], "args": arguments}
    }
    signature = signature_in(call)
    return part if signature is None else {**part, "thought_signature": signature}


def _result(message: Mapping[str, Any], names: Mapping[str, str]) -> JSONDict:
    call_id = message["tool_call_id"]
    content: Any = message.get("content")
    texts = (
        [str(part.get("text", text_for(part, "Gemini"))) for part in content]
        if is_list(content)
        else None
    )
    text = (content or "") if texts is None else "\n".join(texts)
    response = {"error" if is_error_result(message) else "output": text}
    return {
        "function_response": {"id": call_id, "name": names.get(call_id, ""), "response": response}
    }


# Content


def _parts(content: Any) -> list[JSONDict]:
    given: list[Any] = content if is_list(content) else [{"type": "text", "text": content or ""}]
    parts = [_part(part) for part in given if is_mapping(part)]
    return [part for part in parts if part.get("text") != ""]


def _part(part: Mapping[str, Any]) -> JSONDict:
    kind = str(part.get("type"))
    make = _PARTS.get(kind)
    made = None if make is None else make(part.get(kind))
    return {"text": text_for(part, "Gemini")} if made is None else made


def _text(value: Any) -> JSONDict:
    return {"text": str(value or "")}


def _image(value: Any) -> JSONDict | None:
    url = value.get("url") if is_mapping(value) else value
    return _media(url, "image/jpeg") if isinstance(url, str) else None


def _audio(value: Any) -> JSONDict | None:
    if not is_mapping(value):
        return None
    return _media(f"data:audio/{value.get('format')};base64,{value.get('data')}", "")


def _file(value: Any) -> JSONDict | None:
    if not is_mapping(value):
        return None
    uri = value.get("file_data") or value.get("file_id")
    return _media(str(uri), "application/octet-stream") if uri else None


def _media(url: str, otherwise: str) -> JSONDict | None:
    """The part for a data URL or a link.

    Args:
        url: the URL.
        otherwise: the media type of a link whose name does not tell it.
    """
    media, data = data_of(url)
    if data is None:
        guessed = mimetypes.guess_type(url.partition("?")[0])[0] or otherwise
        return {"file_data": {"file_uri": url, "mime_type": guessed}}
    try:
        return {"inline_data": {"mime_type": media, "data": base64.b64decode(data)}}
    except binascii.Error:
        return None


_PARTS: Mapping[str, Callable[[Any], JSONDict | None]] = {
    "text": _text,
    "refusal": _text,
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
"""Makes the part for the value of a content part, by its type; None if it cannot be read."""
