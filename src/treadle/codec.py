"""Values as JSON data, and back: one codec with two forms.

The plain form is for readers in any language; events and the lines of recordings have it. Each value can be
written: values that JSON cannot represent become text. `restore` reads it, by a type. A class of objects that are
more than data has its own form, see `plain_form`.

The exact form restores each value without loss; pauses, journals and the logs of recordings have it. JSON values
stand for themselves. Everything else is an object with the key ``$``, which names what it is::

    {"$": "ToolResult", "tool_call_id": "c1", "content": "4"}
    {"$": "tuple", "value": [1, 2]}

A dataclass or an enumeration of treadle is known by its name in the public packages, so its module may move. Its
defaults are left out. Other dataclasses, pydantic models and enumerations are restored as they were: no validator,
serializer or constructor of them is called. Nothing is imported for the data of a file.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import json
import math
import os
import re
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias, cast

from treadle.errors import TreadleError, safe_str
from treadle.fast_dataclass import set_state
from treadle.messages import ATOMS, History, JSONDict, is_dict, is_list, is_mapping
from treadle.messages.json_text import short_json

MAX_DEPTH = 60
"""Maximum nesting of a value. Deeper parts become text, because readers in other languages have limits."""


class JSONFormatError(TreadleError, ValueError):
    """JSON data that is not of the expected form; the text says where, what was expected and what was found."""


class NotDataError(TreadleError, TypeError):
    """A value that cannot be written as data; the text names its place and its type."""


Convert: TypeAlias = Callable[[Any], Any]
_PLAIN_FORMS: dict[type, tuple[Convert, Convert]] = {}


def plain_form(kind: type, write: Convert, read: Convert) -> None:
    """Set how objects of a class and of its subclasses are written as simpler values, and read from JSON data."""
    _PLAIN_FORMS[kind] = write, read


def _form_of(kind: Any) -> tuple[Convert, Convert] | None:
    bases: tuple[type, ...] = getattr(kind, "__mro__", ())
    return next((_PLAIN_FORMS[base] for base in bases if base in _PLAIN_FORMS), None)


@functools.cache
def _fields_of(kind: Any) -> Mapping[str, dataclasses.Field[Any]]:
    """The fields of a dataclass by their names in JSON: a property may replace one, ``json`` in its metadata."""
    return {spec.metadata.get("json", spec.name): spec for spec in dataclasses.fields(kind)}


@functools.cache
def _types_of(kind: Any) -> Mapping[str, Any]:
    """The types of these fields in JSON, by their names in JSON."""
    hints = typing.get_type_hints(kind)
    for name, spec in _fields_of(kind).items():
        if name != spec.name:
            hints[name] = typing.get_type_hints(getattr(kind, name).fget)["return"]
    return hints


@functools.cache
def snake_case(name: str) -> str:
    """The name of a class in JSON: ``ToolFinished`` is ``tool_finished``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


# The plain form: to JSON


def plain_data(value: Any) -> Any:
    """A value as JSON data; see `to_json_line`."""
    return json.loads(to_json_line(value))


def to_json_line(value: Any) -> str:
    """A value as JSON on one line, in ASCII, so it has no line ends and every encoding can represent it.

    Everything that JSON cannot represent, such as a NaN, becomes text. Lone surrogates are kept as escapes.
    """
    try:
        # The fast path, written in C. It covers nearly all values.
        return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_simplified)
    except Exception:  # noqa: BLE001 - a NaN, a cycle, a user-supplied key or subclass: convert part by part
        return json.dumps(_converted(value, frozenset()), separators=(",", ":"))


def _converted(value: Any, around: frozenset[int]) -> Any:  # noqa: PLR0911 - one for each kind
    """Convert one part; ``around`` are the ids of the values around it, to detect cycles."""
    if value is None or isinstance(value, (str, int, float)):
        try:
            return json.loads(json.dumps(value, allow_nan=False))
        except ValueError:  # a NaN, or an integer with more digits than Python prints
            return safe_str(value)
    if id(value) in around or len(around) >= MAX_DEPTH:
        return f"({type(value).__name__}, nested too deeply)"
    inside = around | {id(value)}
    try:
        if issubclass(value.__class__, (list, tuple)):
            return [_converted(part, inside) for part in value]
        if is_mapping(value):
            items: Iterable[tuple[Any, Any]] = value.items()
            return {safe_str(key): _converted(part, inside) for key, part in items}
        return _converted(_simplified(value), inside)
    except Exception:  # noqa: BLE001 - a user-supplied collection or model
        return safe_str(value)


