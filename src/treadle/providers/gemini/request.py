"""The conversation of a request to the Gemini API, from OpenAI's chat dicts."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from treadle.messages import JSONDict, is_list, is_mapping, parse_object
from treadle.messages.parts import as_text_results, data_url, text_of_parts, valid_base64
from treadle.messages.sanitizing import valid_arguments
from treadle.providers.gemini.provider_state import placed_parts, signature_bytes, signature_of
from treadle.providers.translation import (
    BEGINNING,
    in_places,
    is_error_result,
    marked_system,
    text_for,
)

NO_SIGNATURE = base64.urlsafe_b64decode("skip_thought_signature_validator")
"""The signature of a call that another model made. Gemini 3 and later refuse a call without one; Google's
documentation of thought signatures has this value for conversations that began elsewhere."""
_EARLIER = re.compile(r"gemini-[12](?!\d)")


def is_earlier(model: str) -> bool:
    """Whether a model is one before Gemini 3. A name without a version, such as an alias, is a later one."""
    return "gemini" not in model or _EARLIER.search(model) is not None


class Conversation(NamedTuple):
    """What a request says: the parts of the system messages at the start, and the other messages."""

    system: list[JSONDict]
    contents: list[JSONDict]


def conversation_of(messages: list[JSONDict], *, earlier: bool) -> Conversation:
    """Translate a conversation.

    A system message after another one is sent as a text of the user, within ``<system>``. Messages of one role
    that follow each other are one, but the results of an exchange are by themselves: as many as there are calls.

    Args:
        messages: a valid history; it is not changed.
        earlier: see `is_earlier`. These models take no media in results, and need no signatures.
    """
    if not all(_fits(message, earlier) for message in messages):
        messages = as_text_results(messages)
    names: dict[str, str] = {}
    system: list[JSONDict] = []
    contents: list[JSONDict] = []
    for message in messages:
        role = message.get("role")
        if role in {"system", "developer"} and not contents:
            system += _parts(message.get("content"))
        elif role == "assistant":
            names |= {call["id"]: call["function"]["name"] for call in _calls(message)}
            _add(contents, "model", _answer(message, earlier))
        elif role == "tool":
            _add(contents, "user", [_result(message, names)])
        else:
            parts = _parts(message.get("content"))
            _add(contents, "user", parts if role == "user" else list(map(_in_system, parts)))
    if not contents or contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": BEGINNING}]})
    return Conversation(system, contents)


def _add(contents: list[JSONDict], role: str, parts: list[JSONDict]) -> None:
    if not parts:
        return
    last: JSONDict = contents[-1] if contents else {}
    if last.get("role") == role and _are_results(last["parts"]) == _are_results(parts):
        contents[-1]["parts"] += parts
    else:
        contents.append({"role": role, "parts": parts})


def _are_results(parts: list[JSONDict]) -> bool:
    return "function_response" in parts[0]


def _in_system(part: JSONDict) -> JSONDict:
    return {"text": marked_system(part["text"])} if "text" in part else part


# Assistant messages


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [call for call in message.get("tool_calls") or () if is_mapping(call.get("function"))]


def _answer(message: Mapping[str, Any], earlier: bool) -> list[JSONDict]:
    """The parts of an assistant message, in the order of the response if Gemini made it."""
    placed = placed_parts(message)
    calls = [_call(call) for call in _calls(message)]
    if calls and not earlier and not any("thought_signature" in call for call in calls):
        calls[0]["thought_signature"] = NO_SIGNATURE
    return in_places(placed, [*_said(message), *calls])


def _said(message: Mapping[str, Any]) -> list[JSONDict]:
    """The text, with its signature; a signature without text comes from the end of a stream."""
    parts = _parts(message.get("content") or message.get("refusal"))
    signature = signature_bytes(signature_of(message))
    if signature is None:
        return parts
    return [*parts[:-1], {**(parts[-1] if parts else {"text": ""}), "thought_signature": signature}]


def _call(call: Mapping[str, Any]) -> JSONDict:
    function = call["function"]
    arguments = parse_object(valid_arguments(function.get("arguments") or ""))
    made: JSONDict = {
        "function_call": {"id": call["id"], "name": function["name"], "args": arguments}
    }
    signature = signature_bytes(signature_of(call))
    return made if signature is None else {**made, "thought_signature": signature}


# Results


_IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""The media types that Gemini 3 takes within results."""


