"""`RateLimit`: how many requests and tokens a provider is sent in a minute."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Protocol

from treadle import labels
from treadle.effects import NOW, Call, Mode, Sleep, Steps
from treadle.errors import OptionError
from treadle.fast_dataclass import light_dataclass
from treadle.forks import renew_after_fork
from treadle.messages import Response
from treadle.messages.estimate import estimate_usage
from treadle.model import ModelRequest, SendRequest, SharedLimit, TimedResponse
from treadle.model.retry import retry_after, status_of
from treadle.providers.middleware.limit_keys import Per, check_per, key_of
from treadle.queues import Queues
from treadle.redaction import redacted

log = logging.getLogger("treadle.model")

MINUTE = 60.0
TOO_MANY_REQUESTS = 429


@light_dataclass()
class CountedRequest:
    """A request that a `RateStore` counts.

    Args:
        tokens: the tokens that are counted: first an estimate.
        at: when it was admitted, in seconds since the epoch, in the store of one process.
        id: text that identifies it in a store of several processes, which sets it.
    """

    tokens: int
    at: float = 0.0
    id: str = ""


class RateStore(Protocol):
    """Where a `RateLimit` counts requests. The methods may block; a `RateLimit` calls them in a worker thread."""

    def admit(
        self,
        key: str,
        sent: CountedRequest,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        now: float,
        /,
    ) -> float:
        """Count a request, if the limits allow it now.

        Args:
            key: what the limits are for, such as a provider.
            sent: the request.
            requests_per_minute: the number of requests in 60 seconds; None means no limit.
            tokens_per_minute: the number of tokens in 60 seconds; None means no limit.
            now: the clock of the run, in seconds since the epoch.

        Returns:
            0 if the request was counted, else how many seconds it has to wait before it asks again.
        """
        ...

    def correct(self, key: str, sent: CountedRequest, tokens: int, /) -> None:
        """Count a request that was admitted with the tokens that it had."""
        ...

    def pause(self, key: str, seconds: float, now: float, /) -> None:
        """Admit no request for some seconds."""
        ...


class RateLimit(SharedLimit):
    """Middleware that keeps requests within the limits of a provider; they are sent in order of arrival.

    In no 60 seconds more requests or tokens are sent than the limits allow. The tokens of a request are estimated
    before it is sent, and corrected by the usage of its response. A request that is larger than the limit alone is
    sent when no other tokens count.

    When a server answers 429 and asks for a wait, all requests with the same key wait that long, at most a minute.

    Runs share the limits if they get the same object, in any threads and event loops. A forked child counts
    separately. With ``store=RedisRates(url)``, processes share them: each sends its requests in order of arrival,
    but between processes there is no order. If the store fails, that is logged, and the request is counted in its
    process alone.

    Args:
        requests_per_minute: the number of requests, for each key; None means no limit.
        tokens_per_minute: the number of tokens of requests and responses, for each key; None means no limit.
        per: see `ConcurrencyLimit`.
        store: where requests are counted; None means in this process.

    Raises:
        OptionError: a number is below 1, or the key is unknown.
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        per: Per = "provider",
        store: RateStore | None = None,
    ) -> None:
        self._requests = _checked("requests_per_minute", requests_per_minute)
        self._tokens = _checked("tokens_per_minute", tokens_per_minute)
        self._per: Per = check_per("RateLimit", per)
        self._turns = Queues(1)
        self._own = _OwnRates()
        self._store: RateStore = self._own if store is None else store
        self._mode = Mode.INLINE if store is None else Mode.THREAD

    def __call__(self, request: ModelRequest, send: SendRequest) -> Steps[TimedResponse]:
        """Send a request when the limits allow it."""
        key = key_of(request, self._per)
        sent = CountedRequest(0 if self._tokens is None else _estimated(request))
        yield from self._turns.holding({key: True}, self._admitted(key, sent), labels.LIMIT)
        try:
            answer = yield from send(request)
        except Exception as error:
            if status_of(error) == TOO_MANY_REQUESTS:
                now = yield NOW
                seconds, pause = retry_after(error, now), (self._store.pause, self._own.pause)
                if seconds:
                    yield from self._asked(*pause, key, min(seconds, MINUTE), now)
            raise
        usage = answer[0].usage
        if self._tokens is not None and usage is not None and usage.is_measured:
            correct = self._store.correct, self._own.correct
            yield from self._asked(*correct, key, sent, usage.total_tokens)
        return answer

    def _admitted(self, key: str, sent: CountedRequest) -> Steps[None]:
        """Wait until a request may be sent."""
        admit = self._store.admit, self._own.admit
        while True:
            now = yield NOW
            delay = yield from self._asked(*admit, key, sent, self._requests, self._tokens, now)
            if delay <= 0:
                return
            yield Sleep(delay)

    def _asked(
        self, ask: Callable[..., Any], own: Callable[..., Any], key: str, *args: Any
    ) -> Steps[Any]:
        """The answer of the store; if it fails, that of this process."""
        try:
            return (yield Call(ask, key, *args, mode=self._mode, label=labels.LIMIT, key=key))
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            log.warning(
                "%r failed; requests are counted in this process alone: %s",
                self._store,
                redacted(str(error)),
            )
        return (yield Call(own, key, *args, label=labels.LIMIT, key=key))


