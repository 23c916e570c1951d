"""Errors about values that are given as a model and are none, and about servers that are none."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from treadle.effects import is_awaitable
from treadle.errors import OptionError
from treadle.messages import NotAResponseError
from treadle.model.info import attribute_of, package_of


def advice_on(value: Any) -> str:
    """What to pass as the model in place of a value that is not callable."""
    if inspect.isawaitable(value) or inspect.isasyncgen(value) or inspect.isgenerator(value):
        if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
            value.close()  # else Python warns that it was never awaited
        return "pass the function itself, without calling it; the loop calls it for each request"
    if isinstance(value, (list, tuple, dict)):
        return "tools belong in tools=, options of the request in llm_opts="
    if callable(attribute_of(value, "as_tool")):
        return "an agent or a loop is no model: make it a tool, tools=[other.as_tool(...)]"
    return (
        "pass a name, such as 'openai:gpt-5-mini'; or a method of a client that returns chat completions, such as "
        "functools.partial(client.chat.completions.create, model='...'); or a function that takes messages and "
        "returns the text or an assistant message"
    )


def check_method(fn: Any) -> None:
    """Raise an `OptionError` if the responses of a method of an SDK are not understood."""
    package, kind = package_of(fn), fn.__self__.__class__.__name__
    # Of other packages, no method returns chat completions.
    is_chat = package == "openai" and "Completions" in kind
    if is_chat or package in {"groq", "mistralai", "cohere"}:
        return
    provider = {"google": "gemini", "openai": "openai-responses"}.get(package, package)
    raise OptionError(
        f"llm_send_fn: the responses of this method of {kind} are not understood; use the name of the model, such "
        f"as {provider + ':NAME'!r}, or a function that calls the method and returns a Response"
    )


def checked_answers(call: Callable[..., Any]) -> Callable[..., Any]:
    """A method of an SDK, sync or async, whose return values are checked as `checked_answer` does."""

    def checked(*args: Any, **opts: Any) -> Any:
        raw = call(*args, **opts)
        if is_awaitable(raw):
            return checked_answer(raw)
        problem = _problem_of(raw)
        if problem is not None:
            if not isinstance(raw, str):
                raw.close()
            raise problem
        return raw

    return checked


async def checked_answer(answer: Awaitable[Any]) -> Any:
    """What an SDK returns; raises `NotAResponseError` for a page, or another text that is no JSON."""
    raw = await answer
    problem = _problem_of(raw)
    if problem is not None:
        if not isinstance(raw, str):
            await raw.close()
        raise problem
    return raw


def _problem_of(raw: Any) -> NotAResponseError | None:
    """An SDK returns the body of a response that is no JSON as text, and reads a stream without events from it."""
    headers = attribute_of(attribute_of(raw, "response"), "headers")
    if isinstance(raw, str):
        found = f"a text that is not JSON: {' '.join(raw[:240].split())[:60]!r}"
    elif headers is not None and "text/html" in str(headers.get("content-type", "")).lower():
        found = "a web page"
    else:
        return None
    advice = "check the base URL, whose path is usually /v1"
    return NotAResponseError(f"llm_send_fn: the server responded with {found}; {advice}")
