"""Outcomes as JSON data, and back without loss: what a journal writes, and what a replay reads.

JSON values stand for themselves. Everything else is an object with the key ``$``, which names what it is::

    {"$": "ToolResult", "tool_call_id": "c1", "content": "4"}
    {"$": "tuple", "items": [1, 2]}

A dataclass or an enumeration of treadle is known by its name in the public packages, so its module may move. Other
dataclasses, pydantic models and enumerations are restored as they were: no validator, serializer or constructor of
them is called. An exception is restored as its class if that is imported and can be rebuilt with the same text,
else as a `RecordedError` whose class has the same name. Nothing is imported, and no constructor is called, for the
data of a file.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any, cast

from treadle import context, effects, events, limits, messages, model, results, run_state, tools
from treadle.errors import TreadleError
from treadle.messages import ATOMS, History, JSONDict, is_dict, is_list, is_mapping, safe_str
from treadle.model import is_retryable, retry_after, status_of
from treadle.recording.objects import (
    READ_TEXT,
    RecordedObject,
    from_state,
    has_state,
    imported,
    name_of,
    text_as_data,
)
from treadle.tracebacks import leaves_of

_KIND = "$"
_PACKAGES: tuple[ModuleType, ...] = (
    messages,
    tools,
    results,
    run_state,
    limits,
    context,
    events,
    model,
    effects,
)
_MAX_CHAINED = 16
"""How many chained exceptions are written; a longer chain is cut."""
_MAX_LEAVES = 1_000
"""How many exceptions of a group are written."""


_COLLECTIONS: Mapping[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class NotDataError(TreadleError, TypeError):
    """A value that cannot be written as data; the text names its place and its type."""


class MalformedDataError(TreadleError, ValueError):
    """Data that `to_data` did not write."""


class RecordedError(Exception):
    """The base of the classes that stand in for exceptions of a recording whose own class is not here.

    Its subclass has the name of that class.

    Attributes:
        retryable: whether another attempt might have succeeded.
        status_code: the HTTP status that the exception carried; None if there was none.
        headers: the header ``retry-after``, if there was one.
    """

    retryable = False
    status_code: int | None = None
    headers: Mapping[str, str] = {}


# To data


def to_data(value: Any, place: str = "outcome") -> Any:
    """Convert a value to JSON data.

    Args:
        value: JSON data, tuples, sets, bytes, mappings, histories, exceptions, dates, times, decimals, UUIDs,
            enumerations, dataclasses, pydantic models, and any nesting of these.
        place: names the value in errors.

    Raises:
        NotDataError: a part is of another type, or the value contains itself.
    """
    try:
        try:
            return _to_data(value, "")
        except NotDataError:
            return _to_data(value, place)  # again, to find the place, which takes longer
    except RecursionError:
        raise NotDataError(f"{place}: it is nested too deeply, or contains itself") from None


def to_exact_data(value: Any, place: str) -> Any:
    """As `to_data`, for a value that is used again: a restored one has the same types.

    Raises:
        NotDataError: as in `to_data`; or a part would be restored as another type, a ``Counter`` as a dict.
    """
    made = to_data(value, place)
    changed = _changed_part(value, from_data(made))
    if changed is not _UNCHANGED:
        name = name_of(type(changed))
        raise NotDataError(f"{place}: expected data that can be restored as it is, got {name}")
    return made


_UNCHANGED: Any = object()
_BASE: Any = object


def _changed_part(value: Any, restored: Any) -> Any:
    """The first part of a value that was restored otherwise."""
    kind = value.__class__
    if kind is not type(restored):  # the class of a `RecordedObject` is known elsewhere
        return _UNCHANGED if isinstance(restored, RecordedObject) else value
    if kind is dict:
        pairs = zip((*value, *value.values()), (*restored, *restored.values()), strict=True)
    elif kind in {list, tuple}:
        pairs = zip(value, restored, strict=True)
    else:
        is_nan = kind is float and math.isnan(value)
        has_equality = kind.__eq__ is not _BASE.__eq__
        is_equal = is_nan or not has_equality or value == restored
        return _UNCHANGED if is_equal else value
    changes = (_changed_part(one, other) for one, other in pairs)
    return next((part for part in changes if part is not _UNCHANGED), _UNCHANGED)


def _to_data(value: Any, place: str) -> Any:
    kind = value.__class__
    if kind in ATOMS:
        if kind is float and not math.isfinite(value):
            return {_KIND: "float", "value": repr(value)}
        return value
    if kind is list:
        return [_to_data(item, place) for item in value]
    if kind is dict or is_mapping(value):
        return _mapping(value, place)
    if kind in _COLLECTIONS.values():
        return {_KIND: kind.__name__, "items": [_to_data(item, place) for item in value]}
    return _of_class(value, place)


def _object(value: Any, place: str) -> JSONDict | None:
    """A member of an enumeration, a dataclass or a pydantic model; None for others."""
    kind: Any = value.__class__
    if isinstance(value, enum.Enum):
        plain = value.value if issubclass(kind, (str, int, float, enum.Flag)) else None
        return {_KIND: "member", "class": name_of(kind), "member": value.name, "value": plain}
    if kind is RecordedObject:
        return {_KIND: "object", "class": value.class_name, "state": _to_data(value.state, place)}
    if not has_state(kind):
        return None
    state = _to_data(value.__getstate__(), place and f"{place} ({kind.__name__})")
    return {_KIND: "object", "class": name_of(kind), "state": state}


def _mapping(value: Mapping[Any, Any], place: str) -> JSONDict:
    if _KIND not in value and all(key.__class__ is str for key in value):
        return {key: _to_data(item, place and f"{place}[{key!r}]") for key, item in value.items()}
    items = [[_to_data(key, place), _to_data(item, place)] for key, item in value.items()]
    return {_KIND: "dict", "items": items}


def _of_class(value: Any, place: str) -> Any:  # noqa: C901, PLR0911 - one for each kind
    kind: Any = value.__class__
    name: str = kind.__name__
    is_known = _class_named(name) is kind
    if isinstance(value, BaseException) and not is_known:  # a reason of a run is a dataclass
        return _error(value, place)
    if isinstance(value, (bytes, bytearray)):
        return {_KIND: "bytes", "value": base64.b64encode(value).decode("ascii")}
    if isinstance(value, History):
        return {_KIND: "History", "items": [_to_data(item, place) for item in value.to_list()]}
    if isinstance(value, run_state.RunState):
        return {_KIND: "RunState", "value": _to_data(value.as_json(with_messages=True), place)}
    if is_known:
        if isinstance(value, enum.Enum):
            return {_KIND: name, "value": value.value}
        made: JSONDict = {_KIND: name}
        for field, default in _fields_of(kind):
            part = getattr(value, field)
            if part is not default:
                made[field] = _to_data(part, place and f"{place}.{field}")
        return made
    found = text_as_data(value) or _object(value, place)
    if found is not None:
        return found
    plain: Any
    for plain in (str, int, float, list, tuple):  # of a subclass, its plain value
        if isinstance(value, plain):
            return _to_data(plain(value), place)
    raise NotDataError(
        f"{place}: expected data, such as texts, numbers, lists and dicts, got {name_of(type(value))}"
    )


@functools.cache
def _class_named(name: str) -> type | None:
    """The enumeration or dataclass of this name in the public packages of treadle."""
    for package in _PACKAGES:
        found: Any = getattr(package, name, None)
        is_enum = isinstance(found, type) and issubclass(found, enum.Enum)
        if is_enum or (isinstance(found, type) and dataclasses.is_dataclass(found)):
            return cast("type", found)
    return None


@functools.cache
def _fields_of(kind: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass, each with its default, which is not written."""
    return [(spec.name, spec.default) for spec in dataclasses.fields(kind) if spec.init]


