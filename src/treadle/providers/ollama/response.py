"""Responses of Ollama, whole or in chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from treadle.messages import (
    CallChunk,
    Chunk,
    JSONDict,
    NotAResponseError,
    Response,
    ToolCall,
    Usage,
    describe,
    is_mapping,
)
from treadle.messages.decode import check_no_error, to_usage
from treadle.providers.ollama.request import FORMAT

_KNOWN = frozenset({"role", "content", "thinking", "tool_calls", "images"})


def response_of(raw: Any) -> Response:
    """Translate a whole response.

    Raises:
        NotAResponseError: it has no message.
    """
    message = _message(raw)
    calls = tuple(
        ToolCall(call_id, name, arguments) for call_id, name, arguments in _calls(message)
    )
    return Response(
        content=message.get("content") or None,
        tool_calls=calls,
        finish_reason=raw.get("done_reason"),
        usage=_usage(raw),
        model=raw.get("model"),
        extra=_extra(message),
    )


def chunk_of(raw: Any, calls_before: int) -> Chunk:
    """Translate a piece of a streamed response. A call comes whole.

    Args:
        raw: the piece; the last one is ``done``.
        calls_before: the number of calls that came before it.

    Raises:
        NotAResponseError: it has no message.
    """
    message = _message(raw)
    calls = tuple(
        CallChunk(index, call_id, name, arguments)
        for index, (call_id, name, arguments) in enumerate(_calls(message), calls_before)
    )
    is_done = bool(raw.get("done"))
    return Chunk(
        text=message.get("content") or "",
        tool_calls=calls,
        finish_reason=(raw.get("done_reason") or "stop") if is_done else None,
        usage=_usage(raw) if is_done else None,
        model=raw.get("model"),
        extra=_extra(message),
    )


def _message(raw: Any) -> Mapping[str, Any]:
    check_no_error(raw if is_mapping(raw) else None)
    message = raw.get("message", {} if raw.get("done") else None) if is_mapping(raw) else None
    if not is_mapping(message):
        raise NotAResponseError(f"llm_send_fn: Ollama's response has no message: {describe(raw)}")
    return message


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The id, the name and the arguments of each call. Old servers give no ids."""
    found: list[tuple[str, str, str]] = []
    for call in message.get("tool_calls") or ():
        function: Any = call.get("function") if is_mapping(call) else None
        name: Any = function.get("name") if is_mapping(function) else None
        if not isinstance(name, str):
            raise NotAResponseError(
                f"llm_send_fn: Ollama's response has a call without a name: {describe(call)}"
            )
        arguments: Any = function.get("arguments")
        arguments = "" if arguments is None else arguments
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        found.append((str(call.get("id") or ""), name, text))
    return found


def _usage(raw: Mapping[str, Any]) -> Usage | None:
    counts = raw.get("prompt_eval_count"), raw.get("eval_count")
    return to_usage(dict(zip(("input_tokens", "output_tokens"), counts, strict=True)))


def _extra(message: Mapping[str, Any]) -> JSONDict:
    extra = {key: message[key] for key in message if key not in _KNOWN}
    thinking = message.get("thinking")
    if thinking:
        item = {"type": "reasoning.text", "text": thinking, "format": FORMAT, "index": 0}
        extra["reasoning_details"] = [item]
    return extra
