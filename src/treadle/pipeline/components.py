"""The components of a pipeline: plain data, which the compiler flattens into a program."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from treadle.effects import Mode, call_mode
from treadle.errors import did_you_mean
from treadle.fast_dataclass import fast_dataclass
from treadle.pipeline.errors import PipelineError
from treadle.shown import callable_name
from treadle.type_vars import ParamsT, ReturnT_co

if TYPE_CHECKING:
    from treadle.pipeline.pipeline import Pipeline

P = ParamSpec("P")
R = TypeVar("R")

Fn: TypeAlias = Callable[..., Any]
Condition: TypeAlias = Callable[[Any], object]


@fast_dataclass
class Component:
    """The base of all components.

    Args:
        name: what the component is called in errors, traces, diagrams and edits.
        anonymous: the name was generated; further components with this name are numbered.
    """

    name: str
    anonymous: bool = field(default=False, kw_only=True)


ComponentLike: TypeAlias = Component | Fn | Sequence[Component | Fn | Sequence[Any]]
"""Anything that is accepted as components: a component, a bare callable, or a sequence of these."""


@fast_dataclass
class Stage(Component, Generic[ParamsT, ReturnT_co]):
    """A function from item to item, made by `stage`.

    Called with an item, it runs the function. Called with keywords alone, it returns a copy with
    these options: ``circuit_breaker(threshold=2)``.
    """

    fn: Callable[Concatenate[Any, ParamsT], ReturnT_co]
    options: Mapping[str, Any] = field(repr=False)  # any of them may be a secret
    count: int | None = None
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()

    @overload
    def __call__(
        self, item: Any, /, *rest: ParamsT.args, **options: ParamsT.kwargs
    ) -> ReturnT_co: ...
    @overload
    def __call__(self, *none: ParamsT.args, **options: ParamsT.kwargs) -> Self: ...
    def __call__(self, *item: Any, **options: Any) -> Any:  # type: ignore[misc]  # it takes any
        """Run the function on an item; without one, copy the stage with other options."""
        if item:
            return self.fn(*item, **{**self.options, **options})
        _check_options(self, options)
        return replace(self, options={**self.options, **options})

    def bound(self) -> Fn:
        """The function with its options bound, unless all of them are its defaults."""
        defaults: dict[str, Any] = getattr(self.fn, "__kwdefaults__", None) or {}
        options = {
            name: value
            for name, value in self.options.items()
            if name not in defaults or defaults[name] is not value
        }
        return functools.partial(self.fn, **options) if options else self.fn


class _Decorator(Protocol):
    def __call__(self, fn: Callable[Concatenate[Any, P], R], /) -> Stage[P, R]: ...


@overload
def stage(
    fn: Callable[Concatenate[Any, P], R],
    name: str | None = None,
    *,
    count: int | None = None,
    requires: Sequence[str] = (),
    provides: Sequence[str] = (),
    replaces: Stage[..., Any] | None = None,
    **options: Any,
) -> Stage[P, R]: ...
@overload
def stage(
    fn: None = None,
    name: str | None = None,
    *,
    count: int | None = None,
    requires: Sequence[str] = (),
    provides: Sequence[str] = (),
    replaces: Stage[..., Any] | None = None,
    **options: Any,
) -> _Decorator: ...
def stage(
    fn: Any = None,
    name: str | None = None,
    *,
    count: int | None = None,
    requires: Sequence[str] = (),
    provides: Sequence[str] = (),
    replaces: Stage[..., Any] | None = None,
    **options: Any,
) -> Any:
    """Make a stage of a function; also a decorator, with or without arguments.

    Args:
        fn: takes the item, returns the item. A generator function may yield effects; a coroutine
            function is one effect; a plain function is pure. A `Stage` is copied.
        name: the stage's name; None takes the name of the function.
        count: the maximum number of items of a `stream` in this stage at once; None sets no limit.
        requires: fields of the item that an earlier stage has to provide.
        provides: fields of the item that this stage fills.
        replaces: the stage in whose place this one stands: what it requires and provides, this one does, too.
        **options: keyword arguments for the function.

    Returns:
        A `Stage`, or a decorator that makes one.

    Raises:
        PipelineError: the function does not take an option, or the count is below 1.
    """
    if fn is None:
        return functools.partial(
            stage,
            name=name,
            count=count,
            requires=requires,
            provides=provides,
            replaces=replaces,
            **options,
        )
    if not callable(fn):
        raise PipelineError(f"a stage must be callable, not {type(fn).__name__}")
    if count is not None and count < 1:
        raise PipelineError(f"stage {name or name_of(fn)!r}: count must be at least 1, not {count}")
    label = name_of(fn)
    is_stage = isinstance(fn, Stage)
    old = cast("Stage", fn) if is_stage else Stage(label, fn, {}, anonymous=label == "lambda")
    made = replace(
        old,
        name=name or old.name,
        options={**old.options, **options},
        count=old.count if count is None else count,
        requires=_field_names(requires) or old.requires or (replaces.requires if replaces else ()),
        provides=_field_names(provides) or old.provides or (replaces.provides if replaces else ()),
        anonymous=old.anonymous and not name,
    )
    _check_options(made, options)
    return made


def name_of(fn: Fn) -> str:
    """The default name of a component with this function."""
    name = callable_name(fn)
    return "lambda" if name == "<lambda>" else name


def _field_names(given: Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_options(made: Stage, options: Mapping[str, Any]) -> None:
    parameters = parameters_of(made.fn)
    if parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    for_item = next((p for p in parameters if p.kind <= p.VAR_POSITIONAL), None)
    known = [
        p.name
        for p in parameters
        if p is not for_item and p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}
    ]
    for option in options:
        if option not in known:
            raise PipelineError(
                f"stage {made.name!r} has no option {option!r}{did_you_mean(option, known)}"
            )


def parameters_of(fn: Fn) -> list[inspect.Parameter] | None:
    """The parameters of a function; None for a builtin without a signature."""
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return None


def check_plain(fn: object, what: str) -> None:
    """Check that a function can be called directly by the pipeline.

    Args:
        fn: the value to check.
        what: its role, for the error.

    Raises:
        PipelineError: it is not callable, or it is async or a generator, which only stages may be.
    """
    if not callable(fn):
        raise PipelineError(f"{what} must be callable, not {type(fn).__name__}")
    if call_mode(fn) is not Mode.THREAD:
        raise PipelineError(
            f"{what} must be a plain function, but {name_of(fn)!r} is async or a generator; "
            f"do that work in a stage before it"
        )


@fast_dataclass
class Switch(Component):
    """Sends the item to one of several branches, made by `switch`."""

    fn: Callable[[Any], Hashable]
    branches: Mapping[Any, tuple[Component, ...]]


def switch(
    fn: Callable[[Any], Hashable], branches: Mapping[Any, ComponentLike], name: str | None = None
) -> Switch:
    """Choose a branch for each item.

    Args:
        fn: takes the item, returns the key of its branch.
        branches: for each key a component, or a sequence of them (empty passes the item through).
        name: the name; None takes the name of the function.

    Returns:
        The component. An item whose key has no branch raises a `StageError` that names the keys.
    """
    label = name or name_of(fn)
    check_plain(fn, f"the function of switch {label!r}")
    if not isinstance(cast("object", branches), Mapping) or not branches:
        raise PipelineError(
            f"switch {label!r} has no branches: expected a mapping, got {type(branches).__name__}"
        )
    made = {key: components_of(branch) for key, branch in branches.items()}
    return Switch(label, fn, made, anonymous=name is None and label == "lambda")


@fast_dataclass
class Goto(Component):
    """Jumps to a point of the pipeline, made by `goto`."""

    point: str
    when: Condition


def goto(point: str, when: Condition, name: str | None = None) -> Goto:
    """Send items that meet a condition to a `goto_point`, which may be earlier or later.

    Args:
        point: the name of the point.
        when: takes the item, returns whether to jump.
        name: the name; None generates one.
    """
    check_plain(when, f"the condition of a goto to {point!r}")
    return Goto(name or f"goto {point}", point, when, anonymous=name is None)


@fast_dataclass
class GotoPoint(Component):
    """The target of a `goto`. It leaves the item unchanged."""


goto_point = GotoPoint


@fast_dataclass
class Done(Component):
    """Lets items leave the pipeline early, made by `done`."""

    when: Condition


def done(when: Condition, name: str | None = None) -> Done:
    """Let items that meet a condition leave the whole pipeline here, as its result.

    Args:
        when: takes the item, returns whether it is done.
        name: the name; None generates one.
    """
    check_plain(when, "the condition of a done")
    return Done(name or "done", when, anonymous=name is None)


@fast_dataclass
class DeadEnd(Component):
    """Drops every item that reaches it, made by `dead_end`."""


def dead_end(name: str | None = None) -> DeadEnd:
    """Drop the item: the pipeline returns nothing for it. Useful at the end of a branch."""
    return DeadEnd(name or "dead_end", anonymous=name is None)


@fast_dataclass
class Composer(Component):
    """Makes zero, one or many items from each item, made by `composer`."""

    fn: Callable[[Any, Any], tuple[Iterable[Any], Any]]
    memo: Any


def composer(
    fn: Callable[[Any, Any], tuple[Iterable[Any], Any]], memo: Any = None, name: str | None = None
) -> Composer:
    """Make zero, one or many items of each, with a memo that is passed from item to item.

    Args:
        fn: takes the item and the memo, returns the items to continue with and the new memo.
        memo: the initial memo of each `run` and each `stream`. It is copied; runs share no state
            if the function returns a new memo and does not change the old one.
        name: the name; None takes the name of the function.
    """
    label = name or name_of(fn)
    check_plain(fn, f"the function of composer {label!r}")
    return Composer(label, fn, memo, anonymous=name is None and label == "lambda")


@fast_dataclass
class PlugWith(Component):
    """Runs components on an adapted item, made by `plug_with`."""

    plug: Fn
    unplug: Fn
    components: tuple[Component, ...]


def plug_with(adapter: Any, components: ComponentLike, name: str | None = None) -> PlugWith:
    """Run components that were written for another type of item.

    Args:
        adapter: an object with ``plug(item)``, which makes the inner item, and
            ``unplug(inner, original)``, which makes the item to continue with; or a pair of these
            functions.
        components: the components that the inner item passes through.
        name: the name; None takes the name of the adapter.

    Raises:
        PipelineError: the adapter lacks one of the two functions.
    """
    match adapter:
        case (plug, unplug):
            label = name or name_of(plug)
        case _:
            plug, unplug = getattr(adapter, "plug", None), getattr(adapter, "unplug", None)
            label = name or name_of(adapter)
    if not callable(plug) or not callable(unplug):
        raise PipelineError(
            f"plug_with: {type(adapter).__name__} needs two functions, plug(item) and unplug(inner, original)"
        )
    check_plain(plug, f"the plug of {label!r}")
    check_plain(unplug, f"the unplug of {label!r}")
    return PlugWith(label, plug, unplug, components_of(components), anonymous=name is None)


@fast_dataclass
class Embed(Component):
    """The components of another pipeline, made by `embed`."""

    pipeline: Pipeline[Any]


def embed(pipeline: Pipeline[Any], name: str) -> Embed:
    """Put the components of another pipeline here; their names start with ``name.``.

    Args:
        pipeline: the pipeline to embed. Its own `done` and ``until`` end the embedded part only.
            The ``until`` of the outer pipeline applies inside it too, and ends both.
        name: the namespace.
    """
    if not isinstance(getattr(pipeline, "components", None), tuple):
        raise PipelineError(f"embed({name!r}) takes a Pipeline, not {type(pipeline).__name__}")
    return Embed(name, pipeline)


@fast_dataclass
class Tbd(Component):
    """A placeholder: the item passes through, and diagrams show it as to be done."""


tbd = Tbd


def components_of(given: ComponentLike) -> tuple[Component, ...]:
    """Convert a component, a bare callable, or a list or tuple of these to components.

    Raises:
        PipelineError: it is something else.
    """
    if isinstance(given, Component):
        return (given,)
    if isinstance(given, (list, tuple)):
        parts: Sequence[Any] = cast("Any", given)
        return tuple(component for part in parts for component in components_of(part))
    if callable(given):
        return (stage(given),)
    raise PipelineError(f"a pipeline takes components and callables, not {type(given).__name__}")


def nested_in(component: Component) -> list[tuple[Component, ...]]:
    """The sequences of components inside a component."""
    match component:
        case Switch(branches=branches):
            return list(branches.values())
        case PlugWith(components=components):
            return [components]
        case Embed(pipeline=pipeline):
            return [pipeline.components]
        case _:
            return []


def with_nested(component: Component, nested: list[tuple[Component, ...]]) -> Component:
    """Copy a component with other sequences of components inside; see `nested_in`."""
    match component:
        case Switch(branches=branches):
            return replace(component, branches=dict(zip(branches, nested, strict=True)))
        case PlugWith():
            return replace(component, components=nested[0])
        case Embed(pipeline=pipeline):
            return replace(component, pipeline=pipeline.with_components(*nested[0]))
        case _:
            return component
