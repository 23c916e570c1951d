"""What a component is, and the compiler that flattens the components of a pipeline into operations, once."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

from treadle.effects import Mode, call_mode, generator_mode
from treadle.errors import did_you_mean
from treadle.fast_dataclass import fast_dataclass
from treadle.pipeline.errors import PipelineError

Condition: TypeAlias = Callable[[Any], object]
Components: TypeAlias = "tuple[Component, ...]"
Filled: TypeAlias = frozenset[str] | None
"""The fields that are filled at a position; None if they are unknown or it is unreachable."""


class Kind(IntEnum):
    """The kind of an operation. The first three run a stage; at those after ``JUMP``, an item leaves `execute`."""

    PLAIN = 0
    GENERATOR = 1
    CALL = 2
    JUMP = 3
    END = 4
    DROP = 5
    COMPOSE = 6
    PLUG = 7
    UNPLUG = 8


def same(item: Any) -> Any:
    """Return the item unchanged."""
    return item


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Op:
    """One operation: the function of a jump returns the next position.

    After a stage whose result meets ``until``, the item goes to ``target``.
    """

    kind: Kind
    name: str = ""
    fn: Callable[..., Any] = same
    component: Any = None
    target: int = -1
    until: Condition | None = None

    def __repr__(self) -> str:
        return f"Op({self.kind.name}, {self.name!r})"  # options of a stage may be secrets


@fast_dataclass
class Component:
    """The base of all components.

    Args:
        name: what the component is called in errors, traces, diagrams and edits.
        anonymous: the name was generated; further components with this name are numbered.
    """

    name: str
    anonymous: bool = dataclasses.field(default=False, kw_only=True)

    shape: ClassVar[str] = '["{}"]'
    """The node in a flowchart, or the title of a box, formatted with the name."""
    title: ClassVar[str] = "{0}"
    """The line in an outline, formatted with the name and the component."""
    continues: ClassVar[bool] = True
    """Whether items go on to the next component."""
    is_point: ClassVar[bool] = False
    """Whether it is a target of jumps: points have a separate namespace, and no item enters there."""
    is_for_streams: ClassVar[bool] = False
    """Whether it drops, makes or converts items, so that only a `StreamPipeline` runs it."""

    def nested(self) -> list[Components]:
        """The sequences of components inside this one."""
        return []

    def with_nested(self, _nested: Sequence[Components], /) -> Component:
        """A copy with other sequences of components inside; see `nested`."""
        return self

    def add_to(self, _compiler: Compiler, _name: str, /) -> None:
        """Add the operations of this component, which has this full name."""
        raise PipelineError(f"{self!r} is not a known kind of component")


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
    gotos: list[tuple[str, Op, Filled]] = dataclasses.field(
        default_factory=list[tuple[str, Op, Filled]]
    )
    left: list[Filled] = dataclasses.field(default_factory=list[Filled])
    """The fields that are filled at each `done`."""


class Compiler:
    """Compiles the components of one pipeline; raises `PipelineError` if they do not fit together."""

    def __init__(
        self,
        components: Sequence[Component],
        until: Condition | None,
        item: type | None,
        given: Collection[str],
        *,
        for_streams: bool,
    ) -> None:
        self.ops: list[Op] = []
        self.named: list[Named] = []
        """All components, nested ones included, in the order in which they were written."""
        self.entry_points: dict[str, int] = {}
        """The positions at which an item may enter, by the name of the component, which is not nested."""
        self.fields = fields_of(item)
        self.filled: Filled = frozenset(given)
        self.scope = Scope("", until)
        self._for_streams = for_streams
        self._names: set[str] = set()
        self._depth = 0
        self.add_scope(components, self.scope)
        self.emit(Op(Kind.END))

    def add_scope(self, components: Sequence[Component], scope: Scope) -> None:
        """Add components that have separate points and exits."""
        outer, self.scope = self.scope, scope
        self.add(components)
        self.scope = outer
        for op in scope.exits:
            op.target = len(self.ops)
        for point, op, _ in scope.gotos:
            if point not in scope.points:
                raise PipelineError(
                    f"{op.name!r} refers to goto_point({point!r}), which does not exist"
                    f"{did_you_mean(point, scope.points)}"
                )
            op.target = scope.points[point]
        self.filled = filled_in_all(self.filled, *scope.left)

    def add(self, components: Sequence[Component]) -> None:
        """Add components to the current scope."""
        self._depth += 1
        for component in components:
            name = self._name(component)
            if component.is_for_streams and not self._for_streams:
                raise PipelineError(
                    f"{name!r} drops, makes or converts items, which takes a StreamPipeline of "
                    f"treadle.pipeline.streams"
                )
            component.add_to(self, name)
        self._depth -= 1

    def _name(self, component: Component) -> str:
        name = base = self.scope.prefix + component.name
        is_top = self._depth == 1
        if not component.is_point:
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

    def emit(self, op: Op) -> Op:
        """Append an operation."""
        self.ops.append(op)
        return op

    def emit_jump(self, name: str, when: Condition) -> Op:
        """Append a jump to ``target`` that depends on a condition."""
        after = len(self.ops) + 1

        def choose(item: Any) -> int:
            return op.target if when(item) else after

        op = self.emit(Op(Kind.JUMP, name, choose))
        return op

    def emit_result(self, op: Op) -> None:
        """Append an operation after which the item leaves the scope if ``until`` holds."""
        if self.scope.until is not None:
            op.until = self.scope.until
            self.scope.exits.append(op)
        self.emit(op)


def filled_in_all(*ways: Filled) -> Filled:
    """The fields that are filled on every path."""
    known = [filled for filled in ways if filled is not None]
    return known[0].intersection(*known) if known else None


def kind_of(fn: Callable[..., Any], name: str) -> Kind:
    """How the function of a stage runs; raises `PipelineError` for an async generator."""
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
    """The classes to check items against with `isinstance`; empty if that is not possible."""
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
