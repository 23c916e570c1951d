"""The component that does the work, `stage`, and the base of all components."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, overload

from treadle.pipeline.errors import PipelineError, did_you_mean
from treadle.pipeline.naming import name_of

Fn: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Component:
    """The base of all components.

    Args:
        name: what the component is called in errors, traces, diagrams and edits.
        anonymous: the name was made up here; several may share it and are then numbered.
    """

    name: str
    anonymous: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Stage(Component):
    """A function from item to item, made by `stage`.

    Called with an item, it runs the function. Called with keywords alone, it returns a copy that
    has these as options: ``circuit_breaker(threshold=2)``.
    """

    fn: Fn
    options: Mapping[str, Any]
    count: int | None = None
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()

    def __call__(self, *item: Any, **options: Any) -> Any:
        """Run the function on an item; without one, copy the stage with other options."""
        if item:
            return self.fn(*item, **{**self.options, **options})
        _check_options(self, options)
        return replace(self, options={**self.options, **options})

    def bound(self) -> Fn:
        """The function with its options in place."""
        return functools.partial(self.fn, **self.options) if self.options else self.fn


@overload
def stage(
    fn: Fn,
    name: str | None = None,
    *,
    count: int | None = None,
    requires: Sequence[str] = (),
    provides: Sequence[str] = (),
    **options: Any,
) -> Stage: ...
@overload
def stage(
    fn: None = None,
    name: str | None = None,
    *,
    count: int | None = None,
    requires: Sequence[str] = (),
    provides: Sequence[str] = (),
    **options: Any,
) -> Callable[[Fn], Stage]: ...
def stage(
    fn: Fn | None = None,
    name: str | None = None,
    *,
    count: int | None = None,
    requires: Sequence[str] = (),
    provides: Sequence[str] = (),
    **options: Any,
) -> Stage | Callable[[Fn], Stage]:
    """Make a stage of a function; also a decorator, with or without arguments.

    Args:
        fn: takes the item, returns the item. A generator function may yield effects; a coroutine
            function is one effect; a plain function is pure. A `Stage` is copied.
        name: the stage's name; None is the function's.
        count: how many items of a `stream` may be in this stage at once; None is no limit of its
            own.
        requires: fields of the item that something before this stage has to provide.
        provides: fields of the item that this stage fills.
        **options: keyword arguments for the function.

    Returns:
        A `Stage`, or a decorator that makes one.

    Raises:
        PipelineError: an option that the function does not take, or a count below 1.
    """
    if fn is None:
        return functools.partial(
            stage, name=name, count=count, requires=requires, provides=provides, **options
        )
    if not callable(fn):
        raise PipelineError(f"a stage is a callable, not {type(fn).__name__}: {fn!r}")
    if count is not None and count < 1:
        raise PipelineError(f"stage {name or name_of(fn)!r}: count must be at least 1, not {count}")
    old = fn if isinstance(fn, Stage) else Stage(name_of(fn), fn, {}, anonymous=_is_lambda(fn))
    made = replace(
        old,
        name=name or old.name,
        options={**old.options, **options},
        count=old.count if count is None else count,
        requires=_names(requires) or old.requires,
        provides=_names(provides) or old.provides,
        anonymous=old.anonymous and not name,
    )
    _check_options(made, options)
    return made


def _is_lambda(fn: Fn) -> bool:
    return name_of(fn) == "lambda"


def _names(given: Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_options(made: Stage, options: Mapping[str, Any]) -> None:
    parameters = parameters_of(made.fn)
    if parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    of_the_item = next((p for p in parameters if p.kind <= p.VAR_POSITIONAL), None)
    known = [
        p.name
        for p in parameters
        if p is not of_the_item and p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}
    ]
    for option in options:
        if option not in known:
            raise PipelineError(
                f"stage {made.name!r} has no option {option!r}{did_you_mean(option, known)}"
            )


def parameters_of(fn: Fn) -> list[inspect.Parameter] | None:
    """The parameters of a function; None for a builtin that does not tell."""
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return None
