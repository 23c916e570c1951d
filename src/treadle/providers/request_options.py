"""Options of requests that are translated: functions that put OpenAI's options where another API has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from treadle.errors import OptionError
from treadle.messages import JSONDict, is_mapping

Option: TypeAlias = Callable[[JSONDict, str, Any], None]
"""Puts an option into the body of a request. It takes the body, the name of the option and its value."""


def put(body: JSONDict, name: str, value: Any) -> None:
    """An option that the API has too."""
    body[name] = value


def renamed(name: str) -> Option:
    """An option that has another name in the API."""
    return lambda body, _name, value: put(body, name, value)


def within(outer: str, inner: str | None = None) -> Option:
    """An option that the API has within another one.

    Args:
        outer: the name of the outer option.
        inner: the name within it; None for the name of the option.
    """
    return lambda body, name, value: merged(body, outer, {inner or name: value})


def merged(body: JSONDict, name: str, value: Any) -> None:
    """An option that is a dict, to which other options may add keys.

    Raises:
        OptionError: it is not a dict.
    """
    body[name] = {**_dict_of(name, body.get(name)), **_dict_of(name, value)}


def _dict_of(name: str, value: Any) -> JSONDict:
    if value is not None and not is_mapping(value):
        raise OptionError(f"{name}: expected a dict, got {type(value).__name__}")
    return dict(value or {})
