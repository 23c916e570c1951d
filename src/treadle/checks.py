"""Checks of the values of options. An option declares its check next to its type and its default."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from treadle.errors import OptionError, one_of


@dataclasses.dataclass(repr=False, eq=False)
class ValueCheck:
    """The values that an option accepts, their name in errors, and whether errors may show the value."""

    accepts: Callable[[Any], object]
    expected: str
    shows_value: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise `OptionError` for a value that the option does not accept."""
        if not self.accepts(value):
            got = repr(value) if self.shows_value else type(value).__name__
            raise OptionError(f"{name}: expected {self.expected}, got {got}")


def number(least: int, unit: str = "") -> ValueCheck:
    """Accept whole numbers from a least one on; with a unit, such as ``seconds``, fractions as well."""
    kinds = (int, float) if unit else (int,)
    return ValueCheck(
        lambda value: isinstance(value, kinds) and not isinstance(value, bool) and value >= least,
        f"a {f'number of {unit}' if unit else 'whole number'} of at least {least}",
        shows_value=True,
    )


def choice(*values: str) -> ValueCheck:
    """Accept one of a few texts."""
    return ValueCheck(lambda value: value in values, one_of(values), shows_value=True)


def instance(kind: type, expected: str) -> ValueCheck:
    """Accept the instances of a class."""
    # A protocol with methods accepts the class, too.
    return ValueCheck(lambda it: isinstance(it, kind) and not isinstance(it, type), expected)


def methods(expected: str, *names: str) -> ValueCheck:
    """Accept objects that have some methods."""
    return ValueCheck(
        lambda value: all(callable(getattr(value, name, None)) for name in names), expected
    )


FLAG = instance(bool, "True or False")


def _is_functions(value: Any) -> bool:
    return isinstance(value, Iterator) or (
        isinstance(value, Iterable)
        and not isinstance(value, (str, bytes, Mapping))
        and all(map(callable, value))  # pyright: ignore[reportUnknownArgumentType]
    )


def functions(expected: str) -> ValueCheck:
    """Accept collections of callables, and iterators."""
    return ValueCheck(_is_functions, expected)


FUNCTIONS = ValueCheck(
    lambda value: callable(value) or (isinstance(value, (list, tuple)) and _is_functions(value)),
    "a callable, or a list of callables",
)


def checked(default: Any, check: ValueCheck, *, repr: bool = True, **metadata: Any) -> Any:  # noqa: A002 - as in dataclasses
    """Declare a field that `check_fields` checks; with a default of None, it accepts None as well."""
    return dataclasses.field(default=default, repr=repr, metadata={"check": check, **metadata})


def check_fields(made: Any) -> None:
    """Check the fields that `checked` declared; raises `OptionError`."""
    for name, check, takes_none in _checks_of(made.__class__):
        value = getattr(made, name)
        if not (value is None and takes_none):
            check.check(name, value)


@functools.cache
def _checks_of(cls: Any) -> tuple[tuple[str, ValueCheck, bool], ...]:
    """The checked fields of a class, and whether each accepts None."""
    return tuple(
        (spec.name, spec.metadata["check"], spec.default is None)
        for spec in dataclasses.fields(cls)
        if "check" in spec.metadata
    )


def copied(value: Any) -> Any:
    """A tuple of a list, which the caller may change, or of an iterator, which is read only once."""
    return tuple(value) if isinstance(value, (list, Iterator)) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
