"""Values as JSON and from JSON.

`to_json_line` writes any value. Values that JSON cannot represent become text, and nothing raises.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from treadle.messages import is_mapping, safe_str

MAX_DEPTH = 60
"""Maximum nesting of a value. Deeper parts become text, because readers in other languages have limits."""


def to_json_line(value: Any) -> str:
    """A value as JSON on one line, in ASCII, so it has no line ends and every encoding can represent it.

    Args:
        value: any value. Dataclasses and pydantic models become objects, sequences and sets become arrays.
            Everything else that JSON cannot represent, such as a NaN, becomes text. Lone surrogates are kept
            as escapes.
    """
    try:
        # The fast path, written in C. It covers nearly all values.
        return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_simplified)
    except Exception:  # noqa: BLE001 - a NaN, a cycle, a user-supplied key or subclass: convert part by part
        return json.dumps(_converted(value, frozenset()), separators=(",", ":"))


def _converted(value: Any, around: frozenset[int]) -> Any:
    """Convert one part; ``around`` are the ids of the values around it, to detect cycles."""
    if value is None or isinstance(value, (str, int, float)):
        try:
            return json.loads(json.dumps(value, allow_nan=False))
        except ValueError:  # a NaN, or an integer with more digits than Python prints
            return safe_str(value)
    if id(value) in around or len(around) >= MAX_DEPTH:
        return f"({type(value).__name__}, nested too deeply)"
    return _of_parts(value, around | {id(value)})


def _of_parts(value: Any, inside: frozenset[int]) -> Any:
    if isinstance(value, (list, tuple)):
        parts: list[Any] = [*value]
        return [_converted(part, inside) for part in parts]
    if is_mapping(value):
        given: Mapping[Any, Any] = value
        try:
            return {
                key if isinstance(key, str) else safe_str(key): _converted(part, inside)
                for key, part in given.items()
            }
        except Exception:  # noqa: BLE001 - a user-supplied mapping
            return safe_str(value)
    plainer = _simplified(value)
    return plainer if isinstance(plainer, str) else _converted(plainer, inside)


def _simplified(value: Any) -> Any:
    """A value that JSON cannot represent, converted one level deep."""
    if is_mapping(value):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return dump(mode="json")
        except Exception:  # noqa: BLE001 - a user-supplied model
            return safe_str(value)
    return safe_str(value)


def finite(value: Any) -> float | None:
    """A finite number; None for anything else, such as ``1e999``, which JSON readers take for infinity."""
    if not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer with hundreds of digits
        return None
