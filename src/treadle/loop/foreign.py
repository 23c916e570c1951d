"""Checking what others made of our own types: type hints hold nobody to them at run time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from treadle.types import Chunk, Response, ToolCall, Usage, kind_of

MOST_TOKENS = 2**63
"""A count of tokens beyond this is no count; it could not be shown, either."""


class NotAResponseError(TypeError):
    """The backend returned something that no answer can be made of."""


def checked_response(response: Response) -> Response:
    """A response that a backend made itself.

    Raises:
        NotAResponseError: a field of it is not of its type.
    """
    for name in ("content", "finish_reason", "model", "id", "refusal", "provider"):
        _want(response, name, str, "text", or_none=True)
    _want(response, "extra", Mapping, "a mapping")
    _want(response, "tool_calls", (tuple, list), "a tuple of calls")
    for call in response.tool_calls:
        if not isinstance(call, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NotAResponseError(
                f"llm_send_fn: Response.tool_calls: expected calls, got {kind_of(call)}"
            )
        for name in ("id", "name", "arguments"):
            _want(call, name, str, "text")
        _want(call, "extra", Mapping, "a mapping")
    _check_usage(response.usage)
    return response


def checked_chunk(chunk: Chunk) -> Chunk:
    """A chunk that a backend made itself.

    Raises:
        NotAResponseError: a field of it is not of its type.
    """
    _want(chunk, "text", str, "text")
    for name in ("finish_reason", "model", "id"):
        _want(chunk, name, str, "text", or_none=True)
    _want(chunk, "extra", Mapping, "a mapping")
    _want(chunk, "tool_calls", (tuple, list), "a tuple of pieces")
    for piece in chunk.tool_calls:
        for name in ("id", "name", "arguments"):
            _want(piece, name, str, "text")
    _check_usage(chunk.usage)
    return chunk


def _want(
    holder: Any, name: str, kinds: type | tuple[type, ...], expected: str, *, or_none: bool = False
) -> None:
    value = getattr(holder, name, _MISSING)
    if not isinstance(value, kinds) and not (or_none and value is None):
        raise NotAResponseError(
            f"llm_send_fn: {type(holder).__name__}.{name}: expected {expected}, got {kind_of(value)}"
        )


_MISSING = object()


def is_count(value: Any) -> bool:
    """Whether something is a number of tokens."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS


def is_cost(value: Any) -> bool:
    """Whether something is a number of US dollars."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf


def _check_usage(usage: Any) -> None:
    if usage is None:
        return
    if not isinstance(usage, Usage):
        raise NotAResponseError(f"llm_send_fn: usage: expected Usage, got {kind_of(usage)}")
    counts = (usage.input_tokens, usage.output_tokens, usage.total_tokens)
    if not all(map(is_count, (*counts, usage.cached_tokens, usage.reasoning_tokens))):
        raise NotAResponseError("llm_send_fn: usage: expected numbers of tokens of at least 0")
    if usage.cost is not None and not is_cost(usage.cost):
        raise NotAResponseError(
            f"llm_send_fn: usage.cost: expected US dollars, got {kind_of(usage.cost)}"
        )
