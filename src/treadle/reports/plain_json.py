"""Anything as one line of JSON: what JSON has no words for becomes text, and nothing raises."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from treadle.messages import is_mapping, safe_str

MAX_DEPTH = 60
"""How deep a value may nest; what is deeper becomes text. Readers in other languages have bounds, too."""


def one_line(value: Any) -> str:
    """A value as JSON on one line, in ASCII, so that no encoding can break it and no line end is in it.

    Args:
        value: anything. Dataclasses and pydantic models become objects, sequences and sets become arrays;
            numbers that JSON has no words for, and everything else, become text. Lone surrogates are kept,
            as escapes.
    """
    try:
        # Nearly always it is JSON already but for what `_plainer` knows, and this is written in C.
        return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_plainer)
    except Exception:  # noqa: BLE001 - a NaN, a cycle, a key or a subclass of somebody else's: part by part, then
        return json.dumps(as_json(value), separators=(",", ":"))


def as_json(value: Any) -> Any:
    """A value as what `json` can write, copied; see `one_line`."""
    return _made(value, frozenset())


def _made(value: Any, around: frozenset[int]) -> Any:
    """Make one part.

    Args:
        value: the part.
        around: what it is in, by identity: a cycle has to end somewhere.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)):
        return _number(value)
    if id(value) in around or len(around) >= MAX_DEPTH:
        return f"({type(value).__name__}, nested too deep)"
    return _of_parts(value, around | {id(value)})


def _of_parts(value: Any, inside: frozenset[int]) -> Any:
    if isinstance(value, (list, tuple)):
        parts: list[Any] = [*value]
        return [_made(part, inside) for part in parts]
    if is_mapping(value):
        try:
            return {_key(key): _made(part, inside) for key, part in value.items()}
        except Exception:  # noqa: BLE001 - a mapping of somebody else's
            return safe_str(value)
    plainer = _plainer(value)
    return plainer if isinstance(plainer, str) else _made(plainer, inside)


def _number(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else safe_str(value)
    try:
        int.__repr__(value)
    except ValueError:  # more digits than Python prints
        return safe_str(value)
    return int(value)


def _key(key: Any) -> str:
    return str.__str__(key) if isinstance(key, str) else safe_str(key)


def _plainer(value: Any) -> Any:
    """What is no JSON, one step nearer to it."""
    if is_mapping(value):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [spec.name for spec in dataclasses.fields(value)]
        return {name: getattr(value, name, None) for name in names}
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return dump(mode="json")
        except Exception:  # noqa: BLE001 - a model of somebody else's
            return safe_str(value)
    return safe_str(value)