class _OwnRates:
    """A `RateStore` in this process."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}
        self._mutex = threading.Lock()
        renew_after_fork(self, _OwnRates._renew)

    def _renew(self) -> None:
        self._windows, self._mutex = {}, threading.Lock()

    def admit(
        self,
        key: str,
        sent: CountedRequest,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        now: float,
    ) -> float:
        """Count a request, if the limits allow it now."""
        with self._mutex:
            window = self._windows.setdefault(key, _Window())
            delay = window.delay(now, sent.tokens, requests_per_minute, tokens_per_minute)
            if delay <= 0:
                sent.at = now
                window.sent.append(sent)
            return max(delay, 0.0)

    def correct(self, _key: str, sent: CountedRequest, tokens: int) -> None:
        """Count a request that was admitted with the tokens that it had."""
        sent.tokens = tokens

    def pause(self, key: str, seconds: float, now: float) -> None:
        """Admit no request for some seconds."""
        with self._mutex:
            window = self._windows.setdefault(key, _Window())
            window.paused_until = max(now + seconds, window.paused_until)


class _Window:
    """The requests of the last minute, and until when the server asked for none."""

    def __init__(self) -> None:
        self.sent: deque[CountedRequest] = deque()
        self.paused_until = 0.0

    def delay(
        self, now: float, tokens: int, most_requests: int | None, most_tokens: int | None
    ) -> float:
        """How many seconds another request has to wait."""
        sent = self.sent
        # A clock that was put back would keep requests for longer than a minute.
        while sent and not 0 <= now - sent[0].at < MINUTE:
            sent.popleft()
        leaving = 0  # how many of the oldest have to be a minute old first
        if most_requests is not None:
            leaving = max(0, len(sent) + 1 - most_requests)
        if most_tokens is not None:
            left = most_tokens - tokens - sum(one.tokens for one in islice(sent, leaving, None))
            while left < 0 and leaving < len(sent):
                left += sent[leaving].tokens
                leaving += 1
        free_at = sent[leaving - 1].at + MINUTE if leaving else now
        paused = self.paused_until if self.paused_until - now <= MINUTE else now
        return max(free_at, paused) - now


def _estimated(request: ModelRequest) -> int:
    """The tokens of a request; how long the response will be is not known."""
    tools = request.opts.get("tools") or ()
    return estimate_usage(request.messages, tools, Response()).total_tokens


def _checked(name: str, limit: int | None) -> int | None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"RateLimit: {name}: expected a number of at least 1, got {limit!r}")
    return limit
