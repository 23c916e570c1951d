"""Which failures of a model are worth another attempt, and how long to wait before it."""

from __future__ import annotations

import errno
from typing import Any

from treadle import labels
from treadle.effects import Call, Steps
from treadle.messages import is_mapping
from treadle.model.info import attribute_of
from treadle.tracebacks import leaves_of

BASE_DELAY = 0.5
MAX_DELAY = 30.0
"""Seconds. The delays of OpenAI's client start at the same value and have the same jitter."""

MAX_DOUBLINGS = 64
"""The delay reaches its maximum long before this; a large power of two would overflow a float."""

_RETRYABLE_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)})
"""The statuses that OpenAI's client retries; and 425 (too early)."""

_PERMANENT_CODES = frozenset(
    {"context_length_exceeded", "insufficient_quota", "invalid_api_key", "model_not_found"}
)
"""OpenAI's codes for requests that cannot succeed, whatever the status: an exhausted quota is a 429."""

_TEMPORARY_CODES = frozenset(
    {
        "api_error",  # Anthropic
        "overloaded_error",
        "rate_limit_error",
        "timeout_error",
        "rate_limit_exceeded",  # OpenAI
        "server_error",
    }
)
"""Codes of errors that a stream reports after its status, which is 200 or not known."""

_CONNECTION_CLASSES = frozenset(
    {
        "APIConnectionError",  # openai, anthropic and other generated SDKs; APITimeoutError derives from it
        "NetworkError",  # httpx, httpcore
        "RemoteProtocolError",
        "TimeoutException",
        "ProxyError",
        "DecodingError",
        "ClientConnectionError",  # aiohttp
        "ClientPayloadError",
        "gaierror",  # from socket, which is slow to import
        "ConnectionError",  # requests, botocore: not derived from Python's
        "ConnectionClosedError",  # botocore, websockets
        "Timeout",
        "ChunkedEncodingError",
        "ContentDecodingError",
        "IncompleteRead",  # http.client, urllib3
        "IncompleteReadError",  # asyncio
        "BrokenResourceError",  # anyio, trio
        "TooSlowError",
        "NewConnectionError",  # urllib3
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ProtocolError",
        "DecodeError",
        "TimeoutError",
        "SSLEOFError",  # from ssl, which is slow to import
        "SSLZeroReturnError",
        "JSONDecodeError",  # the body is cut off, or comes from a proxy
    }
)
"""Class names of exceptions, or of their base classes, for connections that failed, timed out or broke off."""

_PERMANENT_CLASSES = frozenset(
    {"SSLCertVerificationError", "CertificateError", "LocalProtocolError"}
)
"""Class names of errors that SDKs report as failed connections, and that every attempt would have."""

_CONNECTION_ERRNO = frozenset(
    {errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
)
"""Network errors that Python raises as a plain `OSError`."""

_MAX_CAUSES = 16
"""The number of chained exceptions that are looked at."""


def is_retryable(error: BaseException) -> bool:
    """Whether another attempt may succeed. Anything that is not known to be temporary is not retried.

    The first of these that applies decides:

    1. an attribute ``retryable`` that is True or False, by which an adapter declares it;
    2. OpenAI's code for a request that cannot succeed, such as ``insufficient_quota``;
    3. the HTTP status: 408, 409, 425, 429 and 5xx are retryable; so is an error that a stream reports as
       temporary after the status 200, such as ``overloaded_error``;
    4. a failed or broken connection, a timeout, or a body that is no JSON: an exception of Python, or of an SDK,
       known by its class name. An invalid certificate is not temporary.

    A group of exceptions is retryable if all of them are.

    Args:
        error: the exception that ``llm_send_fn`` raised.
    """
    return all(map(_is_temporary, leaves_of(error)))


def _is_temporary(error: BaseException) -> bool:
    declared = attribute_of(error, "retryable")
    if isinstance(declared, bool):
        return declared
    codes = codes_of(error)
    if codes & _PERMANENT_CODES:
        return False
    status = status_of(error)
    if status is None or status in range(200, 300):
        return bool(codes & _TEMPORARY_CODES) or (status is None and has_broken_connection(error))
    return status in _RETRYABLE_STATUS


def has_broken_connection(error: BaseException) -> bool:
    """Whether an error is that of a connection that failed or broke, and may not do so again."""
    # urllib's URLError has the error of the connection as its reason.
    causes = (error, attribute_of(error, "reason"))
    return any(map(_is_connection_error, causes)) and not _is_permanent(error)


def _is_connection_error(error: Any) -> bool:
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if isinstance(error, OSError) and error.errno in _CONNECTION_ERRNO:
        return True
    return not _CONNECTION_CLASSES.isdisjoint(cls.__name__ for cls in type(error).__mro__)


def _is_permanent(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, would occur in every attempt."""
    for _ in range(_MAX_CAUSES):
        if error is None:
            return False
        if not _PERMANENT_CLASSES.isdisjoint(cls.__name__ for cls in type(error).__mro__):
            return True
        error = error.__cause__ or error.__context__
    return False


def codes_of(error: BaseException) -> set[str]:
    """The codes and types of an error, by OpenAI's and Anthropic's names."""
    body = attribute_of(error, "body")
    nested = body.get("error") if is_mapping(body) else None
    found = [attribute_of(error, "code"), attribute_of(error, "type")]
    for holder in (body, nested):
        if is_mapping(holder):
            found += [holder.get("code"), holder.get("type")]
    return {code for code in found if isinstance(code, str)}


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries, by the attribute names of the SDKs."""
    response = attribute_of(error, "response")  # httpx and requests have it there
    for holder in (error, response):
        for name in ("status_code", "status", "code", "http_status"):
            status = attribute_of(holder, name)
            if isinstance(status, int) and status in range(100, 600):
                return status
    metadata = response.get("ResponseMetadata") if is_mapping(response) else None  # botocore
    status = metadata.get("HTTPStatusCode") if is_mapping(metadata) else None
    return status if isinstance(status, int) else None


def delay_before_retry(error: BaseException, attempt: int, base: float) -> Steps[float]:
    """Determine how long to wait: as the server asks, else twice as long each time, with jitter.

    Args:
        error: the exception that ``llm_send_fn`` raised.
        attempt: the number of the attempt that failed, from 1.
        base: seconds before the second attempt.

    Returns:
        Seconds, at most `MAX_DELAY`.
    """
    requested = retry_after(error)
    if requested is not None:
        return min(requested, MAX_DELAY)
    share = yield Call(_random, label=labels.RANDOM)
    return doubled(base, attempt) * (1 - 0.25 * float(share))


def _random() -> float:
    import random  # noqa: PLC0415 - it takes 2 ms, and few runs retry

    return random.random()  # noqa: S311 - it spreads retries


def doubled(base: float, attempt: int) -> float:
    """The delay after an attempt: the base after the first, then twice as long each time, up to `MAX_DELAY`."""
    return min(base * 2 ** min(attempt - 1, MAX_DOUBLINGS), MAX_DELAY)


def retry_after(error: BaseException) -> float | None:
    """The seconds that a server asked to wait, by its header Retry-After; None if it did not."""
    # aiohttp and urllib have headers on the error.
    for holder in (attribute_of(error, "response"), error):
        headers = attribute_of(holder, "headers")
        try:
            seconds = float(headers["retry-after"])
        except Exception:  # noqa: BLE001, S112 - no headers, or the value is not a number of seconds
            continue
        return seconds if seconds >= 0 else None
    return None
