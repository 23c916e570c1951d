"""Models and errors for the tests of middleware."""

from __future__ import annotations

import threading
import time
from typing import Any

import anyio

from treadle import Response, Usage


class BusyError(Exception):
    """A server under load."""

    status_code = 503


class InvalidError(Exception):
    """A request that is invalid for every model."""

    status_code = 400


class UnauthorizedError(Exception):
    """A key that is not valid."""

    status_code = 401


class CodeError(Exception):
    """An error with a code of the provider."""

    status_code = 400

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class TooManyError(Exception):
    """A rate limit of the server, which says when to come back."""

    status_code = 429

    def __init__(self, seconds: float) -> None:
        super().__init__("too many")
        self.headers = {"retry-after": str(seconds)}


class Named:
    """A model that shows its names, and follows a script; it answers with its name at the end.

    Args:
        name: the model.
        *script: texts, responses, exceptions, or lists of chunks that are streamed; an exception among the
            chunks breaks the stream off.
        provider: its provider.
        seconds: how long it takes to begin a response.
        takes_parts: whether it takes content parts in tool messages.
        usage: that of each text.
    """

    def __init__(
        self,
        name: str,
        *script: Any,
        provider: str = "p",
        seconds: float = 0,
        takes_parts: bool = False,
        usage: Usage | None = None,
    ) -> None:
        self.model, self.provider, self.seconds = name, provider, seconds
        self.accepts_tool_result_parts = takes_parts
        self.usage = usage
        self.script = list(script)
        self.sent: list[Any] = []
        self.given: list[Any] = []
        self.at: list[float] = []
        self.now = self.most = self.cancelled = self.closed = 0
        self._mutex = threading.Lock()

    async def __call__(self, messages: list[Any], **opts: Any) -> Any:
        self.sent.append([dict(message) for message in messages])
        self.given.append(dict(opts))
        self.at.append(time.monotonic())
        step = self.script.pop(0) if self.script else f"from {self.model}"
        messages.clear()  # a model may change its arguments
        opts.clear()
        with self._mutex:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            await anyio.sleep(self.seconds)
        except BaseException:
            self.cancelled += 1
            raise
        finally:
            with self._mutex:
                self.now -= 1
        if isinstance(step, Exception):
            raise step
        if isinstance(step, list):
            return self._streamed(step)
        return Response(step, usage=self.usage) if isinstance(step, str) else step

    async def _streamed(self, pieces: list[Any]) -> Any:
        try:
            for piece in pieces:
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, float):
                    await anyio.sleep(piece)
                else:
                    await anyio.lowlevel.checkpoint()
                    yield piece
        finally:
            self.closed += 1