def _error(error: BaseException, place: str, chained: int = 0) -> JSONDict:
    data: JSONDict = {_KIND: "error", "class": name_of(type(error)), "text": safe_str(error)}
    if isinstance(error, BaseExceptionGroup):
        # Flat, since groups may be nested more deeply than JSON, and one may be in several.
        group = cast("BaseExceptionGroup[BaseException]", error)
        leaves = leaves_of(group)[:_MAX_LEAVES]
        data["message"] = safe_str(group.message)
        data["exceptions"] = [_error(one, place, _MAX_CHAINED) for one in leaves]
    else:
        data["args"] = _args_of(error, place)
        data["attributes"] = _attributes(error, place)
        if isinstance(error, Exception) and is_retryable(error):
            data["retryable"] = True
        status, delay = status_of(error), retry_after(error)
        if status is not None:
            data["status"] = status
        if delay is not None:
            data["retry_after"] = delay
    if error.__cause__ is not None and chained < _MAX_CHAINED:
        data["cause"] = _error(error.__cause__, place, chained + 1)
    return data


def _args_of(error: BaseException, place: str) -> list[Any] | None:
    """The arguments of an exception; None if they are no data. Exceptions may have each other as arguments."""
    if any(isinstance(value, (BaseException, list, tuple)) for value in error.args):
        return None
    try:
        return [to_data(value, place) for value in error.args]
    except NotDataError:
        return None


