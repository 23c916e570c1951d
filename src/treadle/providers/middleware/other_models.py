"""The models that middleware sends a request to in place of that of the loop."""

from __future__ import annotations

import dataclasses

from treadle.model import Model, ModelClient, TimedResponse
from treadle.model.registry import named_model


def client_of(model: Model | ModelClient) -> ModelClient:
    """A model or its name as a client; a named model is opened when it is first used.

    Raises:
        OptionError, MissingExtraError: see `treadle.model.registry.named_model`.
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
