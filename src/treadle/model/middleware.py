"""Middleware of model calls: functions around each request, in effects, so that they work under every driver.

`treadle.providers.middleware` has some that are ready to use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from treadle.effects import Steps, Timed
from treadle.messages import Response
from treadle.model.client import ModelRequest

TimedResponse: TypeAlias = Timed[Response]
"""A response, with the times of its start and end, in seconds since the epoch."""
SendRequest: TypeAlias = Callable[[ModelRequest], Steps[TimedResponse]]
"""Sends a request; returns the steps that do so. Their outcome is the response, or the exception of the model."""
ModelMiddleware: TypeAlias = Callable[[ModelRequest, SendRequest], Steps[TimedResponse]]
"""Takes a request and the function that sends it; returns steps that send it, a changed one or none."""


class StreamInterruptedError(ConnectionError):
    """A stream broke off after listeners had received text of it: another request would show other text.

    Args:
        text: the text that was streamed.
        error: the exception that broke it off.
    """

    retryable = False

    def __init__(self, text: str, error: Exception) -> None:
        super().__init__(text, error)
        self.text = text
        self.error = error

    def __str__(self) -> str:
        return str(self.error)


class SharedLimit:
    """The base of middleware that makes a request wait for those of other runs.

    A Temporal workflow cannot wait for others, so such middleware runs in the activity that sends the request.
    """


def through(middleware: Iterable[ModelMiddleware], send: SendRequest) -> SendRequest:
    """Compose middleware around the function that sends a request; the first is the outermost."""
    for one in reversed([*middleware]):
        send = _around(one, send)
    return send


def _around(middleware: ModelMiddleware, send: SendRequest) -> SendRequest:
    return lambda request: middleware(request, send)
