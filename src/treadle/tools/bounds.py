"""Bounds the values that tools return, so that an endless iterator in one of them ends."""

from __future__ import annotations

import copy
import dataclasses
import enum
import itertools
import operator
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
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
    """Counts the parts of one value while it is rendered, up to the maximum."""

    def __init__(self) -> None:
        self._parts = MAX_PARTS
        self._text = MAX_TEXT

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

    def apply(self, value: Any, depth: int = 0) -> Any:
        """A value that ends: the value itself, or a copy; raises `ValueError` for a cycle or too many levels."""
        if value.__class__ in ATOMS or isinstance(value, type):
            return value
        if depth == MAX_DEPTH:
            raise ValueError("a cycle, or too many levels")
        if isinstance(value, Iterator):
            value = self.first(value)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, enum.Enum):
            inner = self.apply(value.value, depth + 1)
            return value if inner is value.value else inner
        parts = _parts_of(value)
        within = itertools.islice(parts.items(), self._spend(len(parts)))
        kept = {key: self.apply(part, depth + 1) for key, part in within}
        if len(kept) == len(parts) and all(map(operator.is_, kept.values(), parts.values())):
            return value
        if isinstance(value, _COLLECTIONS):
            return [*kept.values()]
        return _changed(value, parts, kept) if _is_of_pydantic(value) else kept

    def _spend(self, parts: int) -> int:
        """Count parts; return how many of them are within the bound."""
        parts = min(parts, self._parts)
        self._parts -= parts
        return parts


def _is_of_pydantic(value: Any) -> bool:
    return hasattr(value, "__pydantic_serializer__")


def _parts_of(value: Any) -> Mapping[Any, Any]:
    """The parts of a value as the encoder reads them: of a subclass, by the methods of its base."""
    parts: Mapping[Any, Any] = {}
    kinds = type(value).__mro__
    base: Any = next((one for one in (dict, *_COLLECTIONS) if one in kinds), None)
    if base is dict:
        parts = dict(base.items(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    elif base is not None:
        parts = dict(enumerate(base.__iter__(value)))  # pyright: ignore[reportUnknownArgumentType]
    elif _is_of_pydantic(value):
        extra: Any = getattr(value, "__pydantic_extra__", None) or {}
        parts = {**getattr(value, "__dict__", {}), **extra}
    elif dataclasses.is_dataclass(value):
        parts = {spec.name: getattr(value, spec.name) for spec in dataclasses.fields(value)}
    return parts


def _changed(value: Any, parts: Mapping[str, Any], kept: Mapping[str, Any]) -> Any:
    """A copy of a model or dataclass of pydantic, whose serializers apply, with other parts."""
    value = copy.copy(value)
    for name, part in parts.items():
        if kept.get(name) is not part:
            holder = value.__dict__ if name in value.__dict__ else value.__pydantic_extra__
            # A field of the type Iterable expects an iterator.
            is_iterator = isinstance(part, Iterator)
            holder[name] = iter(kept.get(name, ())) if is_iterator else kept.get(name)
    return value
