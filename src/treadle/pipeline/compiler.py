"""Checks the components of a pipeline and flattens them into a program, once."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, cast

from treadle.effects import Mode, call_mode
from treadle.errors import did_you_mean
from treadle.pipeline.components import (
    Component,
    Composer,
    Condition,
    DeadEnd,
    Done,
    Embed,
    Fn,
    Goto,
    GotoPoint,
    PlugWith,
    Stage,
    Switch,
    Tbd,
    parameters_of,
)
from treadle.pipeline.errors import PipelineError

Filled: TypeAlias = frozenset[str] | None
"""The fields that are filled at a position; None if they are unknown or it is unreachable."""


class Kind(IntEnum):
    """The kind of an operation. The first three run a stage."""

    PLAIN = 0
    GENERATOR = 1
    CALL = 2
    SWITCH = 3
    JUMP = 4
    GOTO = 5
    DROP = 6
    COMPOSE = 7
    PLUG = 8
    UNPLUG = 9
    END = 10


def same(item: Any) -> Any:
    """Return the item unchanged."""
    return item


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Op:
    """One operation of the flat program.

    Args:
        kind: what it does.
        name: the full name of its component; empty for a jump at the end of a branch.
        fn: the function it calls.
        target: the position to jump to; for a stage, where the item goes if ``until`` holds.
        until: the condition to leave, evaluated on the result.
        table: the position of each branch of a switch.
        mode: how a driver performs the call of a stage of kind ``CALL``.
        count: how many items of a stream may be in the stage at once.
        memo: the initial memo of a composer.
    """

    kind: Kind
    name: str = ""
    fn: Fn = same
    target: int = -1
    until: Condition | None = None
    table: dict[Any, int] = dataclasses.field(default_factory=dict[Any, int])
    mode: Mode = Mode.ASYNC
    count: int | None = None
    memo: Any = None

    def __repr__(self) -> str:
        return f"Op({self.kind.name}, {self.name!r})"  # options of a stage may be secrets


class Named(NamedTuple):
    """A component with its full name, such as ``embedded.stage`` or ``plug/stage``."""

    name: str
    component: Component
    is_top: bool


@dataclasses.dataclass(slots=True, eq=False)
class Program:
    """The result of compiling a pipeline.

    Args:
        ops: the operations, in the order in which the components were written.
        named: all components, nested ones included, in that order.
        entry_points: the position at which an item may enter, by the name of the component: those
            that are not nested, up to the first composer.
    """

    ops: list[Op] = dataclasses.field(default_factory=list[Op])
    named: list[Named] = dataclasses.field(default_factory=list[Named])
    entry_points: dict[str, int] = dataclasses.field(default_factory=dict[str, int])


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


@dataclasses.dataclass(eq=False)
class _Scope:
    """The scope of `done`, ``until`` and `goto`: a pipeline, an embedded pipeline, or a plug."""

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
    """Builds the program of one pipeline.

    Args:
        item: the type of the items, to check the names of fields; None checks none.
    """

    def __init__(self, item: type | None) -> None:
        self._program = Program()
        self._ops = self._program.ops
        self._fields = fields_of(item)
        self._names: set[str] = set()
        self._depth = 0
        self._has_composer = False

    def compile(
        self,
        components: Sequence[Component],
        *,
        until: Condition | None,
        given: Collection[str],
    ) -> Program:
        """Compile the components of a whole pipeline.

        Raises:
            PipelineError: they do not fit together.
        """
        self._scope(components, _Scope("", until), frozenset(given))
        self._emit(Op(Kind.END))
        return self._program

    def _scope(self, components: Sequence[Component], scope: _Scope, filled: Filled) -> Filled:
        filled = self._sequence(components, scope, filled)
        for op in scope.exits:
            op.target = len(self._ops)
        for goto, op, _ in scope.gotos:
            if goto.point not in scope.points:
                raise PipelineError(
                    f"{op.name!r} refers to goto_point({goto.point!r}), which does not exist"
                    f"{did_you_mean(goto.point, scope.points)}"
                )
            op.target = scope.points[goto.point]
        return _in_all(filled, *scope.left)

    def _sequence(self, components: Sequence[Component], scope: _Scope, filled: Filled) -> Filled:
        self._depth += 1
        for component in components:
            name = self._name(component, scope)
            filled = self._component(component, name, scope, filled)
        self._depth -= 1
        return filled

    def _name(self, component: Component, scope: _Scope) -> str:
        """Determine and note the full name of a component."""
        is_top = self._depth == 1
        name = base = scope.prefix + component.name
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
            if is_top and not self._has_composer:
                self._program.entry_points[name] = len(self._ops)
        self._program.named.append(Named(name, component, is_top))
        return name

    def _component(  # noqa: C901 - one case for each kind of component
        self, component: Component, name: str, scope: _Scope, filled: Filled
    ) -> Filled:
        match component:
            case Stage():
                return self._stage(cast("Stage", component), name, scope, filled)
            case Switch():
                return self._switch(component, name, scope, filled)
            case Embed():
                return self._embed(component, name, scope, filled)
            case PlugWith():
                self._plug(component, name, scope)
            case Composer(fn=fn, memo=memo):
                self._emit_result(Op(Kind.COMPOSE, name, fn, memo=memo), scope)
                self._has_composer = True
            case Goto(when=when):
                scope.gotos.append((component, self._emit(Op(Kind.GOTO, name, when)), filled))
            case Done(when=when):
                scope.exits.append(self._emit(Op(Kind.GOTO, name, when)))
                scope.left.append(filled)
            case GotoPoint(name=point):
                if point in scope.points:
                    raise PipelineError(f"there are two goto_points named {name!r}")
                scope.points[point] = len(self._ops)
                # A goto further down jumps back with at least the fields that are filled here.
                return _in_all(
                    filled, *(there for goto, _, there in scope.gotos if goto.point == point)
                )
            case DeadEnd():
                self._emit(Op(Kind.DROP, name))
                return None
            case Tbd():
                self._emit(Op(Kind.PLAIN, name))
            case _:
                raise PipelineError(f"{component!r} is not a known kind of component")
        return filled

    def _emit(self, op: Op) -> Op:
        self._ops.append(op)
        return op

    def _emit_result(self, op: Op, scope: _Scope) -> None:
        """Emit an operation after whose result the item leaves the scope if ``until`` holds."""
        if scope.until is not None:
            op.until = scope.until
            scope.exits.append(op)
        self._emit(op)

    def _stage(self, stage: Stage[..., Any], name: str, scope: _Scope, filled: Filled) -> Filled:
        for field in (*stage.requires, *stage.provides):
            if self._fields is not None and field not in self._fields:
                raise PipelineError(
                    f"stage {name!r} names the field {field!r}, which the item does not have"
                    f"{did_you_mean(field, sorted(self._fields))}"
                )
        missing = [field for field in stage.requires if filled is not None and field not in filled]
        if missing:
            raise PipelineError(
                f"stage {name!r} requires {', '.join(missing)}, which no stage before it provides"
            )
        fn = stage.bound()
        _check_call(fn, name)
        self._emit_result(Op(kind_of(fn, name), name, fn, count=stage.count), scope)
        return None if filled is None else filled | frozenset(stage.provides)

    def _switch(self, switch: Switch, name: str, scope: _Scope, filled: Filled) -> Filled:
        op = self._emit(Op(Kind.SWITCH, name, switch.fn))
        ends: list[Op] = []
        outcomes: list[Filled] = []
        for key, branch in switch.branches.items():
            op.table[key] = len(self._ops)
            outcomes.append(self._sequence(branch, scope, filled))
            ends.append(self._emit(Op(Kind.JUMP)))
        for end in ends:
            end.target = len(self._ops)
        return _in_all(*outcomes)

    def _embed(self, embed: Embed, name: str, scope: _Scope, filled: Filled) -> Filled:
        pipeline, outer = embed.pipeline, scope.until
        until = _either(pipeline.until, outer)
        filled = self._scope(pipeline.components, _Scope(name + ".", until), filled)
        if outer is not None:  # an item that left the embedded part may have to leave this one too
            scope.exits.append(self._emit(Op(Kind.GOTO, name, outer)))
        return filled

    def _plug(self, plug: PlugWith, name: str, scope: _Scope) -> None:
        # The inner item has another type: the outer until, fields and points do not apply.
        fields, self._fields = self._fields, None
        self._emit(Op(Kind.PLUG, name, plug.plug))
        self._scope(plug.components, _Scope(name + "/"), None)
        self._emit_result(Op(Kind.UNPLUG, name, plug.unplug), scope)
        self._fields = fields


def _in_all(*ways: Filled) -> Filled:
    """The fields that are filled on every path."""
    known = [filled for filled in ways if filled is not None]
    return known[0].intersection(*known) if known else None


def _either(one: Condition | None, other: Condition | None) -> Condition | None:
    if one is None or other is None:
        return one or other
    return lambda item: one(item) or other(item)


def _check_call(fn: Fn, name: str) -> None:
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


def kind_of(fn: Fn, name: str) -> Kind:
    """How the function of a stage runs: ``PLAIN``, ``GENERATOR`` or ``CALL``.

    Raises:
        PipelineError: it is an async generator.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    for code in (fn, getattr(type(fn), "__call__", None)):  # noqa: B004 - inspected, not called
        if inspect.isasyncgenfunction(code):
            raise PipelineError(
                f"stage {name!r} is an async generator; only a plain generator may yield effects"
            )
        if inspect.isgeneratorfunction(code):
            return Kind.GENERATOR
    return Kind.CALL if call_mode(fn) is Mode.ASYNC else Kind.PLAIN
