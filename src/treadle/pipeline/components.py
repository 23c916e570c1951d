"""The vocabulary: what a pipeline is written in, as plain data that `compiler` flattens."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from treadle.effects import Mode, call_mode
from treadle.errors import did_you_mean
from treadle.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from treadle.pipeline.pipeline import Pipeline


PLUGGED = "/"
"""What follows the name of a plug in the names of the components it holds."""

EMBEDDED = "."
"""What follows the name of an embedded pipeline in the names of its components."""


def name_of(fn: Callable[..., Any]) -> str:
    """The name a component gets from its function where it is given none."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return "lambda" if name == "<lambda>" else str(name)


class Names:
    """Gives each component of a pipeline its full name, in the order in which they are written."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, component: Component, prefix: str) -> str:
        """The full name of the next component.

        Args:
            component: whose name it is. One whose own name was made up is numbered where it is
                taken.
            prefix: the name space it stands in.

        Raises:
            PipelineError: another one has this name.
        """
        name = base = prefix + component.name
        number = 1
        while component.anonymous and name in self._taken:
            number += 1
            name = f"{base}_{number}"
        if name in self._taken:
            raise PipelineError(
                f"there are two components named {name!r}; give one another name, "
                f"as in stage(fn, name=...)"
            )
        self._taken.add(name)
        return name


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


__all__ = [
    "Component",
    "Composer",
    "DeadEnd",
    "Done",
    "Embed",
    "Fn",
    "Goto",
    "GotoPoint",
    "PlugWith",
    "Stage",
    "Switch",
    "Tbd",
    "components_of",
    "composer",
    "dead_end",
    "done",
    "embed",
    "goto",
    "goto_point",
    "plug_with",
    "stage",
    "switch",
    "tbd",
]


def check_plain(fn: Any, what: str) -> None:
    """See that a function is one that can decide or convert on the spot.

    Args:
        fn: what was given.
        what: what it is to be, for the error.

    Raises:
        PipelineError: it cannot be called, or it is async or a generator, which only stages may be.
    """
    if not callable(fn):
        raise PipelineError(f"{what} is a callable, not {type(fn).__name__}: {fn!r}")
    if call_mode(fn) is not Mode.THREAD:
        raise PipelineError(
            f"{what} is a plain function, and {name_of(fn)!r} is async or a generator; "
            f"let a stage before it do that work"
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
    label = name or name_of(fn)
    check_plain(fn, f"the function of switch {label!r}")
    if not isinstance(cast("Any", branches), Mapping) or not branches:
        raise PipelineError(f"switch {label!r} has no branches: {branches!r}")
    made = {key: components_of(branch) for key, branch in branches.items()}
    return Switch(label, fn, made, anonymous=name is None and label == "lambda")


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
    check_plain(when, f"the condition of a goto to {point!r}")
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
    check_plain(when, "the condition of a done")
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
        memo: the first memo of every run. A run is one `run` or one `stream`; runs share nothing,
            as long as the function returns a new memo and leaves the old one as it is.
        name: the name; None is the function's.
    """
    label = name or name_of(fn)
    check_plain(fn, f"the function of composer {label!r}")
    return Composer(label, fn, memo, anonymous=name is None and label == "lambda")


@dataclass(frozen=True, slots=True)
class PlugWith(Component):
    """Runs components on an adapted item, made by `plug_with`."""

    plug: Fn
    unplug: Fn
    components: tuple[Component, ...]


def plug_with(adapter: Any, components: Any, name: str | None = None) -> PlugWith:
    """Run components that were written for another kind of item.

    Args:
        adapter: has ``plug(item)``, which makes the inner item, and ``unplug(inner, original)``,
            which makes the item that goes on; or is the pair of these two functions.
        components: what the inner item goes through.
        name: the name; None is the adapter's.

    Raises:
        PipelineError: the adapter lacks one of the two.
    """
    match adapter:
        case (plug, unplug):
            label = name or name_of(plug)
        case _:
            plug, unplug = getattr(adapter, "plug", None), getattr(adapter, "unplug", None)
            label = name or name_of(adapter)
    if not callable(plug) or not callable(unplug):
        raise PipelineError(
            f"plug_with: {adapter!r} needs two functions, plug(item) and unplug(inner, original)"
        )
    check_plain(plug, f"the plug of {label!r}")
    check_plain(unplug, f"the unplug of {label!r}")
    return PlugWith(label, plug, unplug, components_of(components), anonymous=name is None)


@dataclass(frozen=True, slots=True)
class Embed(Component):
    """The components of another pipeline, made by `embed`."""

    pipeline: Pipeline[Any]


def embed(pipeline: Pipeline[Any], name: str) -> Embed:
    """Put another pipeline's components here: one copy, whose names start with ``name.``.

    Args:
        pipeline: what to embed. Its own `done` and ``until`` leave the embedded part alone; the
            ``until`` of the pipeline around it holds within it too, and leaves both.
        name: the name space.
    """
    if not isinstance(getattr(pipeline, "components", None), tuple):
        raise PipelineError(f"embed({name!r}) takes a Pipeline, not {type(pipeline).__name__}")
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
        parts: Sequence[Any] = cast("Any", given)
        return tuple(component for part in parts for component in components_of(part))
    if callable(given):
        return (stage(given),)
    raise PipelineError(
        f"a pipeline takes components and callables, not {type(given).__name__}: {given!r}"
    )
