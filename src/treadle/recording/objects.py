"""Objects of user-supplied classes as data: dates, enumerations, dataclasses, pydantic models."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from treadle.messages import JSONDict, is_dict, is_list


def _path(text: str) -> Any:
    from pathlib import Path  # noqa: PLC0415 - it is slow to import

    return Path(text)


_MICROSECOND = dt.timedelta(microseconds=1)
_TEXTS: Mapping[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    dt.datetime: (dt.datetime.isoformat, dt.datetime.fromisoformat),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (
        lambda value: str(value // _MICROSECOND),
        lambda text: dt.timedelta(microseconds=int(text)),
    ),
    decimal.Decimal: (str, decimal.Decimal),
    uuid.UUID: (str, uuid.UUID),
}
"""Classes of the standard library whose values are texts: how to write and to read each."""
READ_TEXT: Mapping[str, Callable[[str], Any]] = {
    "path": _path,
    **{kind.__name__: read for kind, (_, read) in _TEXTS.items()},
}
"""Reads a text, by the kind that `text_as_data` returned."""


def text_as_data(value: Any) -> JSONDict | None:
    """A date, a decimal, a path and the like as data; None for others."""
    kind = value.__class__
    if kind in _TEXTS:
        return {"$": kind.__name__, "value": _TEXTS[kind][0](value)}
    if isinstance(value, os.PathLike) and kind.__module__.partition(".")[0] == "pathlib":
        return {"$": "path", "value": os.fspath(value)}  # pyright: ignore[reportUnknownArgumentType]
    return None


class RecordedObject:
    """Stands in for an object of a recording whose class is not here.

    Args:
        class_name: the module and the name of its class.
        state: what was stored of it.
    """

    def __init__(self, class_name: str, state: Any) -> None:
        self.class_name = class_name
        self.state = state


def has_state(kind: Any) -> bool:
    """Whether objects of a class are restored from their state: dataclasses and pydantic models."""
    return dataclasses.is_dataclass(kind) or hasattr(kind, "__pydantic_fields_set__")


def from_state(name: str, state: Any) -> Any:
    """Make an object from the name of its class and its state, without a call of its constructor.

    Raises:
        ValueError: the class has other fields.
    """
    kind: Any = imported(name)
    if kind is None or not has_state(kind):
        return RecordedObject(name, state)
    made: Any = object.__new__(kind)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:  # as `copy.copy` does; the state of an object with slots has two parts
        parts: list[Any] = [*state] if isinstance(state, tuple) else [state]  # pyright: ignore[reportUnknownArgumentType]
        values: dict[str, Any] = {key: part[key] for part in filter(None, parts) for key in part}
        for key, value in values.items():
            object.__setattr__(made, key, value)
    fields: Any = getattr(kind, "__pydantic_fields__", None) or getattr(kind, _FIELDS, ())
    missing = [key for key in fields if not hasattr(made, key)]
    if missing:
        raise ValueError(f"{name} has fields that are not stored: {', '.join(missing)}")
    return made


_FIELDS = "__dataclass_fields__"


def missing_classes(data: Any) -> list[str]:
    """The names of the classes of the objects in data that are not imported."""
    if is_list(data):
        return [name for part in data for name in missing_classes(part)]
    if not is_dict(data):
        return []
    found = missing_classes([*data.values()])
    if data.get("$") in {"object", "member"} and imported(str(data["class"])) is None:
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
    one: Any
    while waiting:
        for one in type.__subclasses__(waiting.pop()):
            waiting.append(one)
            found = one if name_of(one) == name else found
    return found
