"""Bounds the values that tools return, so that an endless iterator in one of them ends."""

from __future__ import annotations

import copy
import dataclasses
import enum
import operator
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from treadle.messages import ATOMS

MAX_ITEMS = 10_000
"""The maximum number of items that are read from an iterator."""
MAX_PARTS = 100_000
"""The maximum number of parts of a value, at all levels. Each takes two bytes at least, so further ones are
beyond the limit of a result in any case."""
MAX_TEXT = 1_000_000
"""The length of the texts that the iterators in a value yield, after which they are not read on, in characters."""
MAX_DEPTH = 250
"""The maximum nesting depth of a value; pydantic's encoder supports as many levels."""
MAX_PLAIN = 1_000
"""The maximum number of parts of a value that is plain."""


def is_plain(value: Any) -> bool:
    """Whether a value is small JSON data of Python's own types, whose rendering runs no other code."""
    if value.__class__ in ATOMS:
        return not isinstance(value, str) or len(value) <= MAX_TEXT
    open_, left = [value], MAX_PLAIN
    while open_:
        part = open_.pop()
        if part.__class__ in ATOMS:
            continue
        left -= len(part) if part.__class__ in _CONTAINERS else left
        if left <= 0:
            return False
        if part.__class__ is dict:
            if any(key.__class__ is not str for key in part):
                return False
            part = part.values()
        open_.extend(part)
    return True


_CONTAINERS = frozenset({dict, list, tuple})
_COLLECTIONS = (list, tuple, set, frozenset, deque)


class Bounds:
    """What is left of the parts of one value that are rendered."""

    def __init__(self) -> None:
        self._parts = MAX_PARTS
        self._text = MAX_TEXT
        self._open: set[int] = set()

    def apply(self, value: Any) -> Any:
        """Make a value that ends: iterators become lists of their first items, and what is too much is left out.

        Returns:
            The value itself if nothing in it has to change.

        Raises:
            ValueError: it contains itself, or is too deeply nested.
        """
        if value.__class__ in ATOMS:
            return value
        if id(value) in self._open or len(self._open) >= MAX_DEPTH:
            raise ValueError("a cycle, or too many levels")
        self._open.add(id(value))
        try:
            return self._applied(value)
        finally:
            self._open.discard(id(value))

    def _applied(self, value: Any) -> Any:
        made = value
        if isinstance(value, Iterator):
            made = self._of_collection(self.first(value))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, dict):
            made = self._of_dict(value)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, _COLLECTIONS):
            made = self._of_collection(value)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, enum.Enum):
            inner = self.apply(value.value)
            made = value if inner is value.value else inner
        elif isinstance(value, type):
            pass
        elif hasattr(value, "__pydantic_serializer__"):
            made = self._of_pydantic(value)
        elif dataclasses.is_dataclass(value):
            names = [spec.name for spec in dataclasses.fields(value)]
            made = self._fields((name, getattr(value, name)) for name in names)
        return made

    def first(self, items: Iterable[Any]) -> list[Any]:
        """The first items of an iterator, as they are."""
        made: list[Any] = []
        for item in items:
            made.append(item)
            if isinstance(item, (str, bytes, bytearray)):
                self._text -= len(item)
            if not self._spend(1) or len(made) == MAX_ITEMS or self._text <= 0:
                break
        return made

    def _spend(self, parts: int) -> int:
        """Count parts; return how many of them are within the bound."""
        parts = min(parts, self._parts)
        self._parts -= parts
        return parts

    def _fields(self, fields: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
        return {name: self.apply(part) for name, part in fields if self._spend(1)}

    def _of_dict(self, value: Any) -> Any:
        base: Any = dict  # its methods, as the encoder reads a subclass
        made, parts = self._fields(base.items(value)), base.values(value)
        is_same = len(made) == len(parts) and all(map(operator.is_, made.values(), parts))
        return value if is_same else made

    def _of_collection(self, value: Any) -> Any:
        base: Any = next(one for one in type(value).__mro__ if one in _COLLECTIONS)
        parts: list[Any] = list(base.__iter__(value))
        kept = [self.apply(part) for part in parts[: self._spend(len(parts))]]
        is_same = len(kept) == len(parts) and all(map(operator.is_, kept, parts))
        return value if is_same else kept

    def _of_pydantic(self, value: Any) -> Any:
        """A copy of a model or dataclass of pydantic, whose serializers apply, if a field has to change."""
        changed: dict[str, dict[str, Any]] = {}
        for holder in ("__dict__", "__pydantic_extra__"):
            fields: dict[str, Any] = getattr(value, holder, None) or {}
            made = self._fields(fields.items())
            for name, part in made.items():
                if part is not fields[name]:
                    # A field of the type Iterable expects an iterator.
                    is_iterator = isinstance(fields[name], Iterator)
                    changed.setdefault(holder, {})[name] = iter(part) if is_iterator else part
        if changed:
            value = copy.copy(value)
            for holder, fields in changed.items():
                getattr(value, holder).update(fields)
        return value
