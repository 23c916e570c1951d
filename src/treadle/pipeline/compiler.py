"""From components to a flat program, once; every mistake that can be seen by then is told."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, cast

from treadle.effects import Mode, call_mode
from treadle.errors import did_you_mean
from treadle.pipeline.components import (
    EMBEDDED,
    PLUGGED,
    Component,
    Composer,
    DeadEnd,
    Done,
    Embed,
    Fn,
    Goto,
    GotoPoint,
    Names,
    PlugWith,
    Stage,
    Switch,
    Tbd,
    parameters_of,
)
from treadle.pipeline.errors import PipelineError

Filled: TypeAlias = frozenset[str] | None
"""The fields that are filled at some place; None where nobody knows, or nothing gets there."""


Review: TypeAlias = Callable[[str, Any, Any], Any]
"""Called with a stage's name, the item before it and the item after it; returns the item that goes on."""


class Reviewer(NamedTuple):
    """The review of a pipeline, and the functions whose results are not reviewed."""

    review: Review
    trusted: tuple[Fn, ...]


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


def same(item: Any) -> Any:
    """Leave an item as it is."""
    return item


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
        review: checks what the operation produced; see `Review`. None where nothing is checked.
    """

    kind: Kind
    name: str = ""
    fn: Fn = same
    target: int = -1
    until: Fn | None = None
    table: dict[Any, int] = dataclasses.field(default_factory=dict[Any, int])
    count: int | None = None
    memo: Any = None
    review: Review | None = None


def fields_of(item: type | None) -> frozenset[str] | None:
    """The names of the fields of a type of items; None where it does not tell."""
    if item is None:
        return None
    if dataclasses.is_dataclass(item):
        return frozenset(field.name for field in dataclasses.fields(item))
    classes: tuple[type, ...] = getattr(cast("Any", item), "__mro__", ())
    return frozenset(name for cls in classes for name in inspect.get_annotations(cls)) or None


def classes_of(item: Any) -> tuple[type, ...]:
    """The classes that items of a type are instances of; none where that cannot be told.

    Raises:
        PipelineError: it is no type at all.
    """
    made_of: Any = typing.get_origin(item) or item
    if made_of in {typing.Union, types.UnionType}:
        members = [classes_of(member) for member in typing.get_args(item)]
        return tuple(cls for classes in members for cls in classes) if all(members) else ()
    if typing.is_typeddict(made_of):
        return (dict,)
    if made_of is None or made_of is Any or getattr(made_of, "_is_protocol", False):
        return ()
    if not isinstance(made_of, type):
        raise PipelineError(f"item is the type of the items, not {item!r}")
    return (made_of,)


class _Scope:
    """A pipeline, an embedded one or a plugged part: what `done`, ``until`` and `goto` reach."""

    def __init__(self, prefix: str, until: Fn | None, reviewers: tuple[Reviewer, ...] = ()) -> None:
        self.prefix = prefix
        self.until = until
        self.reviewers = reviewers
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
        self._names = Names()

    def compile(
        self,
        components: Sequence[Component],
        *,
        until: Fn | None,
        given: Collection[str],
        reviewers: tuple[Reviewer, ...] = (),
    ) -> list[Op]:
        """Make the program of a whole pipeline."""
        self._whole(components, _Scope("", until, reviewers), frozenset(given))
        return self.ops

    def _whole(self, components: Sequence[Component], scope: _Scope, filled: Filled) -> Filled:
        filled = self._sequence(components, scope, filled)
        for op in scope.exits:
            op.target = len(self.ops)
        for name, point, op in scope.gotos:
            if point not in scope.points:
                raise PipelineError(
                    f"{name!r} has nowhere to go: there is no goto_point({point!r})"
                    f"{did_you_mean(point, scope.points)}"
                )
            op.target = scope.points[point]
        return filled

    def _sequence(self, components: Sequence[Component], scope: _Scope, filled: Filled) -> Filled:
        for component in components:
            if isinstance(component, GotoPoint):
                self._point(component, scope)
            else:
                name = self._names.take(component, scope.prefix)
                filled = self._component(component, name, scope, filled)
        return filled

    def _component(self, component: Component, name: str, scope: _Scope, filled: Filled) -> Filled:
        match component:
            case Stage():
                return self._stage(component, name, scope, filled)
            case Switch():
                return self._switch(component, name, scope, filled)
            case Embed():
                return self._embed(component, name, scope, filled)
            case PlugWith():
                self._plug(component, name, scope)
            case Composer(fn=fn, memo=memo):
                self._leaving(Op(Kind.COMPOSE, name, fn, memo=memo), scope, fn)
            case Goto(when=when, point=point):
                scope.gotos.append((name, point, self._emit(Op(Kind.GOTO, name, when))))
            case Done(when=when):
                scope.exits.append(self._emit(Op(Kind.GOTO, name, when)))
            case DeadEnd():
                self._emit(Op(Kind.DROP, name))
                return None
            case Tbd():
                self._emit(Op(Kind.PLAIN, name, same))
            case _:
                raise PipelineError(f"{component!r} is no component that a pipeline knows")
        return filled

    def _point(self, made: GotoPoint, scope: _Scope) -> None:
        if made.name in scope.points:
            raise PipelineError(f"there are two points named {scope.prefix + made.name!r}")
        scope.points[made.name] = len(self.ops)

    def _emit(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def _leaving(self, op: Op, scope: _Scope, fn: Fn) -> None:
        """Append an operation after whose result the item may leave the pipeline.

        Args:
            op: the operation.
            scope: the pipeline it is in.
            fn: the function as the user wrote it; ``op.fn`` may have its options bound.
        """
        op.review = _review_of(fn, scope.reviewers)
        if scope.until is not None:
            op.until = scope.until
            scope.exits.append(op)
        self._emit(op)

    def _stage(self, made: Stage, name: str, scope: _Scope, filled: Filled) -> Filled:
        for field in (*made.requires, *made.provides):
            if self._fields is not None and field not in self._fields:
                raise PipelineError(
                    f"stage {name!r} names the field {field!r}, which the item does not have"
                    f"{did_you_mean(field, sorted(self._fields))}"
                )
        missing = [field for field in made.requires if filled is not None and field not in filled]
        if missing:
            raise PipelineError(
                f"stage {name!r} requires {', '.join(missing)}, which no stage before it provides"
            )
        fn = made.bound()
        _check_call(fn, name)
        self._leaving(Op(_kind_of(fn, name), name, fn, count=made.count), scope, made.fn)
        return None if filled is None else filled | frozenset(made.provides)

    def _switch(self, made: Switch, name: str, scope: _Scope, filled: Filled) -> Filled:
        op = self._emit(Op(Kind.SWITCH, name, made.fn))
        ends: list[Op] = []
        outcomes: list[frozenset[str]] = []
        for key, branch in made.branches.items():
            op.table[key] = len(self.ops)
            outcome = self._sequence(branch, scope, filled)
            if outcome is not None:
                outcomes.append(outcome)
            ends.append(self._emit(Op(Kind.JUMP)))
        for end in ends:
            end.target = len(self.ops)
        return functools.reduce(lambda one, other: one & other, outcomes) if outcomes else None

    def _embed(self, made: Embed, name: str, scope: _Scope, filled: Filled) -> Filled:
        inner, outer = made.pipeline.until, scope.until
        until = _either(inner, outer) if inner and outer else inner or outer
        reviewers = (*made.pipeline.reviewers, *scope.reviewers)
        inside = _Scope(name + EMBEDDED, until, reviewers)
        filled = self._whole(made.pipeline.components, inside, filled)
        if outer is not None:  # which of the two it was is told apart here
            scope.exits.append(self._emit(Op(Kind.GOTO, name, outer)))
        return filled

    def _plug(self, made: PlugWith, name: str, scope: _Scope) -> None:
        # The inner item has another type: the outer until, review, fields and points do not apply.
        fields, self._fields = self._fields, None
        self._emit(Op(Kind.PLUG, name, made.plug))
        self._whole(made.components, _Scope(name + PLUGGED, None), None)
        self._leaving(Op(Kind.UNPLUG, name, made.unplug), scope, made.unplug)
        self._fields = fields


def _either(one: Fn, other: Fn) -> Fn:
    def either(item: Any) -> Any:
        return one(item) or other(item)

    return either


def _review_of(fn: Fn, reviewers: tuple[Reviewer, ...]) -> Review | None:
    """Combine the reviews that a function is not trusted by, those of the inner pipeline first."""
    reviews = [reviewer.review for reviewer in reviewers if fn not in reviewer.trusted]

    def review(name: str, before: Any, after: Any) -> Any:
        for one in reviews:
            after = one(name, before, after)
        return after

    return review if len(reviews) > 1 else next(iter(reviews), None)


def _check_call(fn: Fn, name: str) -> None:
    """See that a stage can be called with the item alone."""
    parameters = parameters_of(fn)
    if parameters is None:
        return
    try:
        inspect.Signature(parameters).bind(None)
    except TypeError as error:
        raise PipelineError(
            f"stage {name!r} cannot be called with the item alone: {error}"
        ) from error


def _kind_of(fn: Callable[..., Any], name: str) -> Kind:
    while isinstance(fn, functools.partial):
        fn = fn.func
    for code in (fn, getattr(type(fn), "__call__", None)):  # noqa: B004 - for its code
        if inspect.isasyncgenfunction(code):
            raise PipelineError(
                f"stage {name!r} is an async generator; effects are yielded by a plain one"
            )
        if inspect.isgeneratorfunction(code):
            return Kind.STEPS
    return Kind.ASYNC if call_mode(fn) is Mode.ASYNC else Kind.PLAIN
