"""What models, tools and users write, as JSON attributes in the format of OpenTelemetry's conventions.

A message is ``{"role", "parts"}``. A part is a text, a call, the response to a call, a picture or sound, or
any other part under its own type. Content is built only if the user asked for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.messages import JSONDict, Response, ToolCall, ToolResult, is_list, is_mapping, safe_str
from treadle.messages.parts import data_url
from treadle.messages.sanitizing import sendable, sendable_json
from treadle.redaction import redacted
from treadle.telemetry import names
from treadle.tracebacks import format_traceback, shortened

_YES = frozenset({"1", "true", "yes", "span", "span_only", "span_and_event"})


def captures_content(option: bool | None) -> bool:
    """Whether content is captured; if ``capture_content`` of `Telemetry` is None, the environment decides."""
    if option is not None:
        return option
    return os.environ.get(names.CAPTURE_VARIABLE, "").strip().lower() in _YES


def request_attributes(
    messages: Sequence[JSONDict], guidance: str | None, tools: Sequence[JSONDict]
) -> dict[str, str]:
    """Return the attributes of a request; the guidance is a text that is added to this request only."""
    instructions: list[JSONDict] = []
    conversation: list[JSONDict] = []
    for message in messages:
        if message.get("role") in {"system", "developer"}:
            instructions += _parts(message)
        else:
            conversation.append(_message(message))
    if guidance is not None:
        conversation.append({"role": "user", "parts": [_text(guidance)]})
    attributes = {names.INPUT_MESSAGES: as_json(conversation)}
    if instructions:
        attributes[names.SYSTEM_INSTRUCTIONS] = as_json(instructions)
    if tools:
        definitions = [{"type": "function", **tool["function"]} for tool in tools]
        attributes[names.TOOL_DEFINITIONS] = as_json(definitions)
    return attributes


def response_attributes(response: Response) -> dict[str, str]:
    """Return the attributes of a response."""
    message = {"content": response.content, "refusal": response.refusal, **response.extra}
    calls = [_call(call.id, call.name, call.arguments) for call in response.tool_calls]
    output = {
        "role": "assistant",
        "parts": _content_parts(message) + calls,
        "finish_reason": response.finish_reason or ("tool_call" if response.tool_calls else "stop"),
    }
    return {names.OUTPUT_MESSAGES: as_json([output])}


def call_attributes(call: ToolCall) -> dict[str, str]:
    """Return the attributes of a call; models write an empty text if there are no arguments."""
    return {names.TOOL_CALL_ARGUMENTS: sendable(call.arguments) if call.arguments else "{}"}


def result_attributes(result: ToolResult) -> dict[str, str]:
    """Return the attributes of the result of a call."""
    return {names.TOOL_CALL_RESULT: sendable(result.content)}


def exception_attributes(error: BaseException) -> dict[str, str]:
    """Return the attributes of the event ``exception``, in the form of OpenTelemetry's conventions."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return {
        names.EXCEPTION_TYPE: f"{module}{kind.__qualname__}",
        names.EXCEPTION_MESSAGE: redacted(shortened(safe_str(error))),
        names.EXCEPTION_STACKTRACE: format_traceback(error),
    }


def as_json(value: Any) -> str:
    """Format JSON; values that are not JSON become text.

    Lone surrogates are replaced, escaped ones too: a strict reader would reject the whole text.
    """
    try:
        return json.dumps(sendable_json(value), ensure_ascii=False)
    except RecursionError:  # the nesting is too deep
        return "[]"


def _message(message: Mapping[str, Any]) -> JSONDict:
    if message.get("role") != "tool":
        result: JSONDict = {"role": str(message.get("role", "")), "parts": _parts(message)}
        name = message.get("name")
        return {**result, "name": name} if isinstance(name, str) else result
    call_id, content = message.get("tool_call_id"), message.get("content")
    part = {"type": "tool_call_response", "id": call_id, "response": content}
    return {"role": "tool", "parts": [part]}


def _parts(message: Mapping[str, Any]) -> list[JSONDict]:
    calls = [
        _call(call.get("id"), call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
        if is_mapping(call) and is_mapping(call.get("function"))
    ]
    return _content_parts(message) + calls


def _content_parts(message: Mapping[str, Any]) -> list[JSONDict]:
    """The parts of a message without its calls, the reasoning first."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    parts: list[JSONDict] = []
    if isinstance(reasoning, str):
        parts.append({"type": "reasoning", "content": reasoning})
    content: Any = message.get("content") or message.get("refusal")
    if isinstance(content, str):
        parts.append(_text(content))
    elif is_list(content):
        parts += [_part(part) for part in content]
    return parts


def _part(part: Any) -> JSONDict:
    """One part of a content; a type that the conventions do not define is kept as it is."""
    if not is_mapping(part):
        return _text(str(part))
    kind, media = part.get("type"), None
    if kind == "text":
        return _text(str(part.get("text", "")))
    if kind == "image_url":
        media = _image(part.get("image_url"))
    elif kind == "input_audio":
        media = _audio(part.get("input_audio"))
    return media or {"type": "other", **part}


def _image(image: Any) -> JSONDict | None:
    url = image.get("url") if is_mapping(image) else image
    if not isinstance(url, str):
        return None
    found = data_url(url)
    if found is None or not found.is_base64:
        return {"type": "uri", "modality": "image", "uri": url}
    blob = {"type": "blob", "modality": "image", "mime_type": found.media}
    return {**blob, "content": found.data or found.text}


def _audio(audio: Any) -> JSONDict | None:
    if not is_mapping(audio) or not isinstance(audio.get("data"), str):
        return None
    blob = {"type": "blob", "modality": "audio", "content": audio["data"]}
    format_ = audio.get("format")
    return {**blob, "mime_type": f"audio/{format_}"} if isinstance(format_, str) else blob


def _call(call_id: str | None, name: str, arguments: str) -> JSONDict:
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):  # invalid JSON is shown as the model wrote it
        parsed = arguments
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": parsed}


def _text(content: str) -> JSONDict:
    return {"type": "text", "content": content}
