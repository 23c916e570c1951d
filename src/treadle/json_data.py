"""Values as JSON and from JSON.

`to_json_line` writes any value. Values that JSON cannot represent become text, and nothing raises. `from_json`
restores dataclasses whose fields are data.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from treadle.errors import TreadleError
from treadle.messages import History, is_list, is_mapping, safe_str, short_json

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
    if isinstance(value, (set, frozenset, History)):
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


# From JSON


class JSONFormatError(TreadleError, ValueError):
    """JSON data that is not of the expected form; the text says where, what was expected and what was found."""


Restore: TypeAlias = Callable[[Any], Any]
"""Takes JSON data and returns the value that it stands for; raises `JSONFormatError`."""


@functools.cache
def from_json(kind: Any) -> Restore:
    """The function that restores values of a type from JSON data.

    Args:
        kind: a type as an annotation: a dataclass, an enumeration, a container, a union of a type and None, or a
            plain type. Values of `Any` stay as they are, and an exception is restored as None.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return _optional([arg for arg in args if arg is not type(None)])
    if origin is tuple or origin is Sequence:
        return functools.partial(_items, from_json(args[0]))
    if origin in {Mapping, dict}:
        return functools.partial(_entries, from_json(args[1]))
    return _of_class(kind) if isinstance(kind, type) else _as_it_is


def _of_class(kind: Any) -> Restore:
    if issubclass(kind, BaseException):
        return _nothing
    if dataclasses.is_dataclass(kind):
        return functools.partial(fields_from_json, kind)
    if issubclass(kind, enum.Enum):
        return functools.partial(_member, kind)
    return functools.partial(_plain, kind) if kind in _PLAIN else _as_it_is


def fields_from_json(kind: Any, data: Any, special: Mapping[str, Restore] = {}) -> Any:
    """Restore a dataclass from a mapping of its fields; keys that are no fields are ignored.

    Args:
        kind: the dataclass.
        data: the mapping.
        special: restores the fields of these names, in place of the function for their type.

    Raises:
        JSONFormatError: a field is missing, or is of the wrong type.
    """
    if not is_mapping(data):
        raise _wrong(f"an object with the fields of {kind.__name__}", data)
    values: dict[str, Any] = {}
    for name, hint in _hints_of(kind).items():
        if name in data:
            try:
                values[name] = (special.get(name) or from_json(hint))(data[name])
            except JSONFormatError as error:
                raise JSONFormatError(f"{name}: {error}") from None
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:  # a field is missing, or the class refuses its value
        raise JSONFormatError(f"{kind.__name__}: {error}") from error


@functools.cache
def _hints_of(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {spec.name: hints[spec.name] for spec in dataclasses.fields(kind) if spec.init}


def _optional(kinds: list[Any]) -> Restore:
    """The function for a union; one of several types other than None stays as it is."""
    restore = from_json(kinds[0]) if len(kinds) == 1 else _as_it_is
    return lambda value: None if value is None else restore(value)


def _items(restore: Restore, value: Any) -> tuple[Any, ...]:
    if not is_list(value):
        raise _wrong("an array", value)
    return tuple(restore(item) for item in value)


def _entries(restore: Restore, value: Any) -> dict[str, Any]:
    if not is_mapping(value):
        raise _wrong("an object", value)
    return {key: restore(item) for key, item in value.items()}


def _member(kind: type[enum.Enum], value: Any) -> enum.Enum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        raise _wrong(f"one of {known}", value) from None


def _plain(kind: type, value: Any) -> Any:
    if not isinstance(value, _PLAIN[kind]) or (kind is not bool and isinstance(value, bool)):
        raise _wrong(f"a value of type {kind.__name__}", value)
    return value


_PLAIN: Mapping[type, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (float, int),
    bool: (bool,),
}


def _as_it_is(value: Any) -> Any:
    return value


def _nothing(_value: Any) -> None:
    return None


def _wrong(expected: str, value: Any) -> JSONFormatError:
    return JSONFormatError(f"expected {expected}, got {short_json(value)}")
