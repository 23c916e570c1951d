"""What middleware of model calls is, and how it is composed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, get_args

from treadle.effects import Steps, Timed
from treadle.errors import OptionError
from treadle.messages import Response
from treadle.model.client import ModelClient, ModelRequest
from treadle.model.info import Model
from treadle.model.registry import named_model

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


def through(middleware: Iterable[ModelMiddleware], send: SendRequest) -> SendRequest:
    """Compose middleware around the function that sends a request; the first is the outermost."""
    for one in reversed([*middleware]):
        send = _around(one, send)
    return send


def _around(middleware: ModelMiddleware, send: SendRequest) -> SendRequest:
    return lambda request: middleware(request, send)


# The models of requests

Per: TypeAlias = Literal["provider", "model"]
"""Whether the models of a provider share a limit, or each model has its own."""


def client_of(model: Model | ModelClient) -> ModelClient:
    """A model or its name as a client; a named model is opened when it is first used.

    Raises:
        OptionError, MissingExtraError: see `treadle.model.named_model`.
    """
    if isinstance(model, ModelClient):
        return model
    return ModelClient(named_model(model) if isinstance(model, str) else model, {})


def name_of(model: Model | ModelClient) -> str:
    """The name of a model, for people."""
    return model if isinstance(model, str) else client_of(model).name


def answered_by(client: ModelClient, answer: TimedResponse) -> TimedResponse:
    """An answer with the names of the model and the provider that gave it, if the response does not say them."""
    response, started, ended = answer
    info = client.model_info()
    named = dataclasses.replace(
        response,
        model=response.model or info.model,
        provider=response.provider or info.provider,
    )
    return named, started, ended


def check_per(owner: str, per: Per) -> Per:
    """Check the option ``per``.

    Raises:
        OptionError: it is neither.
    """
    if per not in get_args(Per):
        raise OptionError(f'{owner}: per: expected "provider" or "model", got {per!r}')
    return per


def key_of(request: ModelRequest, per: Per) -> str:
    """The key of a limit: the provider of a request, or its model too. Unknown ones share a key."""
    info = request.model.model_info()
    provider = info.provider or "other"
    if per == "provider":
        return provider
    return f"{provider}:{request.opts.get('model') or info.model or 'other'}"