def _attributes(error: BaseException, place: str) -> JSONDict:
    made: JSONDict = {}
    for name, value in getattr(error, "__dict__", {}).items():
        if name != "__notes__" and not isinstance(value, BaseException):
            try:
                made[name] = to_data(value, place)
            except NotDataError:
                continue
    return made


# From data


def from_data(data: Any) -> Any:
    """Restore a value from the data that `to_data` returned.

    Raises:
        MalformedDataError: the data is of an unknown kind, or a field does not fit.
    """
    if is_list(data):
        return [from_data(item) for item in data]
    if not is_dict(data):
        return data
    kind = data.get(_KIND)
    if kind is None:
        return {key: from_data(item) for key, item in data.items()}
    try:
        return _restored(str(kind), data)
    except MalformedDataError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedDataError(
            f"data of kind {kind!r}: {type(error).__name__}: {error}"
        ) from error


def _restored(kind: str, data: JSONDict) -> Any:  # noqa: C901, PLR0911, PLR0912 - one for each kind
    match kind:
        case "tuple" | "set" | "frozenset":
            return _COLLECTIONS[kind](map(from_data, data["items"]))
        case "object":
            return from_state(str(data["class"]), from_data(data["state"]))
        case "member":
            return _restored_member(data)
        case "dict":
            return {from_data(key): from_data(item) for key, item in data["items"]}
        case "float":
            return float(data["value"])
        case "bytes":
            return base64.b64decode(data["value"])
        case "History":
            return History(list(map(from_data, data["items"])))
        case "RunState":
            return run_state.RunState.from_json(from_data(data["value"]))
        case "error":
            return _restored_error(data)
        case _:
            if kind in READ_TEXT:
                return READ_TEXT[kind](data["value"])
            found = _class_named(kind)
            if found is None:
                raise MalformedDataError(f"data of an unknown kind: {kind!r}")
            if issubclass(found, enum.Enum):
                return found(data["value"])
            return found(**{key: from_data(part) for key, part in data.items() if key != _KIND})


def _restored_member(data: JSONDict) -> Any:
    """A member of an enumeration; its plain value, if it has one, if the class is not here."""
    name, member = str(data["class"]), data["member"]
    kind: Any = imported(name)
    if hasattr(kind, "_flag_mask_"):  # of a Flag, whose members may be combined
        return kind(data["value"])
    found: Any = getattr(kind, "__members__", {}).get(member, data["value"])
    return RecordedObject(name, member) if found is None else found


def _restored_error(data: JSONDict) -> BaseException:
    if "exceptions" in data:
        error: BaseException = _restored_group(data)
    else:
        error = _rebuilt(data) or _stand_in(data)
    cause = data.get("cause")
    if cause is not None:
        error.__cause__ = from_data(cause)
    return error


def _restored_group(data: JSONDict) -> BaseException:
    """A group of the same name; its class may take other arguments."""
    module, _, name = str(data["class"]).partition(":")
    leaves = list(map(from_data, data["exceptions"]))
    base: Any = BaseExceptionGroup
    if all(isinstance(one, Exception) for one in leaves):
        base = ExceptionGroup
    if (module, name) != (base.__module__, base.__qualname__):
        base = type(name.rpartition(".")[2], (base,), {"__module__": module})
    return cast("BaseException", base(data["message"], leaves))


def _rebuilt(data: JSONDict) -> BaseException | None:
    """The exception as its own class; None if it would not be the same."""
    found = imported(str(data["class"]))
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        return None
    kind: Any = found
    try:
        if data["args"] is None:
            return None
        args = [from_data(value) for value in data["args"]]
        made: BaseException = kind.__new__(kind, *args)
        made.args = tuple(args)
        for key, value in data["attributes"].items():
            setattr(made, key, from_data(value))
        is_same = (
            str(made) == data["text"]
            and (isinstance(made, Exception) and is_retryable(made)) == data.get("retryable", False)
            and retry_after(made) == data.get("retry_after")
        )
    except Exception:  # noqa: BLE001 - a user-supplied class
        return None
    return made if is_same else None


def _stand_in(data: JSONDict) -> BaseException:
    module, _, name = str(data["class"]).partition(":")
    kind = type(
        name.rpartition(".")[2] or "RecordedError", (RecordedError,), {"__module__": module}
    )
    made = kind(data["text"])
    made.retryable = bool(data.get("retryable", False))
    made.status_code = data.get("status")
    if data.get("retry_after") is not None:
        made.headers = {"retry-after": str(data["retry_after"])}
    return made
