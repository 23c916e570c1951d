"""The vocabulary: what a pipeline is written in. Components are plain data; `compiler` checks and flattens them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle.pipeline.errors import PipelineError, did_you_mean

if TYPE_CHECKING:
    from treadle.pipeline.pipeline import Pipeline

Fn: TypeAlias = Callable[..., Any]


def name_of(fn: Any) -> str:
    """The name a component gets from its function where it is given none."""
    while isinstance(fn, functools.partial):
        fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return "lambda" if name == "<lambda>" else str(name)


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

    Called with an item, it runs the function. Called with keywords alone, it returns a copy that has
    these as options: ``circuit_breaker(threshold=2)``.
    """

    fn: Fn
    options: Mapping[str, Any]
    count: int | None = None
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()

    def __call__(self, *item: Any, **options: Any) -> Any:
        if item:
            return self.fn(*item, **{**self.options, **options})
        _check_options(self, options)
        return replace(self, options={**self.options, **options})

    def bound(self) -> Fn:
        """The function with its options in place."""
        return functools.partial(self.fn, **self.options) if self.options else self.fn


def stage(
    fn: Fn | None = None,
    name: str | None = None,
    *,
    count: int | None = None,
    requires: Sequence[str] = (),
    provides: Sequence[str] = (),
    **options: Any,
) -> Any:
    """Make a stage of a function; also a decorator, with or without arguments.

    Args:
        fn: takes the item, returns the item. A generator function may yield effects; an ``async def`` is
            one effect; a plain function is pure.
        name: the stage's name; None is the function's.
        count: how many items of a `stream` may be in this stage at once; None is no limit of its own.
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
    made = Stage(
        name or name_of(fn),
        fn,
        options,
        count,
        tuple(requires),
        tuple(provides),
        anonymous=name is None and name_of(fn) == "lambda",
    )
    _check_options(made, options)
    return made


def _check_options(made: Stage, options: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(made.fn).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not tell
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY][
        0 if any(p.kind is p.POSITIONAL_ONLY for p in parameters) else 1 :
    ]
    for option in options:
        if option not in known:
            raise PipelineError(
                f"stage {made.name!r} has no option {option!r}{did_you_mean(option, known)}"
            )


@dataclass(frozen=True, slots=True)
class Switch(Component):
    """Sends the item down one of several branches, made by `switch`."""

    fn: Fn
    branches: Mapping[Any, tuple[Component, ...]]


def switch(fn: Fn, branches: Mapping[Any, Any], name: str | None = None) -> Switch:
    """Choose a branch for each item.

    Args:
        fn: takes the item, returns the key of its branch.
        branches: for each key a component, or a sequence of them (empty passes the item through).
        name: the name; None is the function's.

    Returns:
        The component. An item with a key that no branch has is an error that names the keys.
    """
    if not branches:
        raise PipelineError(f"switch {name or name_of(fn)!r} has no branches")
    made = {key: components_of(branch) for key, branch in branches.items()}
    return Switch(name or name_of(fn), fn, made, anonymous=name is None and name_of(fn) == "lambda")


@dataclass(frozen=True, slots=True)
class Goto(Component):
    """Jumps to a point of the pipeline, made by `goto`."""

    point: str
    when: Fn


def goto(point: str, when: Fn, name: str | None = None) -> Goto:
    """Go on at a `goto_point`, before or after this place, for items that meet a condition.

    Args:
        point: the name of the point.
        when: takes the item, returns whether to jump.
        name: the name; None makes one up.
    """
    return Goto(name or f"goto {point}", point, when, anonymous=name is None)


@dataclass(frozen=True, slots=True)
class GotoPoint(Component):
    """A place that a `goto` jumps to, made by `goto_point`."""


def goto_point(name: str) -> GotoPoint:
    """Mark a place to jump to. It does nothing itself."""
    return GotoPoint(name)


@dataclass(frozen=True, slots=True)
class Done(Component):
    """Lets items leave the pipeline early, made by `done`."""

    when: Fn


def done(when: Fn, name: str | None = None) -> Done:
    """Let items that meet a condition leave the whole pipeline here, as its result.

    Args:
        when: takes the item, returns whether it is done.
        name: the name; None makes one up.
    """
    return Done(name or "done", when, anonymous=name is None)


@dataclass(frozen=True, slots=True)
class DeadEnd(Component):
    """Drops every item that gets here, made by `dead_end`."""


def dead_end(name: str | None = None) -> DeadEnd:
    """Drop the item: nothing comes out for it. Useful at the end of a branch."""
    return DeadEnd(name or "dead_end", anonymous=name is None)


@dataclass(frozen=True, slots=True)
class Composer(Component):
    """Makes zero, one or many items of one, made by `composer`."""

    fn: Fn
    memo: Any


def composer(fn: Fn, memo: Any = None, name: str | None = None) -> Composer:
    """Make zero, one or many items of each, with a memory.

    Args:
        fn: takes the item and the memo, returns the items that go on and the new memo.
        memo: the first memo of every run. A run is one `run` or one `stream`; runs share nothing, as
            long as the function returns a new memo and leaves the old one as it is.
        name: the name; None is the function's.
    """
    return Composer(name or name_of(fn), fn, memo, anonymous=name is None and name_of(fn) == "lambda")


@dataclass(frozen=True, slots=True)
class PlugWith(Component):
    """Runs components on an adapted item, made by `plug_with`."""

    plug: Fn
    unplug: Fn
    components: tuple[Component, ...]


def plug_with(adapter: Any, components: Any, name: str | None = None) -> PlugWith:
    """Run components that were written for another kind of item.

    Args:
        adapter: has ``plug(item)``, which makes the inner item, and ``unplug(inner, original)``, which
            makes the item that goes on; or is the pair of these two functions.
        components: what the inner item goes through.
        name: the name; None is the adapter's.

    Raises:
        PipelineError: the adapter lacks one of the two.
    """
    pair = adapter if isinstance(adapter, tuple) else None
    plug, unplug = pair or (getattr(adapter, "plug", None), getattr(adapter, "unplug", None))
    if not callable(plug) or not callable(unplug):
        raise PipelineError(
            f"plug_with: {adapter!r} needs two functions, plug(item) and unplug(inner, original)"
        )
    label = name or (name_of(plug) if pair else name_of(adapter))
    return PlugWith(label, plug, unplug, components_of(components), anonymous=name is None)


@dataclass(frozen=True, slots=True)
class Embed(Component):
    """The components of another pipeline, made by `embed`."""

    pipeline: Pipeline[Any]


def embed(pipeline: Pipeline[Any], name: str) -> Embed:
    """Put another pipeline's components here: one copy, whose names start with ``name.``.

    Args:
        pipeline: what to embed. Its `done` and its ``until`` leave the embedded part alone.
        name: the name space.
    """
    return Embed(name, pipeline)


@dataclass(frozen=True, slots=True)
class Tbd(Component):
    """A part yet to be written, made by `tbd`."""


def tbd(name: str) -> Tbd:
    """Hold a place: the item passes through, and diagrams show that something is missing."""
    return Tbd(name)


def components_of(given: Any) -> tuple[Component, ...]:
    """Make components of what a user wrote: a component, a bare callable, or a sequence of these.

    Raises:
        PipelineError: something else.
    """
    if isinstance(given, Component):
        return (given,)
    if isinstance(given, (list, tuple)):
        parts: Sequence[Any] = given  # pyright: ignore[reportUnknownVariableType]
        return tuple(component for part in parts for component in components_of(part))
    if callable(given):
        return (stage(given),)
    raise PipelineError(
        f"a pipeline takes components and callables, not {type(given).__name__}: {given!r}"
    )
