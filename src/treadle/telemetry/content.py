"""What models, tools and users say, as JSON attributes in the form of OpenTelemetry's conventions.

A message is ``{"role", "parts"}``, and a part is text, a call, the answer to one, or whatever else the message
has, under its own type. It is made only where somebody asked for content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.messages import (
    JSONDict,
    Response,
    ToolCall,
    ToolResult,
    is_list,
    is_mapping,
    safe_str,
    sendable,
    sendable_json,
)
from treadle.telemetry import names
from treadle.telemetry.media import media

_YES = frozenset({"1", "true", "yes", "span", "span_only", "span_and_event"})
_ROLES_OF_INSTRUCTIONS = frozenset({"system", "developer"})


def is_asked_for(option: bool | None) -> bool:
    """Whether content is to be recorded: what the option says, else the environment variable.

    Args:
        option: of the loop; None leaves it to ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``.
    """
    if option is not None:
        return option
    return os.environ.get(names.CAPTURE_VARIABLE, "").strip().lower() in _YES


def of_request(
    messages: Sequence[JSONDict], guidance: str | None, tools: Sequence[JSONDict]
) -> dict[str, str]:
    """The attributes of what a model is sent.

    Args:
        messages: the conversation.
        guidance: what the model is told in this request only.
        tools: in OpenAI's form.
    """
    instructions: list[JSONDict] = []
    told: list[JSONDict] = []
    for message in messages:
        if message.get("role") in _ROLES_OF_INSTRUCTIONS:
            instructions += _parts(message)
        else:
            told.append(_message(message))
    if guidance is not None:
        told.append({"role": "user", "parts": [_text(guidance)]})
    attributes = {names.INPUT_MESSAGES: as_json(told)}
    if instructions:
        attributes[names.SYSTEM_INSTRUCTIONS] = as_json(instructions)
    if tools:
        attributes[names.TOOL_DEFINITIONS] = as_json([_definition(tool) for tool in tools])
    return attributes


def of_response(response: Response) -> dict[str, str]:
    """The attributes of what a model answered."""
    message = {"content": response.content, "refusal": response.refusal, **response.extra}
    calls = [_call(call.id, call.name, call.arguments) for call in response.tool_calls]
    told = {
        "role": "assistant",
        "parts": _said(message) + calls,
        "finish_reason": response.finish_reason or ("tool_call" if response.tool_calls else "stop"),
    }
    return {names.OUTPUT_MESSAGES: as_json([told])}


def of_call(call: ToolCall) -> dict[str, str]:
    """The attributes of what a tool is called with; models write nothing where they mean nothing."""
    return {names.TOOL_CALL_ARGUMENTS: sendable(call.arguments) if call.arguments else "{}"}


def of_result(result: ToolResult) -> dict[str, str]:
    """The attributes of what a tool brought."""
    return {names.TOOL_CALL_RESULT: sendable(result.content)}


def as_json(value: Any) -> str:
    """JSON text; what is no JSON is told as text.

    It has no lone surrogates, not as escapes either: who reads it strictly would refuse the whole of it.
    """
    try:
        text = json.dumps(value, default=safe_str, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, a number that is none
        text = _as_shown(value)
    return sendable(text)


def _as_shown(value: Any) -> str:
    try:
        return json.dumps(sendable_json(value), ensure_ascii=False)
    except (
        RecursionError
    ):  # nested nearly without end, as a model may write it: nobody could read it
        return "[]"


def _message(message: Mapping[str, Any]) -> JSONDict:
    if message.get("role") != "tool":
        told: JSONDict = {"role": str(message.get("role", "")), "parts": _parts(message)}
        name = message.get("name")
        return {**told, "name": name} if isinstance(name, str) else told
    answer = {
        "type": "tool_call_response",
        "id": message.get("tool_call_id"),
        "response": message.get("content"),
    }
    return {"role": "tool", "parts": [answer]}


def _parts(message: Mapping[str, Any]) -> list[JSONDict]:
    return _said(message) + _calls(message.get("tool_calls") or ())


def _said(message: Mapping[str, Any]) -> list[JSONDict]:
    """The parts of a message but for its calls: its reasoning first, which comes before what it says."""
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
    """One part of a content that has several; what the conventions do not know keeps its own form."""
    if is_mapping(part):
        if part.get("type") == "text":
            return _text(str(part.get("text", "")))
        return media(part) or {"type": "other", **part}
    return _text(str(part))


def _calls(calls: Iterable[Any]) -> list[JSONDict]:
    return [
        _call(call.get("id"), call["function"]["name"], call["function"]["arguments"])
        for call in calls
        if is_mapping(call) and is_mapping(call.get("function"))
    ]


def _call(call_id: str | None, name: str, arguments: str) -> JSONDict:
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):  # as the model wrote it
        given = arguments
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": given}


def _text(content: str) -> JSONDict:
    return {"type": "text", "content": content}


def _definition(tool: Mapping[str, Any]) -> JSONDict:
    return {"type": "function", **tool["function"]}
