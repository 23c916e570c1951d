"""Streams: a response in pieces, what goes wrong between them, and playing the result."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import anyio

from treadle.messages import CallChunk, Chunk, JSONDict, is_dict, is_list
from treadle.testing.chaos.dice import Dice, Table
from treadle.testing.chaos.errors import ERRORS
from treadle.testing.chaos.responses import as_usage


@dataclass(frozen=True, slots=True)
class Fault:
    """The stream raises ``error`` here."""

    error: BaseException


class Unclosable(Fault):
    """The stream raises here, and closing it raises as well."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The stream waits here for some seconds; infinity is forever."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Endless:
    """The stream repeats ``piece`` from here without end."""

    piece: Any


Piece: TypeAlias = Any
"""A chunk of any form, a `Fault`, a `Silence` or an `Endless`."""


# The pieces of a response.


def chunks_of(dice: Dice, message: JSONDict, reason: Any, usage: Any) -> list[JSONDict]:
    """Chat-completion chunks of a message.

    Args:
        dice: chooses how fine the pieces are.
        message: any message, valid or not.
        reason: the finish reason, in the last chunk with a choice.
        usage: for a final chunk; None adds none.
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
    if len(text) < 2 or dice.chance(0.5):  # noqa: PLR2004 - too short for two halves
        return [text]
    place = dice.randrange(1, len(text))
    return [text[:place], text[place:]]


def _call_pieces(dice: Dice, call: Any, index: int) -> list[Any]:
    """The pieces of a call: its id and name first, then its arguments."""
    function = call.get("function") if is_dict(call) else None
    if not is_dict(function) or not isinstance(function.get("arguments"), str):
        return [{**call, "index": index} if is_dict(call) else call]
    head = {**call, "index": index, "function": {**function, "arguments": ""}}
    texts = _cut(dice, function["arguments"])
    return [head, *({"index": index, "function": {"arguments": text}} for text in texts)]


def as_chunk(piece: JSONDict) -> Chunk | JSONDict:
    """The piece as a `Chunk`; unchanged if it cannot be one."""
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


# What goes wrong.

Change: TypeAlias = Callable[[Dice, list[Piece], bool], list[Piece]]
"""Takes the pieces and whether a stream may hang forever; returns the changed pieces."""


def _place(dice: Dice, pieces: Sequence[Piece]) -> int:
    return dice.randrange(len(pieces) + 1)


def _with(dice: Dice, pieces: list[Piece], piece: Piece) -> list[Piece]:
    place = _place(dice, pieces)
    return [*pieces[:place], piece, *pieces[place:]]


def _breaks(dice: Dice, pieces: list[Piece], _endless: bool) -> list[Piece]:
    return [*pieces[: _place(dice, pieces)], Fault(dice.pick(ERRORS)(dice))]


def _shuffled(dice: Dice, pieces: list[Piece], _endless: bool) -> list[Piece]:
    dice.shuffle(pieces)
    return pieces


def _repeats_a_piece(dice: Dice, pieces: list[Piece], endless: bool) -> list[Piece]:
    piece = dice.choice(pieces or [""])
    return [*pieces, Endless(piece)] if endless else [*pieces, *[piece] * 200]


def _with_one_index(_dice: Dice, pieces: list[Piece], _endless: bool) -> list[Piece]:
    return [_with_calls_changed(piece, lambda call: {**call, "index": 0}) for piece in pieces]


def _without_indexes(_dice: Dice, pieces: list[Piece], _endless: bool) -> list[Piece]:
    def change(call: JSONDict) -> JSONDict:
        return {key: value for key, value in call.items() if key != "index"}

    return [_with_calls_changed(piece, change) for piece in pieces]


def _with_calls_changed(piece: Piece, change: Callable[[JSONDict], JSONDict]) -> Piece:
    """A piece in OpenAI's form with its calls changed; any other piece unchanged."""
    if not is_dict(piece) or not piece["choices"]:
        return piece
    choice = piece["choices"][0]
    calls: Any = choice["delta"].get("tool_calls")
    if not is_list(calls):
        return piece
    made = [change(call) if is_dict(call) else call for call in calls]
    return {**piece, "choices": [{**choice, "delta": {**choice["delta"], "tool_calls": made}}]}


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
STREAM_FAULTS: Table[Change] = Table(
    "stream",
    {
        "whole": (8, lambda _d, pieces, _e: pieces),
        "breaks off with an error": (4, _breaks),
        "ends early": (4, lambda dice, pieces, _e: pieces[: _place(dice, pieces)]),
        "out of order": (2, _shuffled),
        "with empty pieces": (2, lambda d, pieces, _e: _with(d, pieces, d.choice(_EMPTY))),
        "with unknown pieces": (2, lambda d, pieces, _e: _with(d, pieces, d.choice(_UNKNOWN))),
        "with a piece twice": (1, lambda d, pieces, _e: [*pieces, d.choice(pieces or [""])]),
        "with one index for all calls": (1, _with_one_index),
        "without indexes": (1, _without_indexes),
        "falls silent": (
            1,
            lambda d, pieces, endless: _with(d, pieces, Silence(math.inf if endless else 0.002)),
        ),
        "does not end": (1, _repeats_a_piece),
        "cannot be closed": (
            1,
            lambda _d, pieces, _e: [*pieces, Unclosable(ConnectionResetError("chaos"))],
        ),
        "of nothing": (0.5, lambda _d, _p, _e: []),
    },
)
"""The one thing that is wrong with a stream."""


