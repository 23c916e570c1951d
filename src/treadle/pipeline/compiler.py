"""Checks the components of a pipeline and flattens them into operations, once."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, cast

from treadle.effects import Mode, call_mode, generator_mode
from treadle.errors import did_you_mean
from treadle.pipeline.components import (
    Component,
    Condition,
    Done,
    Embed,
    Goto,
    GotoPoint,
    Stage,
    StreamComponent,
    Switch,
    Tbd,
    parameters_of,
)
from treadle.pipeline.errors import PipelineError

Filled: TypeAlias = frozenset[str] | None
"""The fields that are filled at a position; None if they are unknown or it is unreachable."""


class Kind(IntEnum):
    """The kind of an operation. The first three run a stage; at ``END``, an item leaves `execute`."""

    PLAIN = 0
    GENERATOR = 1
    CALL = 2
    JUMP = 3
    END = 4


def same(item: Any) -> Any:
    """Return the item unchanged."""
    return item


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Op:
    """One operation.

    Args:
        kind: what it does.
        name: the full name of its component; empty at the end of a branch.
        fn: the function it calls with the item; that of a jump returns the next position.
        target: the position to jump to; for a stage, where the item goes if ``until`` holds.
        until: the condition to leave, evaluated on the result.
    """

    kind: Kind
    name: str = ""
    fn: Callable[..., Any] = same
    target: int = -1
    until: Condition | None = None

    def __repr__(self) -> str:
        return f"Op({self.kind.name}, {self.name!r})"  # options of a stage may be secrets


class Named(NamedTuple):
    """A component with its full name, such as ``embedded.stage``."""

    name: str
    component: Component
    is_top: bool


@dataclasses.dataclass(eq=False)
class Scope:
    """The scope of `done`, ``until`` and `goto`: a pipeline, or a component that runs others."""

    prefix: str
    until: Condition | None = None
    exits: list[Op] = dataclasses.field(default_factory=list[Op])
    points: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    gotos: list[tuple[Goto, Op, Filled]] = dataclasses.field(
        default_factory=list[tuple[Goto, Op, Filled]]
    )
    left: list[Filled] = dataclasses.field(default_factory=list[Filled])
    """The fields that are filled at each `done`."""


class Compiler:
    """Compiles the components of one pipeline.

    Args:
        item: the type of the items, to check the names of fields; None checks none.

    Attributes:
        ops: the operations, in the order in which the components were written.
        named: all components, nested ones included, in that order.
        entry_points: the position at which an item may enter, by the name of the component: those
            that are not nested.
    """

    def __init__(self, item: type | None) -> None:
        self.ops: list[Op] = []
        self.named: list[Named] = []
        self.entry_points: dict[str, int] = {}
        self.fields = fields_of(item)
        self._names: set[str] = set()
        self._depth = 0

    def compile(
        self, components: Sequence[Component], until: Condition | None, given: Collection[str]
    ) -> None:
        """Compile the components of a whole pipeline.

        Raises:
            PipelineError: they do not fit together.
        """
        self.scope(components, Scope("", until), frozenset(given))
        self.emit(Op(Kind.END))

    def scope(self, components: Sequence[Component], scope: Scope, filled: Filled) -> Filled:
        """Compile the components of a scope; return the fields that are filled at its end."""
        filled = self._sequence(components, scope, filled)
        for op in scope.exits:
            op.target = len(self.ops)
        for goto, op, _ in scope.gotos:
            if goto.point not in scope.points:
                raise PipelineError(
                    f"{op.name!r} refers to goto_point({goto.point!r}), which does not exist"
                    f"{did_you_mean(goto.point, scope.points)}"
                )
            op.target = scope.points[goto.point]
        return _in_all(filled, *scope.left)

    def _sequence(self, components: Sequence[Component], scope: Scope, filled: Filled) -> Filled:
        self._depth += 1
        for component in components:
            name = self._name(component, scope)
            filled = self.component(component, name, scope, filled)
        self._depth -= 1
        return filled

    def _name(self, component: Component, scope: Scope) -> str:
        """Determine and note the full name of a component."""
        name = base = scope.prefix + component.name
        is_top = self._depth == 1
        if not isinstance(component, GotoPoint):  # points have a separate namespace
            number = 1
            while component.anonymous and name in self._names:
                number += 1
                name = f"{base}_{number}"
            if name in self._names:
                raise PipelineError(
                    f"there are two components named {name!r}; rename one, as in stage(fn, name=...)"
                )
            self._names.add(name)
            if is_top:
                self.entry_points[name] = len(self.ops)
        self.named.append(Named(name, component, is_top))
        return name

    def component(self, component: Component, name: str, scope: Scope, filled: Filled) -> Filled:
        """Compile one component; return the fields that are filled after it."""
        match component:
            case Stage():
                return self._stage(cast("Stage", component), name, scope, filled)
            case Switch():
                return self._switch(component, name, scope, filled)
            case Embed():
                return self._embed(component, name, scope, filled)
            case Goto(when=when):
                scope.gotos.append((component, self._jump(name, when), filled))
            case Done(when=when):
                scope.exits.append(self._jump(name, when))
                scope.left.append(filled)
            case GotoPoint(name=point):
                if point in scope.points:
                    raise PipelineError(f"there are two goto_points named {name!r}")
                scope.points[point] = len(self.ops)
                # A goto further down jumps back with at least the fields that are filled here.
                return _in_all(
                    filled, *(there for goto, _, there in scope.gotos if goto.point == point)
                )
            case Tbd():
                self.emit(Op(Kind.PLAIN, name))
            case StreamComponent():
                raise PipelineError(
                    f"{name!r} drops, makes or converts items, which takes a StreamPipeline of "
                    f"treadle.pipeline.streams"
                )
            case _:
                raise PipelineError(f"{component!r} is not a known kind of component")
        return filled

    def emit(self, op: Op) -> Op:
        """Append an operation."""
        self.ops.append(op)
        return op

    def _jump(self, name: str, when: Condition) -> Op:
        """Append a jump to ``target`` that depends on a condition."""
        after = len(self.ops) + 1

        def choose(item: Any) -> int:
            return op.target if when(item) else after

        op = self.emit(Op(Kind.JUMP, name, choose))
        return op

    def emit_result(self, op: Op, scope: Scope) -> None:
        """Append an operation after which the item leaves the scope if ``until`` holds."""
        if scope.until is not None:
            op.until = scope.until
            scope.exits.append(op)
        self.emit(op)

    def _stage(self, stage: Stage[..., Any], name: str, scope: Scope, filled: Filled) -> Filled:
        for field in (*stage.requires, *stage.provides):
            if self.fields is not None and field not in self.fields:
                raise PipelineError(
                    f"stage {name!r} names the field {field!r}, which the item does not have"
                    f"{did_you_mean(field, sorted(self.fields))}"
                )
        missing = [field for field in stage.requires if filled is not None and field not in filled]
        if missing:
            raise PipelineError(
                f"stage {name!r} requires {', '.join(missing)}, which no stage before it provides"
            )
        fn = functools.partial(stage.fn, **stage.options) if stage.options else stage.fn
        _check_call(fn, name)
        self.emit_result(Op(kind_of(fn, name), name, fn), scope)
        return None if filled is None else filled | frozenset(stage.provides)

    def _switch(self, switch: Switch, name: str, scope: Scope, filled: Filled) -> Filled:
        positions: dict[Any, int] = {}

        def choose(item: Any) -> int:
            key = switch.fn(item)
            if key not in positions:
                known = ", ".join(repr(branch) for branch in positions)
                raise KeyError(f"no branch for {key!r}; the branches are {known}")
            return positions[key]

        self.emit(Op(Kind.JUMP, name, choose))
        ends: list[Op] = []
        after: list[Filled] = []
        for key, branch in switch.branches.items():
            positions[key] = len(self.ops)
            after.append(self._sequence(branch, scope, filled))
            ends.append(self._jump("", lambda _: True))
        for end in ends:
            end.target = len(self.ops)
        return _in_all(*after)

    def _embed(self, embed: Embed, name: str, scope: Scope, filled: Filled) -> Filled:
        outer = scope.until
        inside = Scope(name + ".", _either(embed.until, outer))
        filled = self.scope(embed.components, inside, filled)
        if outer is not None:  # an item that left the embedded part may have to leave this one too
            scope.exits.append(self._jump(name, outer))
        return filled


def _in_all(*ways: Filled) -> Filled:
    """The fields that are filled on every path."""
    known = [filled for filled in ways if filled is not None]
    return known[0].intersection(*known) if known else None


def _either(one: Condition | None, other: Condition | None) -> Condition | None:
    if one is None or other is None:
        return one or other
    return lambda item: one(item) or other(item)


def _check_call(fn: Callable[..., Any], name: str) -> None:
    """Check that a stage can be called with the item as its only argument."""
    parameters = parameters_of(fn)
    if parameters is None:
        return
    try:
        inspect.Signature(parameters).bind(None)
    except TypeError as error:
        raise PipelineError(
            f"stage {name!r} cannot be called with the item as its only argument: {error}"
        ) from error


def kind_of(fn: Callable[..., Any], name: str) -> Kind:
    """How the function of a stage runs: ``PLAIN``, ``GENERATOR`` or ``CALL``.

    Raises:
        PipelineError: it is an async generator.
    """
    mode = generator_mode(fn)
    if mode is Mode.ASYNC:
        raise PipelineError(
            f"stage {name!r} is an async generator; only a plain generator may yield effects"
        )
    if mode is not None:
        return Kind.GENERATOR
    return Kind.CALL if call_mode(fn) is Mode.ASYNC else Kind.PLAIN


def fields_of(item: type | None) -> frozenset[str] | None:
    """The names of the fields that a type of items declares; None if it declares none."""
    if item is None:
        return None
    if dataclasses.is_dataclass(item):
        return frozenset(field.name for field in dataclasses.fields(item))
    classes: tuple[type, ...] = getattr(cast("Any", item), "__mro__", ())
    return frozenset(name for cls in classes for name in inspect.get_annotations(cls)) or None


def classes_of(item: Any) -> tuple[type, ...]:
    """The classes to check items against with `isinstance`; empty if that is not possible.

    Raises:
        PipelineError: ``item`` is not a type.
    """
    origin: Any = typing.get_origin(item) or item
    if origin in {typing.Union, types.UnionType}:
        members = [classes_of(member) for member in typing.get_args(item)]
        return tuple(cls for classes in members for cls in classes) if all(members) else ()
    if typing.is_typeddict(origin):
        return (dict,)
    if origin is None or origin is Any or getattr(origin, "_is_protocol", False):
        return ()
    if not isinstance(origin, type):
        raise PipelineError(f"item must be the type of the items, not {item!r}")
    return (origin,)
