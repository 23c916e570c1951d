"""Streams: an answer in pieces, and all that can go wrong between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from treadle.messages import CallChunk, Chunk, JSONDict, is_dict, is_list
from treadle.testing._chaos_answers import as_usage
from treadle.testing._chaos_dice import Dice, Table
from treadle.testing._chaos_errors import ERRORS


@dataclass(frozen=True, slots=True)
class Fault:
    """The stream raises here.

    Args:
        error: what it raises.
    """

    error: BaseException


@dataclass(frozen=True, slots=True)
class Wait:
    """The stream is silent for a while here.

    Args:
        seconds: how long; infinity is for ever.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Endless:
    """The stream goes on with the same piece from here, for ever.

    Args:
        piece: which.
    """

    piece: Any


class BadEnd:
    """The stream can be read to its end, but closing it raises."""


Piece: TypeAlias = Any
"""A chunk of any form, a `Fault`, a `Wait`, an `Endless` or a `BadEnd`."""


def streamed(dice: Dice, message: JSONDict, reason: Any, usage: Any) -> list[JSONDict]:
    """Chat-completion chunks of a message.

    Args:
        dice: decides how fine the pieces are.
        message: any, good or bad.
        reason: the finish reason, for the last one.
        usage: of the whole answer, for one after it; None is none.
    """
    deltas: list[JSONDict] = [{"role": "assistant", "content": ""}]
    content: Any = message.get("content")
    texts = _cut(dice, content) if isinstance(content, str) else [content]
    deltas += [{"content": text} for text in texts if text is not None]
    calls: Any = message.get("tool_calls")
    if is_list(calls):
        for index, call in enumerate(calls):
            deltas += [{"tool_calls": [piece]} for piece in _call_pieces(dice, call, index)]
    elif calls is not None:
        deltas.append({"tool_calls": calls})
    known = {"role", "content", "tool_calls"}
    deltas += [{key: message[key]} for key in message if key not in known]
    chunks = [_chunk(delta) for delta in deltas]
    chunks.append(_chunk({}, reason))
    if usage is not None:
        chunks.append({"object": "chat.completion.chunk", "choices": [], "usage": usage})
    return chunks


def _chunk(delta: Any, reason: Any = None) -> JSONDict:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}


def _cut(dice: Dice, text: str) -> list[str]:
    if len(text) < 2 or dice.chance(0.5):  # noqa: PLR2004 - what has no two halves
        return [text]
    place = dice.randrange(1, len(text))
    return [text[:place], text[place:]]


def _call_pieces(dice: Dice, call: Any, index: int) -> list[Any]:
    """The pieces of a call: its id and name first, its arguments after it."""
    function = call.get("function") if is_dict(call) else None
    if not is_dict(function) or not isinstance(function.get("arguments"), str):
        return [{**call, "index": index} if is_dict(call) else call]
    head = {**call, "index": index, "function": {**function, "arguments": ""}}
    texts = _cut(dice, function["arguments"])
    return [head, *({"index": index, "function": {"arguments": text}} for text in texts)]


def as_chunk(piece: JSONDict) -> Chunk | JSONDict:
    """A chunk of our own type; the piece as it is, where it cannot be one."""
    choice: JSONDict = piece["choices"][0] if piece["choices"] else {}
    delta: JSONDict = choice.get("delta", {})
    reason: Any = choice.get("finish_reason")
    text: Any = delta.get("content", "")
    calls: list[Any] = delta.get("tool_calls", [])
    if not isinstance(text, str) or not (reason is None or isinstance(reason, str)):
        return piece
    made: list[CallChunk] = []
    for call in calls:
        function = call.get("function") if is_dict(call) else None
        if not is_dict(function):
            return piece
        facts = {"id": call.get("id", ""), **function}
        fields: list[Any] = [facts.get(key, "") for key in ("id", "name", "arguments")]
        if not all(isinstance(part, str) for part in fields):
            return piece
        made.append(CallChunk(call["index"], *fields))
    usage = as_usage(piece.get("usage"))
    return Chunk(text, tuple(made), reason, usage, ends_with_reason=True)


Change: TypeAlias = Callable[[Dice, list[Piece], bool], list[Piece]]
"""Takes the pieces and whether a stream may hang; returns what becomes of them."""


def _place(dice: Dice, pieces: Sequence[Piece]) -> int:
    return dice.randrange(len(pieces) + 1)


def _breaks(dice: Dice, pieces: list[Piece], _endless: bool) -> list[Piece]:
    return [*pieces[: _place(dice, pieces)], Fault(dice.pick(ERRORS)(dice))]


