"""The components of a pipeline. Each knows the operations that it becomes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from treadle.effects import Mode, call_mode
from treadle.errors import did_you_mean
from treadle.fast_dataclass import fast_dataclass
from treadle.pipeline.compiler import (
    EXIT,
    Compiler,
    Component,
    Components,
    Condition,
    Kind,
    Look,
    Op,
    kind_of,
)
from treadle.pipeline.errors import PipelineError
from treadle.shown import callable_name
from treadle.type_vars import ParamsT, ReturnT_co

P = ParamSpec("P")
R = TypeVar("R")

ComponentLike: TypeAlias = (
    Component | Callable[..., Any] | Sequence[Component | Callable[..., Any] | Sequence[Any]]
)
"""Anything that is accepted as components: a component, a bare callable, or a sequence of these."""


@fast_dataclass
class Stage(Component, Generic[ParamsT, ReturnT_co]):
    """A function from item to item, made by `stage`.

    Called with an item, it runs the function. Called with keywords alone, it returns a copy with
    these options: ``circuit_breaker(threshold=2)``.
    """

    fn: Callable[Concatenate[Any, ParamsT], ReturnT_co]
    options: Mapping[str, Any] = field(repr=False)  # any of them may be a secret
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    replaced: Callable[..., Any] | None = field(default=None, repr=False)

    @property
    def role(self) -> Callable[..., Any]:
        """The function by which a stage is known: that of the stage which it replaces, else its own."""
        return self.replaced or self.fn

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

    def add_to(self, compiler: Compiler, name: str, /) -> None:
        """Add a call of the function, after checks of it and of the fields."""
        fields, filled = compiler.fields, compiler.filled
        for one in (*self.requires, *self.provides):
            if fields is not None and one not in fields:
                raise PipelineError(
                    f"stage {name!r} names the field {one!r}, which the item does not have"
                    f"{did_you_mean(one, sorted(fields))}"
                )
        if filled is not None:
            missing = [one for one in self.requires if one not in filled]
            if missing:
                raise PipelineError(
                    f"stage {name!r} requires {', '.join(missing)}, which no stage before it provides"
                )
            compiler.filled = filled.union(self.provides)
        fn = functools.partial(self.fn, **self.options) if self.options else self.fn
        try:
            inspect.signature(fn).bind(None)
        except ValueError:  # a builtin without a signature
            pass
        except TypeError as error:
            raise PipelineError(
                f"stage {name!r} cannot be called with the item as its only argument: {error}"
            ) from error
        compiler.add_result(Op(kind_of(fn, name), name, fn, self))


@overload
def stage(
    fn: Callable[Concatenate[Any, P], R],
    name: str | None = None,
    *,
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
    requires: Sequence[str] = (),
    provides: Sequence[str] = (),
    replaces: Stage[..., Any] | None = None,
    **options: Any,
) -> Callable[[Callable[Concatenate[Any, P], R]], Stage[P, R]]: ...
def stage(
    fn: Any = None,
    name: str | None = None,
    *,
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
        requires: fields of the item that an earlier stage has to provide.
        provides: fields of the item that this stage fills.
        replaces: the stage in whose place this one stands: what it requires and provides, this one does, too.
        **options: keyword arguments for the function.

    Returns:
        A `Stage`, or a decorator that makes one.

    Raises:
        PipelineError: the function does not take an option, or what it replaces is no stage.
    """
    if replaces is not None and not isinstance(replaces, Stage):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PipelineError(
            f"stage: replaces= takes a stage, such as plan_calls of treadle.stages, not {type(replaces).__name__}"
        )
    if fn is None:
        return functools.partial(
            stage, name=name, requires=requires, provides=provides, replaces=replaces, **options
        )
    if not callable(fn):
        raise PipelineError(f"a stage must be callable, not {type(fn).__name__}")
    old = cast("Stage", fn)
    if not isinstance(fn, Stage):
        label = name_of(fn)
        old = Stage(label, fn, {}, anonymous=label == "lambda")
    made = replace(
        old,
        name=name or old.name,
        options={**old.options, **options},
        requires=_field_names(requires) or old.requires or (replaces.requires if replaces else ()),
        provides=_field_names(provides) or old.provides or (replaces.provides if replaces else ()),
        anonymous=old.anonymous and not name,
        replaced=replaces.role if replaces else old.replaced,
    )
    _check_options(made, options)
    return made


def name_of(fn: Callable[..., Any]) -> str:
    """The default name of a component with this function."""
    return callable_name(fn).strip("<>")  # as of a lambda


