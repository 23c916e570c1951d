"""Reprs without the secrets that callables may hold."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any


def shown(value: Any) -> str:
    """The repr of a value, in which callables of the user are names.

    A partial shows its arguments, a bound method its object, and an object with ``__call__`` may show its fields.
    Each may hold a secret, such as the key of a model. The items of tuples and lists are shown likewise.
    """
    kind = value.__class__
    if kind is tuple:
        items = ", ".join(map(shown, value))
        return f"({items},)" if len(value) == 1 else f"({items})"
    if kind is list:
        return f"[{', '.join(map(shown, value))}]"
    if not callable(value) or isinstance(value, type) or kind.__module__.startswith("treadle."):
        return repr(value)
    return f"<{callable_name(value)}>"


def callable_name(fn: Any) -> str:
    """The name of a callable, through partials; of an object, the name of its class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None)
    return name if name and isinstance(name, str) else type(fn).__name__


def shown_fields(value: Any, names: Iterable[str]) -> str:
    """The repr of an object with the fields of these names; see `shown`."""
    fields = ", ".join(f"{name}={shown(getattr(value, name))}" for name in names)
    return f"{type(value).__qualname__}({fields})"