def _shuffled(dice: Dice, pieces: list[Piece], _endless: bool) -> list[Piece]:
    mixed = list(pieces)
    dice.shuffle(mixed)
    return mixed


def _with(dice: Dice, pieces: list[Piece], piece: Piece) -> list[Piece]:
    place = _place(dice, pieces)
    return [*pieces[:place], piece, *pieces[place:]]


_EMPTY: tuple[Any, ...] = (
    *("", Chunk(), _chunk({}), _chunk(None), {"choices": []}, {"choices": None}),
    _chunk({"content": None, "tool_calls": None}),
    _chunk({"tool_calls": []}),
)
_UNKNOWN: tuple[Any, ...] = (
    *(None, 5, b"data: [DONE]", [], {}, {"type": "ping"}, {"error": {"message": "overloaded"}}),
    *({"choices": 5}, {"choices": [5]}, {"choices": {"0": 1}}, {"choices": [{"delta": "text"}]}),
    *(_chunk({"content": 5}), _chunk({"content": [{"type": "text", "text": "a"}]})),
    *(_chunk({"tool_calls": 5}), _chunk({"tool_calls": "abc"}), _chunk({"tool_calls": [None]})),
    _chunk({"tool_calls": [{"index": "first", "id": 7, "function": {"name": "search"}}]}),
    _chunk({"tool_calls": [{"index": -1, "id": "a", "function": {"name": 5}}]}),
    _chunk({"tool_calls": [{"id": ["a"], "function": {"name": "search", "arguments": {}}}]}),
    _chunk({"content": "a"}, {"reason": "stop"}),
)


def _hangs(dice: Dice, pieces: list[Piece], endless: bool) -> list[Piece]:
    return _with(dice, pieces, Wait(math.inf if endless else 0.002))


def _goes_on(dice: Dice, pieces: list[Piece], endless: bool) -> list[Piece]:
    """Without end, where it may; else for a long time."""
    piece = dice.choice(pieces or [""])
    return [*pieces, Endless(piece)] if endless else [*pieces, *[piece] * 200]


def _one_index(_dice: Dice, pieces: list[Piece], _endless: bool) -> list[Piece]:
    return [_reindexed(piece, lambda call: {**call, "index": 0}) for piece in pieces]


def _no_index(_dice: Dice, pieces: list[Piece], _endless: bool) -> list[Piece]:
    def without(call: JSONDict) -> JSONDict:
        return {key: value for key, value in call.items() if key != "index"}

    return [_reindexed(piece, without) for piece in pieces]


def _reindexed(piece: Piece, change: Callable[[JSONDict], JSONDict]) -> Piece:
    """A piece in OpenAI's form with its calls changed; any other as it is."""
    if not is_dict(piece) or not piece["choices"]:
        return piece
    choice = piece["choices"][0]
    calls: Any = choice["delta"].get("tool_calls")
    if not is_list(calls):
        return piece
    made = [change(call) if is_dict(call) else call for call in calls]
    return {**piece, "choices": [{**choice, "delta": {**choice["delta"], "tool_calls": made}}]}


FAULTS: Table[Change] = Table(
    "stream",
    {
        "whole": (8, lambda _d, pieces, _e: pieces),
        "breaks off with an error": (4, _breaks),
        "just ends": (4, lambda dice, pieces, _e: pieces[: _place(dice, pieces)]),
        "out of order": (2, _shuffled),
        "with empty pieces": (2, lambda d, pieces, _e: _with(d, pieces, d.choice(_EMPTY))),
        "with unknown pieces": (2, lambda d, pieces, _e: _with(d, pieces, d.choice(_UNKNOWN))),
        "with a piece twice": (1, lambda d, pieces, _e: [*pieces, d.choice(pieces or [""])]),
        "with one index for all calls": (1, _one_index),
        "without indexes": (1, _no_index),
        "falls silent": (1, _hangs),
        "does not end": (1, _goes_on),
        "cannot be closed": (1, lambda _d, pieces, _e: [*pieces, BadEnd()]),
        "of nothing": (0.5, lambda _d, _p, _e: []),
    },
)
"""What becomes of a stream."""


def with_faults(dice: Dice, pieces: Sequence[Piece], endless: bool) -> tuple[Piece, ...]:
    """A stream with whatever goes wrong in it.

    Args:
        dice: decides.
        pieces: the good stream.
        endless: whether it may fall silent for ever.
    """
    return tuple(dice.pick(FAULTS)(dice, list(pieces), endless))
