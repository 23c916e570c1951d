"""Which failures of a model are worth another attempt, and how long to wait before it."""

from __future__ import annotations

import contextlib
import errno
import math
import time
from typing import Any

from treadle import labels
from treadle.effects import Call, Steps
from treadle.errors import causes_of
from treadle.messages import is_list, is_mapping
from treadle.messages.ending import words_of
from treadle.model.info import attribute_of
from treadle.tracebacks import leaves_of

BASE_DELAY = 0.5
MAX_DELAY = 30.0
"""Seconds. The delays of OpenAI's client start at the same value and have the same jitter."""

MAX_ASKED_DELAY = 60.0
"""Seconds: the default of ``max_retry_delay``. OpenAI's client has the same maximum for what a server asks."""

RETRYABLE_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)})
"""The statuses that OpenAI's client retries; and 425 (too early)."""

_PERMANENT_CODES = words_of(
    "context_length_exceeded insufficient_quota invalid_api_key model_not_found"
)
"""OpenAI's codes for requests that cannot succeed, whatever the status: an exhausted quota is a 429."""

_TEMPORARY_CODES = words_of(
    """
    api_error overloaded_error rate_limit_error timeout_error rate_limit_exceeded server_error unavailable
    resource_exhausted internal deadline_exceeded aborted overloaded server_overloaded engine_overloaded
    rate_limit rate_limited too_many_requests service_unavailable bad_gateway gateway_timeout timeout
    internal_error internal_server_error network_error throttling server_busy
    """
)
"""Codes, in lower case, of errors that a body or a stream reports after its status, which is 200 or not known: of
Anthropic, OpenAI, Google, and of other servers."""

_CONNECTION_CLASSES = words_of(
    """
    APIConnectionError NetworkError RemoteProtocolError TimeoutException ProxyError DecodingError
    ClientConnectionError ClientPayloadError ConnectionError Timeout ChunkedEncodingError
    ContentDecodingError ConnectionClosedError ProtocolError DecodeError NewConnectionError
    ConnectTimeoutError ReadTimeoutError IncompleteRead IncompleteReadError BrokenResourceError TooSlowError
    TimeoutError gaierror SSLEOFError SSLZeroReturnError JSONDecodeError
    """
)
"""Class names of exceptions, or of their base classes, for connections that failed, timed out or broke off: of
generated SDKs, httpx, aiohttp, requests, botocore, websockets, urllib3, Python, anyio and trio; of ``socket`` and
``ssl``, which are slow to import; and of bodies that are cut off or come from a proxy."""

_PERMANENT_CLASSES = words_of("SSLCertVerificationError CertificateError LocalProtocolError")
"""Class names of errors that SDKs report as failed connections, and that every attempt would have."""

