"""`RateLimit`: how many requests and tokens a provider is sent in a minute."""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice

from treadle import labels
from treadle.effects import NOW, Call, Sleep, Steps
from treadle.errors import OptionError
from treadle.forks import renew_after_fork
from treadle.messages import Response, estimate_usage
from treadle.model.client import ModelRequest
from treadle.model.middleware.composition import Answer, SendRequest
from treadle.model.middleware.target import Per, check_per, key_of
from treadle.model.retry import retry_after, status_of
from treadle.queues import Queues

MINUTE = 60.0
TOO_MANY_REQUESTS = 429


class RateLimit:
    """Middleware that keeps requests within the limits of a provider; they are sent in order of arrival.

    In no 60 seconds more requests or tokens are sent than the limits allow. The tokens of a request are estimated
    before it is sent, and corrected by the usage of its response. A request that is larger than the limit alone is
    sent when no other tokens count.

    When a server answers 429 with Retry-After, all requests with the same key wait that long, at most a minute.

    Runs share the limits if they get the same object, in any threads and event loops. A forked child counts
    separately.

    Args:
        requests_per_minute: the number of requests, for each key; None means no limit.
        tokens_per_minute: the number of tokens of requests and responses, for each key; None means no limit.
        per: see `ConcurrencyLimit`.

    Raises:
        OptionError: a number is below 1, or the key is unknown.
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        per: Per = "provider",
    ) -> None:
        self._requests = _checked("requests_per_minute", requests_per_minute)
        self._tokens = _checked("tokens_per_minute", tokens_per_minute)
        self._per: Per = check_per("RateLimit", per)
        self._turns = Queues(1)
        self._windows: dict[str, _Window] = {}
        self._mutex = threading.Lock()
        renew_after_fork(self, RateLimit._renew)

    def _renew(self) -> None:
        self._windows, self._mutex = {}, threading.Lock()

    def __call__(self, request: ModelRequest, send: SendRequest) -> Steps[Answer]:
        """Send a request when the limits allow it."""
        key = key_of(request, self._per)
        sent = _Sent(0 if self._tokens is None else _estimated(request))
        yield from self._turns.taking(key, self._admitted(key, sent), labels.LIMIT)
        try:
            answer = yield from send(request)
        except Exception as error:
            seconds = retry_after(error)
            if seconds and status_of(error) == TOO_MANY_REQUESTS:
                now = yield NOW
                until = now + min(seconds, MINUTE)
                yield Call(self._pause, key, until, label=labels.LIMIT, key=key)
            raise
        usage = answer[0].usage
        if usage is not None and usage.is_measured:
            sent.tokens = usage.total_tokens
        return answer

    def _admitted(self, key: str, sent: _Sent) -> Steps[None]:
        """Wait until a request may be sent."""
        while True:
            now = yield NOW
            delay = yield Call(self._admit, key, sent, now, label=labels.LIMIT, key=key)
            if delay <= 0:
                return
            yield Sleep(delay)

    def _admit(self, key: str, sent: _Sent, now: float) -> float:
        """Count a request; or return how many seconds it has to wait."""
        with self._mutex:
            window = self._windows.setdefault(key, _Window())
            delay = window.delay(now, sent.tokens, self._requests, self._tokens)
            if delay <= 0:
                sent.at = now
                window.sent.append(sent)
            return delay

    def _pause(self, key: str, until: float) -> None:
        with self._mutex:
            window = self._windows.setdefault(key, _Window())
            window.paused_until = max(until, window.paused_until)


class _Sent:
    """A request: when it was sent, and its tokens."""

    __slots__ = ("at", "tokens")

    def __init__(self, tokens: int) -> None:
        self.at = 0.0
        self.tokens = tokens


class _Window:
    """The requests of the last minute, and until when the server asked for none."""

    def __init__(self) -> None:
        self.sent: deque[_Sent] = deque()
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
