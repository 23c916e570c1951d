"""Records: frozen values that are made several times in every iteration."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def fast_dataclass(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with slots that is quick to make.

    The ``__init__`` of a frozen dataclass sets each field through ``object.__setattr__``, which looks the
    slot up each time. This one, written out once for the class as dataclasses write theirs, goes to the
    slots themselves, in half the time.

    Args:
        cls: a class with annotated fields and no ``__post_init__``.
    """
    return _quick(dataclass(frozen=True, slots=True)(cls))


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def fast_dataclass_kw(cls: type[T]) -> type[T]:
    """As `fast_dataclass`, with fields that are given by keyword alone."""
    return _quick(dataclass(frozen=True, slots=True, kw_only=True)(cls), "*, ")


def _quick(made: type[T], start: str = "") -> type[T]:
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters: list[str] = []
    lines: list[str] = []
    for spec in dataclasses.fields(made):  # type: ignore[arg-type]  # made a dataclass above
        name = spec.name
        names[f"set_{name}"] = vars(made)[name].__set__
        if spec.default_factory is not MISSING:
            names[f"make_{name}"] = spec.default_factory
            parameters.append(f"{name}=MISSING")
            lines.append(f"set_{name}(self, make_{name}() if {name} is MISSING else {name})")
        else:
            names[f"default_{name}"] = spec.default
            has_default = spec.default is not MISSING
            parameters.append(f"{name}=default_{name}" if has_default else name)
            lines.append(f"set_{name}(self, {name})")
    body = "\n    ".join(lines)
    exec(f"def __init__(self, {start}{', '.join(parameters)}):\n    {body}", names)  # noqa: S102 - see above
    init = names["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__annotations__ = made.__init__.__annotations__
    made.__init__ = init  # type: ignore[method-assign]  # it is the same but for its speed
    return made
