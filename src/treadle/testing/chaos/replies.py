"""What one call of a model or of a tool does: it returns, raises or streams something, after some time."""

from __future__ import annotations

import inspect
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio


@dataclass(frozen=True, slots=True)
class Silence:
    """The stream waits here for some seconds; infinity is forever."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Endless:
    """The stream repeats ``piece`` from here without end."""

    piece: Any


class UnclosableError(ConnectionResetError):
    """The stream raises this at its end, and closing it raises as well."""


Piece: TypeAlias = Any
"""A chunk of any form; a `Silence` or `Endless`; or an exception, which the stream raises here."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What one call does.

    Args:
        value: what is returned, unless pieces are given. On an event loop, a coroutine is awaited.
        pieces: what is streamed.
        error: what is raised instead.
        pause: seconds before that; infinity is forever.
    """

    value: Any = None
    pieces: tuple[Piece, ...] | None = None
    error: BaseException | None = None
    pause: float = 0.0

    def play(self, released: threading.Event | None = None) -> Any:
        """Return, raise or stream it in this thread; the event ends what would not end."""
        released = released or threading.Event()
        _wait(self.pause, released)
        return self._outcome(lambda pieces: _stream(pieces, released), _UnclosableStream)

    async def play_async(self) -> Any:
        """Return, raise or stream it on an event loop; where it does not end, the reader is cancelled."""
        if self.pause:
            await anyio.sleep(self.pause)  # infinity is forever
        outcome = self._outcome(_async_stream, _UnclosableAsyncStream)
        return await outcome if inspect.iscoroutine(outcome) else outcome

    def _outcome(
        self, stream: Callable[[Sequence[Piece]], Any], unclosable: Callable[[Any], Any]
    ) -> Any:
        if self.error is not None:
            raise self.error
        if self.pieces is None:
            return self.value
        made = stream(self.pieces)
        is_unclosable = any(isinstance(piece, UnclosableError) for piece in self.pieces[-1:])
        return unclosable(made) if is_unclosable else made


def _wait(seconds: float, released: threading.Event) -> None:
    """Block this thread; if without end, until the event is set, and raise then."""
    if math.isinf(seconds):
        released.wait()
        raise TimeoutError("released")
    time.sleep(seconds)


def _performed(pieces: Sequence[Piece], is_over: Callable[[], bool]) -> Iterator[Any]:
    """The pieces, with exceptions raised; a `Silence` is for the caller to wait."""
    for piece in pieces:
        if isinstance(piece, BaseException):
            raise piece
        if not isinstance(piece, Endless):
            yield piece
            continue
        while not is_over():
            yield piece.piece


def _stream(pieces: Sequence[Piece], released: threading.Event) -> Iterator[Any]:
    for piece in _performed(pieces, released.is_set):
        if isinstance(piece, Silence):
            _wait(piece.seconds, released)
        else:
            yield piece


async def _async_stream(pieces: Sequence[Piece]) -> AsyncIterator[Any]:
    for piece in _performed(pieces, lambda: False):
        if isinstance(piece, Silence):
            await anyio.sleep(piece.seconds)
        else:
            yield piece


class _UnclosableStream(Iterator[Any]):
    """A stream that is not a generator. It raises when it is closed."""

    def __init__(self, stream: Iterator[Any]) -> None:
        self._stream = stream

    def __next__(self) -> Any:
        return next(self._stream)

    def close(self) -> None:
        raise OSError("it cannot be closed")


class _UnclosableAsyncStream(AsyncIterator[Any]):
    """The same for an event loop."""

    def __init__(self, stream: AsyncIterator[Any]) -> None:
        self._stream = stream

    async def __anext__(self) -> Any:
        return await anext(self._stream)

    async def aclose(self) -> None:
        raise OSError("it cannot be closed")
