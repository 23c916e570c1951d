"""The models to which middleware sends requests in place of the first one."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from treadle.errors import OptionError
from treadle.model.client import ModelClient, ModelRequest
from treadle.model.info import Model
from treadle.model.middleware.composition import TimedResponse
from treadle.model.registry import named_model

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


def check_per(owner: str, per: str) -> Per:
    """Check the option ``per``.

    Raises:
        OptionError: it is neither.
    """
    if per == "provider":
        return "provider"
    if per == "model":
        return "model"
    raise OptionError(f'{owner}: per: expected "provider" or "model", got {per!r}')


def key_of(request: ModelRequest, per: Per) -> str:
    """The key of a limit: the provider of a request, or its model too. Unknown ones share a key."""
    info = request.model.model_info()
    provider = info.provider or "other"
    if per == "provider":
        return provider
    return f"{provider}:{request.opts.get('model') or info.model or 'other'}"
