"""Estimates the tokens of a request and its response from their texts."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.errors import safe_str
from treadle.messages.measurement import Usage
from treadle.messages.message import ORIGIN, JSONDict, is_list, is_mapping
from treadle.messages.response import Response

CHARACTERS_PER_TOKEN = 4
"""The characters of a token of English text, on average. Source: https://help.openai.com/en/articles/4936856"""
TOKENS_PER_PART = 1_000
"""The tokens of an image, a file or a sound: between OpenAI's 765 for an image of 1024 x 1024 pixels in high
detail and Anthropic's 1,600 for the largest one."""


def estimate_usage(
    messages: Iterable[JSONDict],
    tools: Sequence[JSONDict],
    response: Response,
    others: Sequence[str] = (),
) -> Usage:
    """Estimate the usage of a request: a token for every four characters, and 1,000 for a part that is not text.

    Counts and a cost that the response reports are kept if they are larger.
    """
    received = len(response.content or "") + _of_message({**response.extra, "content": None})
    received += sum(len(call.name) + len(call.arguments) for call in response.tool_calls)
    reported = response.usage or Usage()
    prompt = max(estimate_tokens(messages, tools, others), reported.input_tokens)
    answer = max(math.ceil(received / CHARACTERS_PER_TOKEN), reported.output_tokens)
    return dataclasses.replace(
        reported,
        input_tokens=prompt,
        output_tokens=answer,
        total_tokens=max(prompt + answer, reported.total_tokens),
        is_lower_bound=False,
        is_estimate=True,
    )


def estimate_tokens(
    messages: Iterable[Mapping[str, Any]],
    tools: Iterable[Mapping[str, Any]] = (),
    others: Iterable[str] = (),
) -> int:
    """Estimate the tokens of a request, as `estimate_usage` does."""
    sent = sum(map(_of_message, messages)) + sum(map(_of_value, tools)) + sum(map(len, others))
    return math.ceil(sent / CHARACTERS_PER_TOKEN)


def _of_message(message: Mapping[str, Any]) -> int:
    """The number of characters of a message; a part that is not text counts as many as its tokens take."""
    return sum(
        sum(map(_of_part, value)) if key == "content" and is_list(value) else _of_value(value)
        for key, value in message.items()
        if key != ORIGIN
    )


def _of_part(part: Any) -> int:
    text = part.get("text") if is_mapping(part) else part
    return len(text) if isinstance(text, str) else TOKENS_PER_PART * CHARACTERS_PER_TOKEN


def _of_value(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value)
    try:
        return len(json.dumps(value, ensure_ascii=False, default=safe_str))
    except (TypeError, ValueError, RecursionError):  # keys that are not text, a cycle
        return len(safe_str(value))
