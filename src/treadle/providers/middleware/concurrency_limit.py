"""`ConcurrencyLimit`: how many requests a provider is sent at the same time."""

from __future__ import annotations

from treadle import labels
from treadle.effects import Steps
from treadle.errors import OptionError
from treadle.model import ModelRequest, SendRequest, SharedLimit, TimedResponse
from treadle.providers.middleware.limit_keys import Per, check_per, key_of
from treadle.queues import Queues


class ConcurrencyLimit(SharedLimit):
    """Middleware that limits how many requests are under way at once; the others wait in order of arrival.

    Runs share the limit if they get the same object, in any threads and event loops. A streamed response takes its
    place until its end. A forked child counts separately.

    Args:
        most: the number of requests, for each key.
        per: the key: the provider of the model, or the provider and the model. Models whose provider is not known
            share a key.

    Raises:
        OptionError: the number is below 1, or the key is unknown.
    """

    def __init__(self, most: int, *, per: Per = "provider") -> None:
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"ConcurrencyLimit: expected a number of at least 1, got {most!r}")
        self._turns = Queues(most)
        self._per: Per = check_per("ConcurrencyLimit", per)

    def __call__(self, request: ModelRequest, send: SendRequest) -> Steps[TimedResponse]:
        """Send a request when it has its turn."""
        key = key_of(request, self._per)
        return self._turns.holding({key: True}, send(request), labels.LIMIT)