def _simplified(value: Any) -> Any:
    """A value that JSON cannot represent, converted one level deep."""
    kind = value.__class__
    form = _form_of(kind)
    if form is not None:
        return form[0](value)
    if is_mapping(value):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if dataclasses.is_dataclass(value.__class__):
        return {name: getattr(value, name, None) for name in _fields_of(kind)}
    return value.model_dump(mode="json") if hasattr(kind, "model_dump") else safe_str(value)


def finite(value: Any) -> float | None:
    """A finite number; None for anything else, such as ``1e999``, which JSON readers take for infinity."""
    try:
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
    except OverflowError:  # an integer with hundreds of digits
        return None


# The plain form: from JSON


def restore(kind: Any, data: Any) -> Any:
    """Restore a value of a type, given as an annotation, from JSON data; raises `JSONFormatError`.

    Keys that are no fields of a dataclass are ignored. Values of unions, and of types that JSON does not have, are
    not changed, unless there is a `plain_form`.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        if data is None:
            return None
        first, *others = (arg for arg in args if arg is not type(None))
        is_known = not others or _form_of(typing.get_origin(first) or first) is not None
        return restore(first, data) if is_known else data
    if origin in {tuple, list, Sequence}:
        if not is_list(data):
            raise _wrong("an array", data)
        items = [restore(args[0], item) for item in data]
        return items if origin is list else tuple(items)
    if origin in {Mapping, dict}:
        if not is_mapping(data):
            raise _wrong("an object", data)
        return {key: restore(args[1], item) for key, item in data.items()}
    kind = origin or kind
    return _restored_class(kind, data) if isinstance(kind, type) else data


def _restored_class(kind: Any, data: Any) -> Any:
    form = _form_of(kind)
    if form is not None:
        return form[1](data)
    if dataclasses.is_dataclass(kind):
        return restore_fields(kind, data)
    if issubclass(kind, enum.Enum):
        try:
            return kind(data)
        except ValueError:
            known = ", ".join(repr(member.value) for member in kind)
            raise _wrong(f"one of {known}", data) from None
    is_known = data.__class__ is kind or (kind is float and data.__class__ is int)
    if kind in {str, int, float, bool} and not is_known:
        raise _wrong(f"a value of type {kind.__name__}", data)
    return data


def restore_fields(kind: Any, data: Any, /, **known: Any) -> Any:
    """Restore a dataclass from its fields, whatever its form; ``known`` are fields that are not in the data."""
    if not is_mapping(data):
        raise _wrong(f"an object with the fields of {kind.__name__}", data)
    for name, spec in _fields_of(kind).items():
        if name in data:
            try:
                known[spec.name] = restore(_types_of(kind)[name], data[name])
            except JSONFormatError as error:
                raise JSONFormatError(f"{name}: {error}") from None
    try:
        return kind(**known)
    except (TypeError, ValueError) as error:  # a field is missing, or the class refuses its value
        raise JSONFormatError(f"{kind.__name__}: {error}") from error


def _wrong(expected: str, value: Any) -> JSONFormatError:
    return JSONFormatError(f"expected {expected}, got {short_json(value)}")


plain_form(History, list, lambda data: History(restore(list[Any], data)))
plain_form(
    BaseException,
    lambda error: {"type": type(error).__name__, "message": safe_str(error)},
    lambda _: None,
)


# The exact form: objects of user-supplied classes


class RecordedObject:
    """Stands for an object of a recording whose class is not imported, with the name and the stored state."""

    def __init__(self, class_name: str, state: Any) -> None:
        self.class_name = class_name
        self.state = state


def _object_as_data(value: Any) -> JSONDict | None:
    """What is stored of a member of an enumeration, a dataclass or a pydantic model; None for others."""
    kind: Any = value.__class__
    if isinstance(value, enum.Enum):
        plain = value.value if issubclass(kind, (str, int, float, enum.Flag)) else None
        return {KIND: "member", "class": name_of(kind), "member": value.name, "value": plain}
    if kind is RecordedObject:
        return {KIND: "object", "class": value.class_name, "state": value.state}
    if _has_state(kind):
        return {KIND: "object", "class": name_of(kind), "state": value.__getstate__()}
    return None


def _object_from_data(data: Mapping[str, Any]) -> Any:
    """The object of which `_object_as_data` has stored something. No constructor is called."""
    name = str(data["class"])
    kind = imported(name)
    if "member" in data:
        if hasattr(kind, "_flag_mask_"):  # of a Flag, whose members may be combined
            return kind(data["value"])
        found: Any = getattr(kind, "__members__", {}).get(data["member"], data["value"])
        return RecordedObject(name, data["member"]) if found is None else found
    if not _has_state(kind):
        return RecordedObject(name, data["state"])
    made: Any = object.__new__(kind)
    if hasattr(made, "__setstate__"):
        made.__setstate__(data["state"])
    else:
        set_state(made, data["state"])
    fields: Any = getattr(kind, "__pydantic_fields__", None) or getattr(kind, _FIELDS, ())
    missing = [key for key in fields if not hasattr(made, key)]
    if missing:
        raise ValueError(f"{name} has fields that are not stored: {', '.join(missing)}")
    return made


def _has_state(kind: Any) -> bool:
    """Whether objects of a class are restored from their state: dataclasses and pydantic models."""
    return dataclasses.is_dataclass(kind) or hasattr(kind, "__pydantic_fields_set__")


def missing_classes(data: Any) -> list[str]:
    """The names of the classes of the objects in data that are not imported."""
    if is_list(data):
        return [name for part in data for name in missing_classes(part)]
    if not is_dict(data):
        return []
    found = missing_classes([*data.values()])
    if data.get(KIND) in {"object", "member"} and imported(str(data["class"])) is None:
        found.append(str(data["class"]))
    return found


def name_of(kind: Any) -> str:
    """The module and the name of a class."""
    return f"{kind.__module__}:{kind.__qualname__}"


def imported(name: str) -> Any:
    """The class of a name that `name_of` returned; None if there is none.

    A class that was defined in a function, or made from a generic one, is found among those that exist.
    """
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is not None or not ("<locals>" in path or "[" in path):
        return found
    waiting: list[Any] = [object]
    for one in waiting:  # which grows
        waiting.extend(type.__subclasses__(one))
    return next((one for one in reversed(waiting) if name_of(one) == name), None)


# The exact form: to data

KIND = "$"
_FIELDS = "__dataclass_fields__"
_PACKAGES = "messages tools results run_state limits context events model effects".split()  # noqa: SIM905
"""The packages whose dataclasses and enumerations are known by their names. They are above this one, and imported
with treadle."""


_MICROSECOND = dt.timedelta(microseconds=1)
_FORMS: Mapping[str, tuple[type, Convert, Convert]] = {
    "tuple": (tuple, list, tuple),
    "set": (set, list, set),
    "frozenset": (frozenset, list, frozenset),
    "dict": (dict, lambda value: [list(item) for item in value.items()], dict),
    "History": (History, History.to_list, History),
    "float": (float, repr, float),
    "bytes": (bytes, lambda value: base64.b64encode(value).decode("ascii"), base64.b64decode),
    "datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "time": (dt.time, dt.time.isoformat, dt.time.fromisoformat),
    "timedelta": (
        dt.timedelta,
        lambda value: value // _MICROSECOND,
        lambda count: count * _MICROSECOND,
    ),
    "Decimal": (decimal.Decimal, str, decimal.Decimal),
    "UUID": (uuid.UUID, str, uuid.UUID),
    "path": (
        os.PathLike,
        os.fspath,
        lambda text: import_module("pathlib").Path(text),
    ),  # slow to import
}
_TAGS = {kind: tag for tag, (kind, *_) in _FORMS.items()} | {bytearray: "bytes"}
_SPECIAL: dict[str, tuple[type, Callable[[Any, str], JSONDict], Convert]] = {}


def exact_form(tag: str, kind: type, write: Callable[[Any, str], JSONDict], read: Convert) -> None:
    """Set how objects of a class are written, with their place, and read from data with a tag as its kind."""
    _SPECIAL[tag] = kind, write, read


@functools.cache
def _class_named(name: str) -> Any:
    """The enumeration or dataclass of this name in the public packages of treadle; None if there is none."""
    for package in _PACKAGES:
        found: Any = getattr(sys.modules.get(f"treadle.{package}"), name, None)
        if hasattr(found, _FIELDS) or hasattr(found, "__members__"):
            return found
    return None


def encode(value: Any, place: str = "outcome") -> Any:
    """Convert a value to JSON data; `NotDataError` names the place of a part that cannot be restored."""
    try:
        return _encoded(value, "")
    except NotDataError:
        return _encoded(value, place)  # again, to find the place, which takes longer
    except RecursionError:
        raise NotDataError(f"{place}: it is nested too deeply, or contains itself") from None


def encode_exactly(value: Any, place: str) -> Any:
    """As `encode`, but refuse a part that would be restored as another type, such as a ``Counter`` as a dict."""
    made = encode(value, place)
    for changed in _changed_parts(value, decode(made)):
        name = name_of(type(changed))
        raise NotDataError(f"{place}: expected data that can be restored as it is, got {name}")
    return made


def encode_fields(value: Any, place: str) -> JSONDict:
    """The fields of a dataclass as `encode` converts them, without those that are their defaults."""
    return {name: encode(part, f"the {name} of {place}") for name, part in _parts_of(value)}


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    for name, spec in _fields_of(value.__class__).items():
        part = getattr(value, name)
        if part is not spec.default:
            yield name, part


def _changed_parts(value: Any, restored: Any) -> Iterator[Any]:
    """The parts of a value that were restored otherwise."""
    kind, base = value.__class__, cast("Any", object)
    if kind is not type(restored):  # the class of a `RecordedObject` is known elsewhere
        if not isinstance(restored, RecordedObject):
            yield value
    elif kind in {dict, list, tuple}:
        parts = ([*one, *one.values()] if kind is dict else one for one in (value, restored))
        for one, other in zip(*parts, strict=True):
            yield from _changed_parts(one, other)
    elif kind is not float and kind.__eq__ is not base.__eq__ and value != restored:
        yield value  # a float is never another one, but a NaN is unequal to itself


def _encoded(value: Any, place: str) -> Any:
    kind = value.__class__
    if kind in ATOMS and (kind is not float or math.isfinite(value)):
        return value
    if kind is list:
        return [_encoded(item, place) for item in value]
    if is_mapping(value):
        if KIND not in value and all(key.__class__ is str for key in value):
            return {
                key: _encoded(item, place and f"{place}[{key!r}]") for key, item in value.items()
            }
        return _tagged("dict", value, place)
    if kind in _TAGS:
        return _tagged(_TAGS[kind], value, place)
    return _of_class(value, place)


def _tagged(tag: str, value: Any, place: str) -> JSONDict:
    return {KIND: tag, "value": _encoded(_FORMS[tag][1](value), place)}


def _of_class(value: Any, place: str) -> Any:
    kind: Any = value.__class__
    if _class_named(kind.__name__) is kind:
        if isinstance(value, enum.Enum):
            return {KIND: kind.__name__, "value": value.value}
        parts = {
            name: _encoded(part, place and f"{place}.{name}") for name, part in _parts_of(value)
        }
        return {KIND: kind.__name__, **parts}
    for tag, (special, write, _) in _SPECIAL.items():
        if isinstance(value, special):
            return {KIND: tag, **write(value, place)}
    found = _object_as_data(value)
    if found is not None:
        inside = place and f"{place} ({kind.__name__})"
        return {key: _encoded(part, inside) for key, part in found.items()}
    if isinstance(value, os.PathLike) and kind.__module__.partition(".")[0] == "pathlib":
        return _tagged("path", value, place)
    plain: Any
    for plain in (str, int, float, list, tuple, bytes, History):  # of a subclass, its plain value
        if isinstance(value, plain):
            return _encoded(plain(value), place)
    raise NotDataError(
        f"{place}: expected data, such as texts, numbers, lists and dicts, got {name_of(kind)}"
    )


# The exact form: from data


def decode(data: Any) -> Any:
    """Restore a value from the data that `encode` returned; raises `JSONFormatError`."""
    if is_list(data):
        return [decode(item) for item in data]
    if not is_dict(data):
        return data
    tag = data.get(KIND)
    if tag is None:
        return {key: decode(item) for key, item in data.items()}
    try:
        return _decoded(str(tag), data)
    except JSONFormatError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise JSONFormatError(f"data of kind {tag!r}: {type(error).__name__}: {error}") from error


def decode_fields(kind: Any, data: Mapping[str, Any]) -> Any:
    """Restore a dataclass from the data that `encode_fields` returned; raises ValueError or TypeError."""
    names = {name: spec.name for name, spec in _fields_of(kind).items()}
    return kind(**{names.get(key, key): decode(part) for key, part in data.items() if key != KIND})


def _decoded(tag: str, data: JSONDict) -> Any:
    if tag in _FORMS:
        return _FORMS[tag][2](decode(data["value"]))
    if tag in _SPECIAL:
        return _SPECIAL[tag][2](data)
    if tag in {"object", "member"}:
        return _object_from_data({key: decode(part) for key, part in data.items() if key != KIND})
    kind = _class_named(tag)
    if kind is None:
        raise JSONFormatError(f"data of an unknown kind: {tag!r}")
    return kind(data["value"]) if issubclass(kind, enum.Enum) else decode_fields(kind, data)
