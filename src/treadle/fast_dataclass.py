"""Dataclasses that are quick to construct, or to import."""

from __future__ import annotations

import dataclasses
import operator
import typing
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass
from types import FunctionType, MethodType
from typing import Any, NoReturn, TypeVar, dataclass_transform

from treadle.shown import shown_fields

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def fast_dataclass(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with slots, an ``__init__`` that is quick, and shared other methods.

    Generating methods takes most of the time of a module's import.
    """
    return _frozen(cls)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def fast_dataclass_kw(cls: type[T]) -> type[T]:
    """Make a `fast_dataclass` with keyword-only fields."""
    return _frozen(cls, kw_only=True)


@dataclass_transform(field_specifiers=(dataclasses.field,))
def light_dataclass(*, frozen: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a hashable dataclass without slots, which shares its methods except ``__init__``."""

    def make(cls: type[T]) -> type[T]:
        made = dataclass(frozen=frozen, repr=False, eq=False)(cls)
        return _share(made, "__repr__", "__eq__", "__hash__")

    return make


def _frozen(cls: Any, **options: bool) -> Any:
    is_derived = dataclasses.is_dataclass(cls)  # then it has to be as frozen as its base
    cls = dataclass(frozen=is_derived, slots=True, init=False, repr=False, eq=False, **options)(cls)
    cls.__init__ = _Init(cls)
    cls.__getstate__ = object.__getstate__  # a frozen dataclass has one that fails in a subclass
    cls.__dataclass_params__.init = cls.__dataclass_params__.frozen = True
    return _share(cls, *_METHODS)


def _share(cls: Any, *methods: str) -> Any:
    specs: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)
    cls.__dataclass_params__.repr = cls.__dataclass_params__.eq = True
    compared = [spec.name for spec in specs if spec.compare]
    cls.__shown__ = tuple(spec.name for spec in specs if spec.repr)
    cls.__compared__ = operator.attrgetter(*compared or ["__class__"])
    for name in methods:
        setattr(cls, name, _METHODS[name])
    return cls


class _Init:
    """Compiles the ``__init__`` of a class at its first use: this takes a quarter of the time of an import."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        init = self._cls.__init__ = _init_of(self._cls)
        return init if instance is None else MethodType(init, instance)


_set_class: Any = vars(object)["__class__"].__set__
_THAWED = {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__}


def _init_of(cls: Any) -> Any:
    specs: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)
    # The class of an object until its attributes are set: to set one there takes a tenth of the time of a call of
    # its descriptor. The layout is that of the class; another subclass may have another one.
    draft = type(f"{cls.__name__} draft", (cls,), _THAWED)
    names: dict[str, Any] = {"cls": cls, "draft": draft, "set_class": _set_class}
    parameters: list[str] = []
    keywords: list[str] = []
    quick, lines = ["if self.__class__ is cls:", "    set_class(self, draft)"], ["else:"]
    for spec in specs:
        name, value, default = spec.name, spec.name, spec.default
        if spec.default_factory is not MISSING:
            # `dict` is faster to call than `dict[str, Any]`.
            factory: Any = typing.get_origin(spec.default_factory) or spec.default_factory
            default = factory()
            if factory() is not default:  # else all objects share the value
                names[f"make_{name}"] = factory
                value = f"make_{name}() if {name} is default_{name} else {name}"
        names[f"set_{name}"], names[f"default_{name}"] = getattr(cls, name).__set__, default
        listed = keywords if spec.kw_only else parameters
        listed.append(name if default is MISSING else f"{name}=default_{name}")
        quick.append(f"    self.{name} = {value}")
        lines.append(f"    set_{name}(self, {value})")
    lines = [*quick, "    self.__class__ = cls", *lines] if specs else ["pass"]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    if keywords:
        parameters += ["*", *keywords]
    body = "\n    ".join(lines)
    exec(f"def __init__(self, {', '.join(parameters)}):\n    {body}", names)  # noqa: S102 - see above
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {spec.name: spec.type for spec in specs} | {"return": None}
    return init


def set_state(made: Any, state: Any) -> None:
    """Restore an object, which may be frozen; the state of one with slots and a dict has two parts."""
    parts: list[dict[str, Any] | None] = [*state] if state.__class__ is tuple else [state]
    for part in parts:
        for name, value in (part or {}).items():
            object.__setattr__(made, name, value)


class _Shared:
    """The methods that all these classes share, and the class attributes that they read."""

    __shown__: tuple[str, ...]
    __compared__: Callable[[Any], Any]

    def __repr__(self) -> str:
        return shown_fields(self, self.__shown__)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        compared = type(self).__compared__
        return bool(compared(self) == compared(other))

    def __hash__(self) -> int:
        return hash(type(self).__compared__(self))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    __setstate__ = set_state


_METHODS = {
    name: method for name, method in vars(_Shared).items() if isinstance(method, FunctionType)
}
