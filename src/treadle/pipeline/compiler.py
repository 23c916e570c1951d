"""From components to a flat program, once, with every mistake that can be seen at this time told."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import Any

from treadle.pipeline.components import (
    Component,
    Composer,
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
)
from treadle.pipeline.effects import Mode, call_mode
from treadle.pipeline.errors import PipelineError, did_you_mean


class Kind(IntEnum):
    """What an operation does with the item."""

    PLAIN = 0
    STEPS = 1
    ASYNC = 2
    SWITCH = 3
    JUMP = 4
    GOTO = 5
    DROP = 6
    COMPOSE = 7
    PLUG = 8
    UNPLUG = 9


@dataclasses.dataclass(slots=True)
class Op:
    """One operation of the flat program.

    Args:
        kind: what it does.
        name: the component it was made of; empty for what nobody wrote.
        fn: the function it calls.
        target: where a jump goes; for a stage, where the item goes once ``until`` holds.
        until: leave when this holds of the result.
        table: the entry of each branch of a switch.
        count: how many items of a stream may be here at once.
        memo: the first memo of a composer.
    """

    kind: Kind
    name: str = ""
    fn: Fn = staticmethod(lambda item: item)  # noqa: RUF009 - a constant
    target: int = -1
    until: Fn | None = None
    table: dict[Any, int] = dataclasses.field(default_factory=dict[Any, int])
    count: int | None = None
    memo: Any = None


def fields_of(item: type | None) -> frozenset[str] | None:
    """The names of the fields of a type of items; None where it does not tell."""
    if item is None:
        return None
    if dataclasses.is_dataclass(item):
        return frozenset(field.name for field in dataclasses.fields(item))
    return frozenset(inspect.get_annotations(item)) or None


class _Scope:
    """A pipeline, an embedded one or a plugged part: what `done`, ``until`` and `goto` reach."""

    def __init__(self, prefix: str, until: Fn | None) -> None:
        self.prefix = prefix
        self.until = until
        self.exits: list[Op] = []
        self.points: dict[str, int] = {}
        self.gotos: list[tuple[str, str, Op]] = []


class Compiler:
    """Builds the program of one pipeline.

    Args:
        item: the type of the items, to check the names of fields; None checks none.
    """

    def __init__(self, item: type | None) -> None:
        self.ops: list[Op] = []
        self._fields = fields_of(item)
        self._names: set[str] = set()

    def compile(
        self,
        components: Sequence[Component],
        *,
        until: Fn | None,
        given: Collection[str],
        prefix: str = "",
    ) -> frozenset[str]:
        """Append the operations of a whole pipeline.

        Returns:
            The fields that are filled at its end.
        """
        with_scope = _Scope(prefix, until)
        filled = self._sequence(components, with_scope, frozenset(given))
        self._close(with_scope)
        return filled

    def _close(self, scope: _Scope) -> None:
        for op in scope.exits:
            op.target = len(self.ops)
        for name, point, op in scope.gotos:
            if point not in scope.points:
                raise PipelineError(
                    f"{name!r} has nowhere to go: there is no goto_point({point!r})"
                    f"{did_you_mean(point, scope.points)}"
                )
            op.target = scope.points[point]

    def _sequence(
        self, components: Sequence[Component], scope: _Scope, filled: frozenset[str]
    ) -> frozenset[str]:
        for component in components:
            filled = self._component(component, scope, filled)
        return filled

    def _component(
        self, component: Component, scope: _Scope, filled: frozenset[str]
    ) -> frozenset[str]:
        name = self._named(component, scope)
        match component:
            case Stage():
                return self._stage(component, name, scope, filled)
            case Switch():
                return self._switch(component, name, scope, filled)
            case Composer(fn=fn, memo=memo):
                self._leaving(Op(Kind.COMPOSE, name, fn, memo=memo), scope)
            case PlugWith():
                self._plug(component, name, scope)
            case Embed(pipeline=inner):
                return self.compile(
                    inner.components, until=inner.until, given=filled, prefix=f"{name}."
                )
            case Goto(when=when, point=point):
                op = self._emit(Op(Kind.GOTO, name, when))
                scope.gotos.append((name, point, op))
            case GotoPoint(name=point):
                if point in scope.points:
                    raise PipelineError(f"there are two points named {scope.prefix + point!r}")
                scope.points[point] = len(self.ops)
            case Done(when=when):
                scope.exits.append(self._emit(Op(Kind.GOTO, name, when)))
            case DeadEnd():
                self._emit(Op(Kind.DROP, name))
            case Tbd():
                self._emit(Op(Kind.PLAIN, name, _pass))
            case _:
                raise PipelineError(f"{component!r} is no component that a pipeline knows")
        return filled

    def _named(self, component: Component, scope: _Scope) -> str:
        name = scope.prefix + component.name
        if isinstance(component, GotoPoint):
            return name
        if component.anonymous:
            number, base = 1, name
            while name in self._names:
                number += 1
                name = f"{base}_{number}"
        elif name in self._names:
            raise PipelineError(
                f"there are two components named {name!r}; give one another name, "
                f"as in stage(fn, name=...)"
            )
        self._names.add(name)
        return name

    def _emit(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def _leaving(self, op: Op, scope: _Scope) -> None:
        """Append an operation after whose result the item may leave the pipeline."""
        if scope.until is not None:
            op.until = scope.until
            scope.exits.append(op)
        self._emit(op)

    def _stage(
        self, made: Stage, name: str, scope: _Scope, filled: frozenset[str]
    ) -> frozenset[str]:
        for field in (*made.requires, *made.provides):
            if self._fields is not None and field not in self._fields:
                raise PipelineError(
                    f"stage {name!r} names the field {field!r}, which the item does not have"
                    f"{did_you_mean(field, sorted(self._fields))}"
                )
        missing = [field for field in made.requires if field not in filled]
        if missing and not scope.prefix.endswith(PLUGGED):
            raise PipelineError(
                f"stage {name!r} requires {', '.join(missing)}, which no stage before it provides"
            )
        fn = made.bound()
        self._leaving(Op(_kind_of(fn), name, fn, count=made.count), scope)
        return filled | frozenset(made.provides)

    def _switch(
        self, made: Switch, name: str, scope: _Scope, filled: frozenset[str]
    ) -> frozenset[str]:
        op = self._emit(Op(Kind.SWITCH, name, made.fn))
        ends: list[Op] = []
        outcomes: list[frozenset[str]] = []
        for key, branch in made.branches.items():
            op.table[key] = len(self.ops)
            outcomes.append(self._sequence(branch, scope, filled))
            ends.append(self._emit(Op(Kind.JUMP)))
        for end in ends:
            end.target = len(self.ops)
        return functools.reduce(frozenset.intersection, outcomes)

    def _plug(self, made: PlugWith, name: str, scope: _Scope) -> None:
        # The inner item is another kind of thing: the outer until, fields and points do not apply.
        inner = _Scope(f"{name}{PLUGGED}", None)
        fields, self._fields = self._fields, None
        self._emit(Op(Kind.PLUG, name, made.plug))
        self._sequence(made.components, inner, frozenset())
        self._close(inner)
        self._leaving(Op(Kind.UNPLUG, name, made.unplug), scope)
        self._fields = fields


PLUGGED = "/"
"""What follows the name of a plug in the names of the components it holds."""


def _pass(item: Any) -> Any:
    return item


def _kind_of(fn: Callable[..., Any]) -> Kind:
    if call_mode(fn) is Mode.ASYNC:
        return Kind.ASYNC
    target = fn
    while isinstance(target, functools.partial):
        target = target.func
    makes_steps = any(
        inspect.isgeneratorfunction(candidate)
        for candidate in (target, getattr(target, "__call__", None))  # noqa: B004 - its code
    )
    return Kind.STEPS if makes_steps else Kind.PLAIN
