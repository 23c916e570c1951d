"""`Fallback`: other models, which are asked in order when one fails."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

from treadle.effects import Steps
from treadle.errors import OptionError, TreadleError
from treadle.model import (
    Model,
    ModelClient,
    ModelRequest,
    SendRequest,
    StreamInterruptedError,
    TimedResponse,
    is_retryable,
)
from treadle.model.registry import check_model
from treadle.model.retry import RETRYABLE_STATUS, codes_of, retry_after, status_of
from treadle.providers.middleware.other_models import answered_by, client_of, name_of
from treadle.tracebacks import leaves_of

_STATUS = RETRYABLE_STATUS | {401, 402, 403, 404, 413}
"""No valid key, no credit, no permission, no such model, and a request that is too large; and the temporary ones,
which a server may ask not to retry (``x-should-retry: false``): other servers may answer."""
_CODES = frozenset(
    {
        "context_length_exceeded",  # OpenAI
        "insufficient_quota",
        "invalid_api_key",
        "model_not_found",
        "authentication_error",  # Anthropic
        "billing_error",
        "not_found_error",
        "permission_error",
        "request_too_large",
    }
)


def is_fallback_error(error: BaseException) -> bool:
    """Whether another model may answer a request that failed with an error.

    That is so after a temporary error (see `is_retryable`), an error of the key, the quota or the name of the
    model (401, 402, 403, 404, or such a code), a request that is too large for the model (413, or
    ``context_length_exceeded``), and an error that treadle raises, such as one for a missing key or for a
    response that is none. Other invalid requests, such as a 400, are invalid for every model.

    A group of exceptions is such an error if all of them are.

    Args:
        error: the exception that the model raised.
    """
    return all(map(_is_of_one_model, leaves_of(error)))


def _is_of_one_model(error: BaseException) -> bool:
    return (
        isinstance(error, TreadleError)
        or is_retryable(error)
        or status_of(error) in _STATUS
        or not _CODES.isdisjoint(codes_of(error))
    )


class Fallback:
    """Middleware that asks other models, in order, when a model fails.

    Each request starts with the model of the loop. Listeners receive `ModelRetried` with ``next_model``. If all
    models fail, `ask_model` retries the request if one of the errors is temporary. A stream that breaks off after
    listeners have received text of it is not continued by another model.

    Another model does not receive the option ``model``, which names the first one. If it takes no content parts in
    tool messages, it receives them as texts.

    Args:
        *models: the other models: callables, or names such as ``openai:gpt-5-mini``, which are opened when they
            are first needed.
        on: takes an exception of a model; returns whether the next one is asked.
        retries_first: how many of `ask_model`'s retries after a temporary error go to the model of the loop alone.
            By default the next model is asked at once, and so it is if the server asks for a longer wait than
            ``max_retry_delay`` of `ask_model`.

    Raises:
        OptionError: there are no models, or one of them is none.
    """

    def __init__(
        self,
        *models: Model,
        on: Callable[[Exception], bool] = is_fallback_error,
        retries_first: int = 0,
    ) -> None:
        if not models:
            raise OptionError("Fallback: expected at least one model")
        for model in models:
            check_model(model)
        self._models = models
        self._on = on
        self._retries_first = retries_first

    def __call__(self, request: ModelRequest, send: SendRequest) -> Steps[TimedResponse]:
        """Send a request to each model, until one responds."""
        errors: list[Exception] = []
        for model, following in zip_longest((request.model, *self._models), self._models):
            try:
                return (yield from _asked(model, request, send))
            except StreamInterruptedError:
                raise
            except Exception as error:  # noqa: BLE001 - a model may raise anything
                errors.append(error)
            if following is None or not self._goes_on(errors, request):
                break
            if request.report_switch is not None:
                yield from request.report_switch(errors[-1], name_of(model), name_of(following))
        # The temporary error whose server asks for the shortest wait: then all models are asked again.
        raise min(filter(is_retryable, errors), key=_wait_of, default=errors[-1])

    def _goes_on(self, errors: list[Exception], request: ModelRequest) -> bool:
        latest = errors[-1]
        is_first = len(errors) == 1 and request.attempt <= self._retries_first
        is_near = is_retryable(latest) and _wait_of(latest) <= request.max_retry_delay
        return not (is_first and is_near) and self._on(latest)


def _wait_of(error: Exception) -> float:
    return retry_after(error) or 0


def _asked(
    model: Model | ModelClient, request: ModelRequest, send: SendRequest
) -> Steps[TimedResponse]:
    """Ask one model. What it does to its request does not affect the others."""
    client = client_of(model)
    answer = yield from send(request.copy(client))
    return answer if client is request.model else answered_by(client, answer)
