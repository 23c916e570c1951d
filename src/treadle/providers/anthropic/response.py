"""A whole response of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from treadle.messages import JSONDict, NotAResponseError, Response, ToolCall, Usage, is_list
from treadle.messages.decode import check_no_error
from treadle.providers.anthropic.provider_state import (
    REASONING,
    detail_of,
    kept_blocks,
    kept_of_call,
)
from treadle.providers.sdk_object import as_dict


def response_of(raw: Any) -> Response:
    """Translate a message of the SDK.

    Raises:
        NotAResponseError: the server sent JSON that is no message.
        ProviderError: the server sent an error.
    """
    check_no_error({"error": getattr(raw, "error", None)})
    content: Any = getattr(raw, "content", None)
    if content is None and getattr(raw, "type", None) == "message":
        content = []
    if not is_list(content):
        check_no_error(as_dict(raw) if hasattr(raw, "to_dict") else None)
        raise NotAResponseError(
            "llm_send_fn: the server sent JSON that is no message of Anthropic's API; check the base URL"
        )
    blocks = dict(enumerate(map(as_dict, content)))
    extra = kept_blocks(blocks)
    details = [
        detail_of(block, index) for index, block in blocks.items() if block.get("type") in REASONING
    ]
    if details:
        extra["reasoning_details"] = details
    refusal = refusal_of(raw)
    if refusal is not None:
        extra["refusal"] = refusal
    return Response(
        content="".join(_texts(blocks)) or None,
        tool_calls=tuple(_call(one) for one in blocks.values() if one.get("type") == "tool_use"),
        finish_reason=raw.stop_reason,
        usage=usage_of(raw.usage),
        model=raw.model,
        id=raw.id,
        extra=extra,
        refusal=refusal,
    )


def _texts(blocks: Mapping[int, JSONDict]) -> list[str]:
    return [one.get("text") or "" for one in blocks.values() if one.get("type") == "text"]


def _call(block: Mapping[str, Any]) -> ToolCall:
    given = block.get("input")
    arguments = given if isinstance(given, str) else json.dumps({} if given is None else given)
    call_id, name = block.get("id") or "", block.get("name") or ""
    return ToolCall(call_id, name, arguments, extra=kept_of_call(block))


def refusal_of(holder: Any) -> str | None:
    """The API's explanation of a refusal; None if it gives none. The texts before it are no part of it.

    Args:
        holder: the SDK's object with the stop reason.
    """
    if holder.stop_reason != "refusal":
        return None
    details = getattr(holder, "stop_details", None)
    return getattr(details, "explanation", None) or None


def usage_of(raw: Any) -> Usage | None:
    """The usage. The API counts tokens that were read from the cache, or written to it, apart from the others.

    Args:
        raw: the SDK's usage; that of a stream may have some of the counts.
    """
    if raw is None:
        return None
    read = _count(raw, "cache_read_input_tokens")
    written = _count(raw, "cache_creation_input_tokens")
    prompt = _count(raw, "input_tokens") + read + written
    answer = _count(raw, "output_tokens")
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
