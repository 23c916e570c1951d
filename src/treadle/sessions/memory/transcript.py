"""Messages as a text from which a model extracts facts, in pieces that it can read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from treadle.fast_dataclass import light_dataclass
from treadle.messages import CHARACTERS_PER_TOKEN, JSONDict, is_list, is_mapping, safe_str
from treadle.messages.parts import text_of_parts

MAX_DATA = 1_000
"""The number of characters of a tool result, or of the arguments of a call, that are read: facts about the user
and the task are in what people and the model say."""
UNREAD = frozenset({"system", "developer"})
"""The roles whose messages are skipped: they are the program's, and say nothing about the conversation."""


@light_dataclass(frozen=True)
class Piece:
    """Messages that are read together.

    Args:
        start: the index of the first message.
        stop: the index after the last message.
        texts: what the model reads, in one request each. Several are parts of one long message; without any, there
            is nothing to read.
    """

    start: int
    stop: int
    texts: Sequence[str]


def pieces_of(messages: Sequence[JSONDict], start: int, max_tokens: int) -> Iterator[Piece]:
    """Divide messages into pieces.

    Args:
        messages: the messages.
        start: the index of the first of them among the messages of their session.
        max_tokens: the estimated number of tokens of a text.
    """
    limit = max_tokens * CHARACTERS_PER_TOKEN
    first, stop, lines, length = start, start, list[str](), 0
    for stop, message in enumerate(messages, start):
        texts = _texts_of(stop, message, limit)
        size = sum(map(len, texts)) + len(texts)
        if lines and length + size > limit:
            yield Piece(first, stop, ("\n".join(lines),))
            first, lines, length = stop, [], 0
        if len(texts) > 1:
            # The messages before it had nothing to read, or their piece has ended.
            yield Piece(first, stop + 1, texts)
            first = stop + 1
        else:
            lines += texts
            length += size
    if first < start + len(messages):
        yield Piece(first, stop + 1, ("\n".join(lines),) if lines else ())


def _texts_of(index: int, message: Mapping[str, Any], limit: int) -> list[str]:
    """A message as one line; as several if it is longer than the limit; none if there is nothing to read."""
    said = "" if message.get("role") in UNREAD else _said(message)
    if not said:
        return []
    # JSON has no line breaks, so that no message can look like several.
    head, size = f"[{index}] {message.get('role')}: ", max(MIN_PART, limit - HEAD)
    parts = [said[at : at + size] for at in range(0, len(said), size)]
    return [head + json.dumps(part, ensure_ascii=False) for part in parts]


HEAD = 40
"""The number of characters that the number and the role of a message may take."""
MIN_PART = 200
"""The number of characters of a message that are read together in any case: less makes no sense."""


def _said(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    text = text_of_parts(filter(is_mapping, content)) if is_list(content) else content
    text = safe_str(text or "")
    if message.get("role") == "tool":
        return text[:MAX_DATA]
    return "\n".join(filter(None, (text, *_calls_of(message))))


def _calls_of(message: Mapping[str, Any]) -> Iterable[str]:
    """The calls of a message, each as a text."""
    for call in message.get("tool_calls") or ():
        function: JSONDict = call.get("function") or {}
        yield f"(calls {function.get('name')} {safe_str(function.get('arguments'))[:MAX_DATA]})"
