"""What the SDK of a provider returns if the server is not one of models, such as a web page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.effects import is_awaitable
from treadle.messages import NotAResponseError
from treadle.model.info import attribute_of

_SHOWN = 60
"""Characters of an answer that an error shows."""


def checked_answers(call: Callable[..., Any]) -> Callable[..., Any]:
    """A method of an SDK, sync or async, whose return values are checked by `check_answer`."""

    def checked(*args: Any, **opts: Any) -> Any:
        raw = call(*args, **opts)
        if is_awaitable(raw):
            return _awaited(raw)
        try:
            return check_answer(raw)
        except NotAResponseError:
            if not isinstance(raw, str):
                raw.close()
            raise

    return checked


async def _awaited(raw: Any) -> Any:
    return await check_async_answer(await raw)


async def check_async_answer(raw: Any) -> Any:
    """As `check_answer`. A stream that is none is closed."""
    try:
        return check_answer(raw)
    except NotAResponseError:
        if not isinstance(raw, str):
            await raw.close()
        raise


def check_answer(raw: Any) -> Any:
    """Return what an SDK returned, if it can be a response or a stream.

    An SDK returns the body of a response that is no JSON as text, and reads a stream without events from it.

    Raises:
        NotAResponseError: the server sent a page, or another text that is no JSON.
    """
    if isinstance(raw, str):
        start = " ".join(raw[: 4 * _SHOWN].split())[:_SHOWN]
        raise _not_a_model(f"a text that is not JSON: {start!r}")
    headers = attribute_of(attribute_of(raw, "response"), "headers")
    if headers is not None and "text/html" in str(headers.get("content-type", "")).lower():
        raise _not_a_model("a web page")
    return raw


def _not_a_model(what: str) -> NotAResponseError:
    advice = "check the base URL, whose path is usually /v1"
    return NotAResponseError(f"llm_send_fn: the server responded with {what}; {advice}")
