"""Playing a turn: it is returned, raised or streamed, by a sync or an async callable."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio

from treadle.testing._chaos_forms import Turn
from treadle.testing._chaos_streams import BadEnd, Endless, Fault, Piece, Wait


class Player:
    """Plays turns; what waits for ever in a thread waits until it is let go."""

    def __init__(self) -> None:
        self._let_go = threading.Event()

    def let_go(self) -> None:
        """End every wait, and make none that lasts any more."""
        self._let_go.set()

    def play(self, turn: Turn) -> Any:
        """Play a turn in this thread."""
        self._wait(turn.pause)
        if turn.error is not None:
            raise turn.error
        if turn.pieces is None:
            return turn.value
        return _Stream(self, turn.pieces) if _ends_badly(turn) else self._streamed(turn.pieces)

    async def play_async(self, turn: Turn) -> Any:
        """Play a turn on an event loop."""
        await _silent(turn.pause)
        if turn.error is not None:
            raise turn.error
        if turn.pieces is None:
            return turn.value
        return _AsyncStream(turn.pieces) if _ends_badly(turn) else _streamed(turn.pieces)

    def perform(self, piece: Piece) -> bool:
        """Do what a piece says that is none; tell whether it was one."""
        if isinstance(piece, Fault):
            raise piece.error
        if isinstance(piece, Wait):
            self._wait(piece.seconds)
        return isinstance(piece, (Wait, BadEnd, Endless))

    def _wait(self, seconds: float) -> None:
        if math.isinf(seconds):
            self._let_go.wait()
            raise TimeoutError("let go")
        if seconds:
            time.sleep(seconds)

    def _streamed(self, pieces: tuple[Piece, ...]) -> Iterator[Any]:
        for piece in pieces:
            while isinstance(piece, Endless) and not self._let_go.is_set():
                yield piece.piece
            if not self.perform(piece):
                yield piece


def _ends_badly(turn: Turn) -> bool:
    return any(isinstance(piece, BadEnd) for piece in turn.pieces or ())


async def _silent(seconds: float) -> None:
    if math.isinf(seconds):
        await anyio.sleep_forever()
    elif seconds:
        await anyio.sleep(seconds)


async def _performed(piece: Piece) -> bool:
    if isinstance(piece, Fault):
        raise piece.error
    if isinstance(piece, Wait):
        await _silent(piece.seconds)
    return isinstance(piece, (Wait, BadEnd, Endless))


async def _streamed(pieces: tuple[Piece, ...]) -> AsyncIterator[Any]:
    for piece in pieces:
        while isinstance(piece, Endless):
            yield piece.piece
        if not await _performed(piece):
            yield piece


class _Stream:
    """A stream that is no generator; closing it raises, and before its end it raises too."""

    def __init__(self, player: Player, pieces: tuple[Piece, ...]) -> None:
        self._player = player
        self._pieces = iter(pieces)

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> Any:
        piece = next(self._pieces)
        if self._player.perform(piece):
            raise ConnectionResetError("chaos")
        return piece

    def close(self) -> None:
        """Fail."""
        raise OSError("it cannot be closed")


class _AsyncStream:
    """As `_Stream`, to be read on an event loop; and not an iterator of itself."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> _AsyncStream:
        return self

    async def __anext__(self) -> Any:
        for piece in self._pieces:
            if await _performed(piece):
                raise ConnectionResetError("chaos")
            return piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Fail."""
        raise OSError("it cannot be closed")
