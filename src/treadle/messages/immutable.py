"""Dicts and lists that raise if they are edited in place, for data that contexts share."""

from __future__ import annotations

from typing import Any, NoReturn

from treadle.messages.message import copy_json


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise TypeError(
        "a context is read-only, and so are its messages, tools, calls and results; return a changed copy, as in "
        "ctx.replace(messages=[{**message, 'content': text} for message in ctx.messages]) or "
        "ctx.remember(name, value)"
    )


class _ReadOnly:
    """Raises if it is edited in place; a deep copy is a plain object."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = __iadd__ = __imul__ = pop = clear = _refuse

    def __deepcopy__(self, _memo: Any) -> Any:
        return copy_json(self)

    def __reduce__(self) -> tuple[Any, ...]:
        plain = copy_json(self)
        return plain.__class__, (plain,)


class ReadOnlyDict(_ReadOnly, dict[str, Any]):
    """A read-only dict."""

    __slots__ = ()
    update = setdefault = popitem = _refuse


class ReadOnlyList(_ReadOnly, list[Any]):
    """A read-only list."""

    __slots__ = ()
    append = extend = insert = remove = sort = reverse = _refuse


def read_only(value: Any) -> Any:
    """Copy JSON data as read-only dicts and lists; any other value is kept unchanged."""
    if isinstance(value, _ReadOnly):
        return value
    if isinstance(value, dict):
        return ReadOnlyDict({key: read_only(part) for key, part in value.items()})  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return ReadOnlyList([read_only(part) for part in value])  # pyright: ignore[reportUnknownVariableType]
    return value


NOTHING = ReadOnlyDict()
"""An empty dict, which is shared."""