def _fits(message: Mapping[str, Any], earlier: bool) -> bool:
    """Whether a message can be sent as it is: it is no tool message with media that its result cannot have."""
    content: Any = message.get("content")
    if message.get("role") != "tool" or not is_list(content):
        return True
    media = [_part(part) for part in content if part.get("type") != "text"]
    return not (media and earlier) and all(
        part.get("inline_data", {}).get("mime_type") in _IN_RESULTS for part in media
    )


def _result(message: Mapping[str, Any], names: Mapping[str, str]) -> JSONDict:
    content: Any = message.get("content") or ""
    parts: list[Any] = content if is_list(content) else []
    text = text_of_parts(parts) if parts else str(content)
    call_id = message["tool_call_id"]
    made: JSONDict = {
        "id": call_id,
        "name": names.get(call_id) or message.get("name") or "unknown",
        "response": {"error" if is_error_result(message) else "output": text},
    }
    media = [_part(part) for part in parts if part.get("type") != "text"]
    return {"function_response": {**made, "parts": media} if media else made}


# Content


def _parts(content: Any) -> list[JSONDict]:
    """The parts of message content, without empty texts, which the API refuses."""
    given: list[Any] = content if is_list(content) else [{"type": "text", "text": content or ""}]
    parts = [_part(part) for part in given if is_mapping(part)]
    return [part for part in parts if part.get("text") != ""]


def _part(part: Mapping[str, Any]) -> JSONDict:
    make = _PARTS.get(part.get("type"))
    made = None if make is None else make(part.get(str(part.get("type"))))
    return {"text": text_for(part, "Gemini")} if made is None else made


def _image(value: Any) -> JSONDict | None:
    url = value.get("url") if is_mapping(value) else value
    return _at(url, "image/jpeg") if isinstance(url, str) else None


def _audio(value: Any) -> JSONDict | None:
    if not is_mapping(value):
        return None
    return _inline(f"audio/{value.get('format')}", value.get("data"))


def _file(value: Any) -> JSONDict | None:
    if not is_mapping(value):
        return None
    media = mimetypes.guess_type(str(value.get("filename")))[0] or "application/pdf"
    if value.get("file_id"):
        return {"file_data": {"file_uri": str(value["file_id"]), "mime_type": media}}
    data = value.get("file_data")
    if isinstance(data, str) and "://" not in data and data_url(data) is None:
        return _inline(media, data)
    return _at(data, media) if isinstance(data, str) else None


def _at(url: str, otherwise: str) -> JSONDict | None:
    """The part for a data URL, or for a link, whose media type is guessed from its path."""
    found = data_url(url)
    if found is not None:
        return _inline(found.media, found.data)
    if not url.lower().startswith(("https://", "http://", "gs://")):
        return None
    guessed = mimetypes.guess_type(url.partition("?")[0])[0] or otherwise
    return {"file_data": {"file_uri": url, "mime_type": guessed}}


def _inline(media: str, data: Any) -> JSONDict | None:
    sent = valid_base64(data) if _TAKEN.match(media) else None
    if sent is None:
        return None
    return {"inline_data": {"mime_type": media, "data": base64.b64decode(sent)}}


_TAKEN = re.compile(
    r"image/(png|jpeg|webp|heic|heif)$|(audio|video|text)/[\w.+-]+$|application/pdf$"
)
"""The media types that the API takes, as its documentation of files says."""


_PARTS: Mapping[Any, Callable[[Any], JSONDict | None]] = {
    "text": lambda text: {"text": str(text or "")},
    "refusal": lambda text: {"text": str(text or "")},
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
"""Makes the part for the value of one of OpenAI's, by its type; None if the API takes no such content."""