# Playing.


def play_stream(pieces: Sequence[Piece], released: threading.Event) -> Iterator[Any]:
    """Play pieces in this thread, until the event is set where they do not end."""
    if any(isinstance(piece, Unclosable) for piece in pieces):
        return _UnclosableStream(pieces)
    return _streamed(pieces, released)


def play_async_stream(pieces: Sequence[Piece]) -> AsyncIterator[Any]:
    """Play pieces on an event loop, until the reader is cancelled where they do not end."""
    if any(isinstance(piece, Unclosable) for piece in pieces):
        return _UnclosableAsyncStream(pieces)
    return _astreamed(pieces)


def wait(seconds: float, released: threading.Event) -> None:
    """Block this thread; if without end, until the event is set, and raise then."""
    if math.isinf(seconds):
        released.wait()
        raise TimeoutError("released")
    if seconds:
        time.sleep(seconds)


async def async_wait(seconds: float) -> None:
    """Wait on an event loop."""
    if seconds:
        await anyio.sleep(seconds)  # infinity is forever


def _performed(pieces: Sequence[Piece], is_over: Callable[[], bool]) -> Iterator[Any]:
    """The pieces, with faults raised; a `Silence` is for the caller to wait."""
    for piece in pieces:
        if isinstance(piece, Fault):
            raise piece.error
        if not isinstance(piece, Endless):
            yield piece
            continue
        while not is_over():
            yield piece.piece


def _streamed(pieces: Sequence[Piece], released: threading.Event) -> Iterator[Any]:
    for piece in _performed(pieces, released.is_set):
        if isinstance(piece, Silence):
            wait(piece.seconds, released)
        else:
            yield piece


async def _astreamed(pieces: Sequence[Piece]) -> AsyncIterator[Any]:
    for piece in _performed(pieces, lambda: False):
        if isinstance(piece, Silence):
            await async_wait(piece.seconds)
        else:
            yield piece


class _UnclosableStream:
    """A stream that is not a generator. It raises at its end and when it is closed."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = _performed(pieces, lambda: False)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._pieces)

    def close(self) -> None:
        """Raise."""
        raise OSError("it cannot be closed")


class _UnclosableAsyncStream:
    """The same for an event loop."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = _performed(pieces, lambda: False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Raise."""
        raise OSError("it cannot be closed")