def _field_names(given: Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_options(made: Stage, options: Mapping[str, Any]) -> None:
    try:  # the first parameter takes the item
        parameters = list(inspect.signature(made.fn).parameters.values())[1:]
    except ValueError:  # a builtin without a signature
        return
    keywords = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    known = [one.name for one in parameters if one.kind in keywords]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    for option in options:
        if option not in known and not takes_any:
            raise PipelineError(
                f"stage {made.name!r} has no option {option!r}{did_you_mean(option, known)}"
            )


def check_plain(fn: object, what: str) -> None:
    """Check that the pipeline can call a function directly: stages alone may be async, or generators."""
    if not callable(fn):
        raise PipelineError(f"{what} must be callable, not {type(fn).__name__}")
    if call_mode(fn) is not Mode.THREAD:
        raise PipelineError(
            f"{what} must be a plain function, but {name_of(fn)!r} is async or a generator; "
            f"do that work in a stage before it"
        )


@fast_dataclass
class Part(Component):
    """A component that is no stage, with the function that adds its operations.

    Those that need no local function have a global one, so that a pipeline of them can be pickled.
    """

    look: Look = field(repr=False)  # type: ignore[misc]  # pyright: ignore[reportIncompatibleVariableOverride]  # its own
    parts: Mapping[Any, Components] = field()  # type: ignore[misc]  # pyright: ignore[reportIncompatibleVariableOverride]
    add: Callable[[Compiler, str, Mapping[Any, Components]], None] = field(repr=False)

    def add_to(self, compiler: Compiler, name: str, /) -> None:
        """Add the operations of this component, which has this full name."""
        self.add(compiler, name, self.parts)


def switch(
    fn: Callable[[Any], Hashable], branches: Mapping[Any, ComponentLike], name: str | None = None
) -> Component:
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

    def add(compiler: Compiler, name: str, parts: Mapping[Any, Components]) -> None:
        positions: dict[Any, int] = {}

        def choose(item: Any) -> int:
            key = fn(item)
            if key not in positions:
                known = ", ".join(repr(branch) for branch in positions)
                raise KeyError(f"no branch for {key!r}; the branches are {known}")
            return positions[key]

        compiler.ops.append(Op(Kind.JUMP, name, choose))
        before, end = compiler.filled, object()
        for key, branch in parts.items():
            positions[key], compiler.filled = len(compiler.ops), before
            compiler.add(branch)
            compiler.add_jump("", lambda _: True, end, compiler.filled)
        compiler.filled = None
        compiler.add_point(end)

    look = Look('{{"{}"}}', "switch {0}")
    made = {key: components_of(branch) for key, branch in branches.items()}
    return Part(label, look, made, add, anonymous=name is None and label == "lambda")


def goto(point: str, when: Condition, name: str | None = None) -> Component:
    """Send items that meet a condition to a `goto_point`, which may be earlier or later.

    Args:
        point: the name of the point.
        when: takes the item, returns whether to jump.
        name: the name; None generates one.
    """
    check_plain(when, f"the condition of a goto to {point!r}")
    title = "{0}" if name is None else "goto {1.look.jump} if {0}"
    return _jump(name or f"goto {point}", point, when, title, anonymous=name is None)


def done(when: Condition, name: str | None = None) -> Component:
    """Let items that meet a condition leave the whole pipeline here, as its result.

    Args:
        when: takes the item, returns whether it is done.
        name: the name; None generates one.
    """
    check_plain(when, "the condition of a done")
    title = "{0}" if name is None else "done {0}"
    return _jump(name or "done", EXIT, when, title, anonymous=name is None)


def _jump(name: str, point: Hashable, when: Condition, title: str, *, anonymous: bool) -> Component:
    def add(compiler: Compiler, name: str, _: object) -> None:
        compiler.add_jump(name, when, point, compiler.filled)

    return Part(name, Look('{{"{}"}}', title, jump=point), {}, add, anonymous=anonymous)


def goto_point(name: str, *, anonymous: bool = False) -> Component:
    """The target of a `goto`. It leaves the item unchanged."""
    look = Look('(("{}"))', "goto_point {0}", is_point=True)
    return Part(name, look, {}, _add_point, anonymous=anonymous)


def _add_point(compiler: Compiler, name: str, _: object) -> None:
    point = name.removeprefix(compiler.scope.prefix)
    if point in compiler.scope.points:
        raise PipelineError(f"there are two goto_points named {name!r}")
    compiler.add_point(point)


def tbd(name: str, *, anonymous: bool = False) -> Component:
    """A placeholder: the item passes through, and diagrams show it as to be done."""
    look = Look('>"{} (to be done)"]', "{0} (to be done)")
    return Part(name, look, {}, _add_nothing, anonymous=anonymous)


def _add_nothing(compiler: Compiler, name: str, _: object) -> None:
    compiler.ops.append(Op(Kind.PLAIN, name))


def embedded(name: str, components: Components, until: Condition | None) -> Component:
    """The components and the ``until`` of another pipeline."""
    add = functools.partial(_add_embedded, until)
    return Part(name, Look("{}", "embed {0}", is_box=True), {"": components}, add)


def _add_embedded(
    inner: Condition | None, compiler: Compiler, name: str, parts: Mapping[Any, Components]
) -> None:
    outer = compiler.scope.until
    conditions = [until for until in (inner, outer) if until is not None]

    def until(item: Any) -> bool:
        return any(condition(item) for condition in conditions)

    compiler.add_scope(parts[""], f"{name}.", until if conditions else None)
    if outer is not None:
        compiler.add_jump(name, outer, EXIT)


def components_of(given: ComponentLike) -> Components:
    """Convert a component, a bare callable, or a list or tuple of these to components."""
    if isinstance(given, Component):
        return (given,)
    if isinstance(given, (list, tuple)):
        parts: Sequence[Any] = cast("Any", given)
        return tuple(component for part in parts for component in components_of(part))
    if callable(given):
        return (stage(given),)
    raise PipelineError(f"a pipeline takes components and callables, not {type(given).__name__}")
