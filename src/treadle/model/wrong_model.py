"""Errors about values that are given as a model and are none, and about servers that are none."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from treadle.effects import is_awaitable
from treadle.errors import OptionError
from treadle.messages import NotAResponseError
from treadle.model.info import attribute_of, without_partials

PARTIAL = "functools.partial(client.chat.completions.create, model='...')"
_NAME = "pass a name, such as 'openai:gpt-5-mini'"
_OF_VALUES: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (
        lambda value: isinstance(value, bytes),
        "a name of a model is text, such as 'openai:gpt-5-mini'",
    ),
    (
        lambda value: any(
            is_one(value)
            for is_one in (inspect.isawaitable, inspect.isasyncgen, inspect.isgenerator)
        ),
        "pass the function itself, without calling it; the loop calls it for each request",
    ),
    (
        lambda value: isinstance(value, (list, tuple, dict)),
        "tools belong in tools=, options of the request in llm_opts=; the model is a callable that takes messages",
    ),
)
_OF_METHODS = (
    ("chat.completions.create", f"{_NAME}, or a method of the client: {PARTIAL}"),
    (
        "messages.create models.generate_content converse",
        f"{_NAME}, or a function that takes messages, calls this client and returns the text",
    ),
    (
        "as_tool",
        "an agent or a loop is no model: make it a tool, tools=[other.as_tool(...)], or a function that takes "  # noqa: ISC004
        "messages, runs it and returns its text",
    ),
    (
        "run run_sync invoke ainvoke kickoff predict generate chat complete",
        "pass a function that takes messages, calls this object and returns the text or an assistant message",
    ),
)
"""The methods by which an object is known, and the advice on it; the first one that fits."""


def advice_on(value: Any) -> str:
    """What to pass as the model in place of a value that is not callable."""
    for is_one, advice in _OF_VALUES:
        if is_one(value):
            return advice
    for paths, advice in _OF_METHODS:
        if any(callable(_nested(value, path)) for path in paths.split()):
            return advice
    return f"{_NAME}; otherwise the model is a callable that takes messages, such as {PARTIAL}"


def _nested(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = attribute_of(value, name)
    return value


def check_method(fn: Any) -> None:
    """Check that the responses of a method of an SDK, or of a partial of one, are understood.

    Raises:
        OptionError: they are not; the text has the name of the model to use.
    """
    owner: Any = getattr(without_partials(fn), "__self__", None)
    package, kind = owner.__class__.__module__.partition(".")[0], owner.__class__.__name__
    # Of other packages, no method returns chat completions.
    if package in {"groq", "mistralai", "cohere"} or (
        package == "openai" and "Completions" in kind
    ):
        return
    provider = {"google": "gemini", "openai": "openai-responses"}.get(package, package)
    raise OptionError(
        f"llm_send_fn: the responses of this method of {kind} are not understood; use the name of the model, such "
        f"as {provider + ':NAME'!r}, or a function that calls the method and returns a Response"
    )


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
    headers = attribute_of(attribute_of(raw, "response"), "headers")
    if isinstance(raw, str):
        found = f"a text that is not JSON: {' '.join(raw[:240].split())[:60]!r}"
    elif headers is not None and "text/html" in str(headers.get("content-type", "")).lower():
        found = "a web page"
    else:
        return raw
    advice = "check the base URL, whose path is usually /v1"
    raise NotAResponseError(f"llm_send_fn: the server responded with {found}; {advice}")
