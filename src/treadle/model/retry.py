"""Which failures of a model are worth another try, and how long to wait before it."""

from __future__ import annotations

import random
from typing import Any

from treadle import labels
from treadle.effects import Call, Steps
from treadle.messages import NotAResponseError

BASE_DELAY = 0.5
MAX_DELAY = 30.0
"""Seconds; the delays of OpenAI's own client start alike, and are jittered alike."""

_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_HOPELESS_CODES = frozenset(
    {"context_length_exceeded", "insufficient_quota", "invalid_api_key", "model_not_found"}
)
"""OpenAI's codes for what cannot succeed, whatever the status: a quota that is used up comes as 429."""
_OWN_MISTAKES = (
    NotAResponseError,
    TypeError,
    AttributeError,
    NameError,
    ImportError,
    LookupError,
    AssertionError,
    NotImplementedError,
)
"""What Python raises for a mistake in the code that asks; the next try would make it again."""


def is_retryable(error: BaseException) -> bool:
    """Whether asking again may succeed.

    Args:
        error: what the backend raised. Its ``status_code``, if it has one, decides: 408, 409, 425, 429
            and 5xx may pass; other 4xx (context too long, bad request, authentication) cannot.
    """
    code = _fact(error, "code")
    if isinstance(code, str) and code in _HOPELESS_CODES:
        return False
    status = status_of(error)
    if status is not None:
        return status in _RETRYABLE_STATUS or status >= 500  # noqa: PLR2004 - HTTP's server errors
    return not isinstance(error, _OWN_MISTAKES)


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries, as the SDKs name it."""
    for holder in (error, _fact(error, "response")):  # httpx and requests keep it there
        for name in ("status_code", "status", "code", "http_status"):
            status = _fact(holder, name)
            if isinstance(status, int) and 100 <= status < 600:  # noqa: PLR2004 - the range of HTTP
                return status
    return None


def delay_before_retry(error: BaseException, attempt: int, base: float) -> Steps[float]:
    """How long to wait: what the server asks for, else twice as long each time, jittered.

    Args:
        error: what the backend raised.
        attempt: the number of the try that failed, from 1.
        base: seconds before the second try.

    Returns:
        Seconds.
    """
    asked = _retry_after(error)
    if asked is not None:
        return min(asked, MAX_DELAY)
    longest = min(base * 2 ** (attempt - 1), MAX_DELAY)
    share = yield Call(random.random, label=labels.RANDOM)
    return longest * (1 - 0.25 * float(share))


def _retry_after(error: BaseException) -> float | None:
    for holder in (_fact(error, "response"), error):  # aiohttp and urllib keep them here
        headers = _fact(holder, "headers")
        try:
            seconds = float(headers["retry-after"])
        except Exception:  # noqa: BLE001, S112 - there are none, or it is no number of seconds
            continue
        return seconds if seconds >= 0 else None
    return None


def _fact(holder: Any, name: str) -> Any:
    """An attribute of somebody else's error; None where it has none, or none that can be read."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a property of theirs raised
        return None
