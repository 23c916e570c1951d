"""Errors about values that are given as a model and are none: what to pass instead.

It is imported when such a value was given.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from treadle.errors import OptionError

PARTIAL = "functools.partial(client.chat.completions.create, model='...')"


def advice_on(value: Any) -> str:
    """What to pass as the model in place of a value that is not callable."""
    return next((advice for is_one, advice in _ADVICE if is_one(value)), _OTHERWISE)


def check_method(fn: Any) -> None:
    """Check that the responses of a method of an SDK are understood.

    Args:
        fn: the method, or a partial of it.

    Raises:
        OptionError: they are not; the text has the name of the model to use.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    owner: Any = getattr(fn, "__self__", None)
    package, kind = owner.__class__.__module__.partition(".")[0], owner.__class__.__name__
    if package in _UNDERSTOOD and not (package == "openai" and "Completions" not in kind):
        return
    provider = _NAMES.get(package, package)
    if package == "openai":
        provider = "openai-responses"
    raise OptionError(
        f"llm_send_fn: the responses of this method of {kind} are not understood; use the name of the model, such "
        f"as {provider + ':NAME'!r}, or a function that calls the method and returns a Response"
    )


_UNDERSTOOD = frozenset({"openai", "groq", "mistralai", "cohere"})
"""The packages of SDKs with methods that return chat completions; of the others, none does."""
_NAMES = {"google": "gemini"}
"""The names of providers that are not those of their packages."""


def _attribute(value: Any, path: str) -> Any:
    """A nested attribute; None if it does not exist, or cannot be read."""
    try:
        for name in path.split("."):
            value = getattr(value, name, None)
    except Exception:  # noqa: BLE001 - a property may raise anything
        return None
    return value


def _has(*paths: str) -> Callable[[Any], bool]:
    return lambda value: any(callable(_attribute(value, path)) for path in paths)


_NAME = "pass a name, such as 'openai:gpt-5-mini'"
_OTHERWISE = f"{_NAME}; otherwise the model is a callable that takes messages, such as {PARTIAL}"
_ADVICE: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (
        lambda value: isinstance(value, bytes),
        "a name of a model is text, such as 'openai:gpt-5-mini'",
    ),
    (
        lambda value: (
            inspect.isawaitable(value) or inspect.isasyncgen(value) or inspect.isgenerator(value)
        ),
        "pass the function itself, without calling it; the loop calls it for each request",
    ),
    (_has("chat.completions.create"), f"{_NAME}, or a method of the client: {PARTIAL}"),
    (
        _has("messages.create", "models.generate_content", "converse"),
        f"{_NAME}, or a function that takes messages, calls this client and returns the text",
    ),
    (
        _has("as_tool"),
        (
            "an agent or a loop is no model: make it a tool, tools=[other.as_tool(...)], or a function that takes "
            "messages, runs it and returns its text"
        ),
    ),
    (
        _has(
            "run",
            "run_sync",
            "invoke",
            "ainvoke",
            "kickoff",
            "predict",
            "generate",
            "chat",
            "complete",
        ),
        "pass a function that takes messages, calls this object and returns the text or an assistant message",
    ),
    (
        lambda value: isinstance(value, (list, tuple, dict)),
        "tools belong in tools=, options of the request in llm_opts=; the model is a callable that takes messages",
    ),
)
"""Each kind of value that is given by mistake, and the advice on it; the first one that fits."""
