"""Renders the return value or exception of a tool as the text that the model reads.

Values are bounded, so that an endless iterator in one of them ends.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import itertools
import operator
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from treadle.errors import causes_of
from treadle.messages import ATOMS, safe_str
from treadle.tracebacks import leaves_of

MAX_LINES = 2_000
MAX_BYTES = 50_000
"""The limits of one result."""


def render(value: Any) -> str:
    """Render a value: text as it is, bytes as a placeholder, anything else as JSON within `Bounds`."""
    if isinstance(value, str):
        text = value
    elif value is None:
        return "(no output)"
    elif isinstance(value, (bytes, bytearray, memoryview)):
        return f"(binary output, {memoryview(value).nbytes} bytes)"  # pyright: ignore[reportUnknownArgumentType]
    elif type(value) is int and abs(value) <= sys.maxsize:  # str refuses very long numbers
        return str(value)
    else:
        bounds = Bounds()
        if isinstance(value, Iterator):
            value = bounds.first(value)  # pyright: ignore[reportUnknownArgumentType]
        try:
            if not is_plain(value):  # pyright: ignore[reportUnknownArgumentType]
                value = bounds.apply(value)
            from pydantic_core import to_json  # noqa: PLC0415 - slow to import

            text = to_json(value, fallback=str, inf_nan_mode="strings").decode()
        except Exception:  # noqa: BLE001 - a cycle, bytes that are not text, a lone surrogate
            text = safe_str(value)
    if "\0" in text:
        return f"(binary output, {len(text.encode('utf-8', 'replace'))} bytes)"
    return text or "(no output)"


def error_text(error: BaseException) -> str:
    """Describe an exception for the model; a group by the exceptions in it."""
    texts = [f"{type(one).__name__}: {safe_str(one)}" for one in leaves_of(error)]
    if len(texts) == 1:
        return truncate(f"Error: {texts[0]}")
    return truncate("\n- ".join((f"Error: {len(texts)} errors:", *texts)))


def is_plain_error(error: BaseException) -> bool:
    """Whether the text of an exception is made without code of the user."""
    return (
        isinstance(type(error).__str__, types.WrapperDescriptorType)
        and all(part.__class__ in ATOMS for part in error.args)
        and error.__cause__ is None
        and error.__context__ is None
    )


def make_text(error: BaseException) -> None:
    """Make the texts of an exception and its causes once, where a time limit can end it if that takes forever."""
    for one in causes_of(error):
        error_text(one)


def truncate(text: str, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> str:
    """Truncate a text at the limit that is reached first, with a note; replace lone surrogates."""
    is_ascii = text.isascii()
    if is_ascii and len(text) <= max_lines <= max_bytes:  # most results are short
        return text
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= max_bytes and text.count("\n", 0, -1) < max_lines:
        return text if is_ascii else encoded.decode()
    lines = encoded.split(b"\n", max_lines)
    kept = b"\n".join(lines[:max_lines])[:max_bytes]
    start = kept.decode("utf-8", "ignore")
    missing_bytes = len(encoded) - len(start.encode())
    missing_lines = encoded.count(b"\n", 0, -1) - kept.count(b"\n")
    return f"{start}\n[cut: {missing_lines:,} more lines, {missing_bytes:,} more bytes]"


# Bounds

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
_OF_PYDANTIC = "__pydantic_serializer__"


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
        return _changed(value, kept) if hasattr(value, _OF_PYDANTIC) else kept

    def _spend(self, parts: int) -> int:
        """Count parts; return how many of them are within the bound."""
        parts = min(parts, self._parts)
        self._parts -= parts
        return parts


def _parts_of(value: Any) -> Mapping[Any, Any]:
    """The parts of a value as the encoder reads them: of a subclass, by the methods of its base."""
    kinds = type(value).__mro__
    base: Any = next((one for one in (dict, *_COLLECTIONS) if one in kinds), None)
    if base is dict:
        return dict(base.items(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    if base is not None:
        return dict(enumerate(base.__iter__(value)))  # pyright: ignore[reportUnknownArgumentType]
    if hasattr(value, _OF_PYDANTIC):
        extra: Any = getattr(value, "__pydantic_extra__", None) or {}
        return {**getattr(value, "__dict__", {}), **extra}
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    return {spec.name: getattr(value, spec.name) for spec in fields}


def _changed(value: Any, kept: Mapping[str, Any]) -> Any:
    """A copy of a model or dataclass of pydantic, whose serializers apply, with other parts."""
    value = copy.copy(value)
    extra: Any = getattr(value, "__pydantic_extra__", None) or {}
    for holder in (value.__dict__, extra):
        for name, part in holder.items():  # a field of the type Iterable expects an iterator
            is_iterator = isinstance(part, Iterator)
            holder[name] = iter(kept.get(name, ())) if is_iterator else kept.get(name)
    return value