_CONNECTION_ERRNO = frozenset(
    {errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
)
"""Network errors that Python raises as a plain `OSError`."""


def is_retryable(error: BaseException) -> bool:
    """Whether another attempt may succeed. Anything that is not known to be temporary is not retried.

    The first of these that applies decides:

    1. an attribute ``retryable`` that is True or False, by which an adapter declares it;
    2. the header ``x-should-retry`` of the response, with the value true or false;
    3. OpenAI's code for a request that cannot succeed, such as ``insufficient_quota``;
    4. the HTTP status: 408, 409, 425, 429 and 5xx are retryable; so is an error that a stream reports as
       temporary after the status 200, such as ``overloaded_error``;
    5. a failed or broken connection, a timeout, or a body that is no JSON: an exception of Python, or of an SDK,
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
    asked = _headers_of(error).get("x-should-retry", "").lower()  # before all else in the SDKs, too
    if asked in {"true", "false"}:
        return asked == "true"
    codes = codes_of(error)
    if codes & _PERMANENT_CODES:
        return False
    status = status_of(error)
    if status is None or status in range(200, 300):
        numbers = (int(code) for code in codes if code.isdecimal())
        is_temporary = bool(codes & _TEMPORARY_CODES) or any(n in RETRYABLE_STATUS for n in numbers)
        return is_temporary or (status is None and has_broken_connection(error))
    return status in RETRYABLE_STATUS


def has_broken_connection(error: BaseException) -> bool:
    """Whether an error is that of a connection that failed or broke, and may not do so again."""
    # urllib's URLError has the error of the connection as its reason.
    causes = (error, attribute_of(error, "reason"))
    is_permanent = any(_is_any(one, _PERMANENT_CLASSES) for one in causes_of(error))
    return any(map(_is_connection_error, causes)) and not is_permanent


def _is_connection_error(error: Any) -> bool:
    is_of_network = isinstance(error, OSError) and error.errno in _CONNECTION_ERRNO
    return is_of_network or _is_any(error, _CONNECTION_CLASSES)


def _is_any(error: Any, names: frozenset[str]) -> bool:
    return not names.isdisjoint(cls.__name__ for cls in type(error).__mro__)


def codes_of(error: BaseException) -> set[str]:
    """The codes, types and statuses of an error in lower case, by the names of OpenAI, Anthropic and Google."""
    body = _part(error, "body")
    holders, names = (error, body, _part(body, "error")), ("code", "type", "status")
    found = (_part(holder, name) for holder in holders for name in names)
    return {str(code).lower() for code in found if isinstance(code, (str, int))}


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries, by the attribute names of the SDKs."""
    response = attribute_of(error, "response")  # httpx and requests have it there
    found = [
        attribute_of(holder, name)
        for holder in (error, response)
        for name in ("status_code", "status", "code", "http_status")
    ]
    found.append(_part(_part(response, "ResponseMetadata"), "HTTPStatusCode"))  # botocore
    return next((one for one in found if isinstance(one, int) and one in range(100, 600)), None)


def delay_before_retry(asked: float | None, attempt: int, base: float) -> Steps[float]:
    """The seconds to wait: as the server asks, else the base, doubled after each attempt, with jitter."""
    if asked is not None:
        return asked
    share = yield Call(_random, label=labels.RANDOM)
    return doubled(base, attempt) * (1 - 0.25 * float(share))


def _random() -> float:
    import random  # noqa: PLC0415 - it takes 2 ms, and few runs retry

    return random.random()  # noqa: S311 - it spreads retries


def doubled(base: float, attempt: int) -> float:
    """The delay after an attempt: the base after the first, then twice as long each time, up to `MAX_DELAY`."""
    return min(base * 2 ** min(attempt - 1, 64), MAX_DELAY)  # a larger power would overflow a float


_WAITS = (("retry-after-ms", 1000), ("x-ms-retry-after-ms", 1000), ("retry-after", 1))
"""The headers that ask for a wait, and their units in a second, in the order of Azure's SDKs. OpenAI's and
Anthropic's SDKs read the first and the last."""


def retry_after(error: BaseException, now: float | None = None) -> float | None:
    """The seconds that a server asked to wait, in a header or in the body; of a group, the longest wait.

    It reads ``retry-after-ms``, ``x-ms-retry-after-ms``, ``Retry-After`` (a number of seconds, or an HTTP date in
    the three forms of RFC 9110), and ``google.rpc.RetryInfo`` in the body. Limits that a server reports in every
    response, such as ``x-ratelimit-reset-tokens``, do not ask for a wait.

    ``now`` is for a date in a response that has no header ``Date``. None if the server asked for no valid wait.
    """
    asked = (_asked_wait(one, now) for one in leaves_of(error))
    return max((seconds for seconds in asked if seconds is not None), default=None)


def _asked_wait(error: BaseException, now: float | None) -> float | None:
    headers = _headers_of(error)
    for name, units in _WAITS:
        seconds = _number(headers.get(name))
        if seconds is not None:
            return seconds / units
    until = _seconds_of_date(headers.get("retry-after"))
    if until is not None:
        start = _seconds_of_date(headers.get("date")) or now or time.time()  # clocks differ
        return max(0.0, until - start)
    bodies = (_part(error, name) for name in ("details", "body"))
    return next(filter(None, map(_retry_info, bodies)), None)


def _number(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


def _seconds_of_date(text: str | None) -> float | None:
    """An HTTP date, in seconds since the epoch. The form of asctime has no zone: all are in GMT."""
    from email.utils import mktime_tz, parsedate_tz  # noqa: PLC0415 - slow to import, and rarely needed

    try:
        parts = parsedate_tz(text or "")
        return None if parts is None else float(mktime_tz((*parts[:9], parts[9] or 0)))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _retry_info(body: Any, depth: int = 4) -> float | None:
    """The delay among the details of an error of Google: ``"retryDelay": "34s"`` in a ``RetryInfo``."""
    if is_mapping(body):
        if str(body.get("@type")).endswith("google.rpc.RetryInfo"):
            return _number(str(body.get("retryDelay")).removesuffix("s"))
        body = [body.get("error"), body.get("details")]
    parts: list[Any] = body if is_list(body) and depth else []
    return next(filter(None, (_retry_info(one, depth - 1) for one in parts)), None)


def _headers_of(error: BaseException) -> dict[str, str]:
    """The headers of the response that an error carries, with names in lower case."""
    response, found = attribute_of(error, "response"), dict[str, str]()
    # aiohttp and urllib have headers on the error, botocore in the metadata of a dict.
    metadata = _part(_part(response, "ResponseMetadata"), "HTTPHeaders")
    for raw in (_part(error, "headers"), metadata, _part(response, "headers")):
        with contextlib.suppress(Exception):  # these are no headers
            pairs = raw.items() if hasattr(raw, "items") else raw
            found |= {_text(name).lower(): _text(value) for name, value in pairs}
    return found


def _part(holder: Any, name: str) -> Any:
    return holder.get(name) if is_mapping(holder) else attribute_of(holder, name)


def _text(value: Any) -> str:
    return (value.decode("latin-1") if isinstance(value, bytes) else str(value)).strip()
