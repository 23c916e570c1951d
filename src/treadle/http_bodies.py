"""Bounded bodies of HTTP responses: a compressed one of 300 kB may take 1 GB of memory when it is read."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from treadle.errors import TreadleError

MAX_BODY = 64 * 1024 * 1024
"""The bytes of a response that are read, also of a stream."""
LAST_PIECES = "last_pieces"
"""The extension of a response that has the last two pieces of its body: an event may be split."""


class ResponseBodyError(TreadleError):
    """The body of a response is compressed, although the request excluded it, or too long."""


def client_options(
    headers: Mapping[str, str] | None = None,
    *checks: Callable[[Any], Awaitable[None]],
    on_failed: Callable[[Any, Exception], object] = lambda _response, _error: None,
) -> dict[str, Any]:
    """Options of an ``AsyncClient`` of httpx, so that no response takes more memory than `MAX_BODY`.

    Its requests exclude compression, and a compressed response is refused: httpx decompresses it without a limit.
    ``checks`` are hooks for each response, ``on_failed`` takes one whose body cannot be read, and the exception.
    """

    async def bound(response: Any) -> None:
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in {"", "identity"}:
            error = ResponseBodyError(
                f"{response.request.url.host} compressed its response (content-encoding: {encoding[:40]}), "
                f"although the request had accept-encoding: identity"
            )
            on_failed(response, error)
            raise error
        stream = response.stream
        # httpx accepts only its own class of streams; there are two packages of it, for different SDKs.
        base = next(kind for kind in type(stream).__mro__ if kind.__name__ == "AsyncByteStream")
        response.stream = counted = _class_of(base)()
        counted.pieces = lambda: _Pieces(response, stream, on_failed)
        counted.aclose = stream.aclose

    return {
        "headers": {**(headers or {}), "accept-encoding": "identity"},
        "event_hooks": {"response": [bound, *checks]},
    }


class _Pieces:
    """Counts the bytes of a stream.

    This is a class, because a generator that is not read to its end outlives its event loop. The stream does not
    keep it: the stream is in a reference cycle with its response, and the pieces are a generator of httpx.
    """

    def __init__(
        self, response: Any, stream: Any, on_failed: Callable[[Any, Exception], object]
    ) -> None:
        self._response, self._on_failed = response, on_failed
        self._pieces: AsyncIterator[bytes] = aiter(stream)
        self._count = 0

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await anext(self._pieces)
            self._count += len(piece)
            pieces = self._response.extensions.get(LAST_PIECES, ())
            self._response.extensions[LAST_PIECES] = (*pieces[-1:], piece)
            if self._count > MAX_BODY:
                host = self._response.request.url.host
                text = f"the response of {host} has more than {MAX_BODY:,} bytes"
                raise ResponseBodyError(text)  # noqa: TRY301 - as httpx raises those of a connection
        except StopAsyncIteration:
            raise
        except Exception as error:
            self._on_failed(self._response, error)
            raise
        return piece


def _pieces_of(stream: Any) -> Any:
    return stream.pieces()


@functools.cache
def _class_of(base: type[Any]) -> type[Any]:
    return type("Counted", (base,), {"__aiter__": _pieces_of})
