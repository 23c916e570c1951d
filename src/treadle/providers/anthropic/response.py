"""A whole response of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.messages import JSONDict, Response, ToolCall, Usage
from treadle.providers.anthropic.kept import OWN_BLOCKS, detail_of, kept_blocks

REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
"""The finish reasons of chat completions, by the stop reasons that mean the same."""
NO_REASON = "The model refused to answer."
"""The text of a refusal that came without one."""


def response_of(raw: Any) -> Response:
    """Translate a message of the SDK."""
    blocks = [as_dict(block) for block in raw.content or ()]
    text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")
    refusal = (text or NO_REASON) if raw.stop_reason == "refusal" else None
    extra = kept_blocks(
        {**block, "index": index}
        for index, block in enumerate(blocks)
        if block.get("type") not in OWN_BLOCKS
    )
    details = list(_details(blocks))
    if details:
        extra["reasoning_details"] = details
    return Response(
        content=(text or None) if refusal is None else None,
        tool_calls=tuple(map(_call, (one for one in blocks if one.get("type") == "tool_use"))),
        finish_reason=finish_reason_of(raw.stop_reason),
        usage=usage_of(raw.usage),
        model=raw.model,
        id=raw.id,
        extra=extra if refusal is None else {**extra, "refusal": refusal},
        refusal=refusal,
    )


def as_dict(block: Any) -> JSONDict:
    """An object of the SDK as the server sent it."""
    # Servers that implement the API may leave out fields, or have other values.
    made: JSONDict = block.to_dict(warnings=False)
    return made


def _details(blocks: Iterable[JSONDict]) -> Iterable[JSONDict]:
    for index, block in enumerate(blocks):
        if block.get("type") in {"thinking", "redacted_thinking"}:
            yield detail_of(block, index)


def _call(block: Mapping[str, Any]) -> ToolCall:
    given = block.get("input")
    arguments = given if isinstance(given, str) else json.dumps({} if given is None else given)
    return ToolCall(block.get("id") or "", block.get("name") or "", arguments)


def finish_reason_of(reason: str | None) -> str | None:
    """The finish reason of chat completions that means the same, else the API's own."""
    return None if reason is None else REASONS.get(reason, reason)


def usage_of(raw: Any) -> Usage | None:
    """The usage. The API counts tokens that were read from the cache, or written to it, apart from the others.

    Args:
        raw: the SDK's usage; that of a stream may have some of the counts.
    """
    if raw is None:
        return None
    read, written = (
        _count(raw, "cache_read_input_tokens"),
        _count(raw, "cache_creation_input_tokens"),
    )
    fresh, answer = _count(raw, "input_tokens"), _count(raw, "output_tokens")
    prompt = fresh + read + written
    if not (prompt or answer):  # no request takes zero tokens
        return None
    details = getattr(raw, "output_tokens_details", None)
    return Usage(
        prompt,
        answer,
        cached_tokens=read,
        reasoning_tokens=_count(details, "thinking_tokens"),
        is_lower_bound=not (prompt and answer),
        cache_write_tokens=written,
    )


def _count(holder: Any, name: str) -> int:
    value = getattr(holder, name, None)
    return value if isinstance(value, int) and value > 0 else 0
