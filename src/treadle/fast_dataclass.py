"""Frozen dataclasses that are quick to construct, for values that every iteration makes several of."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import MISSING, dataclass
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def fast_dataclass(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with slots and a fast ``__init__``.

    The ``__init__`` of a frozen dataclass calls ``object.__setattr__`` for each field, which looks up the slot
    every time. This one is generated for the class, as dataclasses do it, and sets the slots directly: it takes
    half the time.

    Args:
        cls: a class with annotated fields.
    """
    return _with_fast_init(dataclass(frozen=True, slots=True)(cls))


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def fast_dataclass_kw(cls: type[T]) -> type[T]:
    """Make a `fast_dataclass` with keyword-only fields."""
    return _with_fast_init(dataclass(frozen=True, slots=True, kw_only=True)(cls), "*, ")


def _with_fast_init(cls: type[T], start: str = "") -> type[T]:
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters: list[str] = []
    lines: list[str] = []
    for spec in dataclasses.fields(cls):  # type: ignore[arg-type]  # it is a dataclass
        name = spec.name
        names[f"set_{name}"] = vars(cls)[name].__set__
        if spec.default_factory is not MISSING:
            # `dict` is faster to call than `dict[str, Any]`.
            factory = typing.get_origin(spec.default_factory) or spec.default_factory
            names[f"make_{name}"] = factory
            parameters.append(f"{name}=MISSING")
            lines.append(f"set_{name}(self, make_{name}() if {name} is MISSING else {name})")
        else:
            names[f"default_{name}"] = spec.default
            has_default = spec.default is not MISSING
            parameters.append(f"{name}=default_{name}" if has_default else name)
            lines.append(f"set_{name}(self, {name})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n    ".join(lines)
    exec(f"def __init__(self, {start}{', '.join(parameters)}):\n    {body}", names)  # noqa: S102 - see above
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = init  # type: ignore[method-assign]  # it does the same, faster
    return cls
