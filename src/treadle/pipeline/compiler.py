"""What a component is, and the compiler that flattens the components of a pipeline into operations, once."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, TypeAlias

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
    mode: Mode = Mode.ASYNC  # in which a ``CALL`` runs

    def __repr__(self) -> str:
        return f"Op({self.kind.name}, {self.name!r})"  # options of a stage may be secrets


class Look(NamedTuple):
    """How a component is drawn: texts that are formatted with the name, the title with the component as well."""

    shape: str = '["{}"]'  # the node in a flowchart, or the title of a box
    title: str = "{0}"  # the line in an outline
    jump: Hashable = None  # the point to which items may jump from here
    is_point: bool = (
        False  # a target of jumps: points have separate names, and no item enters there
    )
    is_box: bool = False  # around the components inside, which have separate points
    continues: bool = True  # whether items go on to the next component


@fast_dataclass
class Component:
    """The base of all components.

    Args:
        name: what the component is called in errors, traces, diagrams and edits.
        anonymous: the name was generated; further components with this name are numbered.
    """

    name: str
    anonymous: bool = dataclasses.field(default=False, kw_only=True)

    look: ClassVar[Look] = Look()
    parts: ClassVar[Mapping[Any, Components]] = {}
    """The sequences of components inside by key, such as that of a branch."""

    def with_parts(self, change: Callable[[Components], Components], /) -> Component:
        """A copy in which each sequence of components inside is changed; if none changes, the same object."""
        parts = {key: change(part) for key, part in self.parts.items()}
        made: Any = self
        return self if parts == self.parts else dataclasses.replace(made, parts=parts)

    def add_to(self, _compiler: Compiler, _name: str, /) -> None:
        """Add the operations of this component, which has this full name."""
        raise PipelineError(f"{self!r} is not a known kind of component")


EXIT = ("the end",)
"""The point at the end of a scope."""


@dataclasses.dataclass(eq=False)
class Scope:
    """The scope of `done`, ``until`` and `goto`: a pipeline, or a component that runs others."""

    prefix: str
    until: Condition | None = None
    points: dict[Hashable, int] = dataclasses.field(default_factory=dict[Hashable, int])
    jumps: list[tuple[Hashable, Op, Filled]] = dataclasses.field(
        default_factory=list[tuple[Hashable, Op, Filled]]
    )
    """The operations that may go to a point, each with the fields that are filled there."""


class Compiler:
    """Compiles the components of one pipeline; raises `PipelineError` if they do not fit together."""

    def __init__(
        self,
        components: Sequence[Component],
        until: Condition | None,
        item: type | None,
        given: Collection[str],
    ) -> None:
        self.ops: list[Op] = []
        self.named: list[tuple[str, Component]] = []
        """All components, nested ones included, in the order in which they were written, each with its full name,
        such as ``embedded.stage``."""
        self.top: list[str] = []
        """The names of the components that are not nested."""
        self.entry_points: dict[str, int] = {}
        """The positions at which an item may enter, by the name of the component, which is not nested."""
        classes: tuple[type, ...] = getattr(item, "__mro__", ())
        names = frozenset(name for cls in classes for name in inspect.get_annotations(cls))
        self.fields: Filled = names or None
        """The fields that the type of the items declares; None if it declares none."""
        self.filled: Filled = frozenset(given)
        self.scope = Scope("")
        self._names: set[str] = set()
        self._depth = 0
        self.add_scope(components, "", until)
        self.ops.append(Op(Kind.END))

    def add_scope(
        self, components: Sequence[Component], prefix: str, until: Condition | None = None
    ) -> None:
        """Add components that have separate points and exits, and names with this prefix."""
        scope = Scope(prefix, until)
        outer, self.scope = self.scope, scope
        self.add(components)
        self.add_point(EXIT)
        self.scope = outer
        for point, op, _ in scope.jumps:
            if point not in scope.points:
                known = [name for name in scope.points if isinstance(name, str)]
                raise PipelineError(
                    f"{op.name!r} refers to goto_point({point!r}), which does not exist"
                    f"{did_you_mean(point, known)}"
                )
            op.target = scope.points[point]

    def add(self, components: Sequence[Component]) -> None:
        """Add components to the current scope."""
        self._depth += 1
        for component in components:
            component.add_to(self, self._name(component))
        self._depth -= 1

    def _name(self, component: Component) -> str:
        name = base = self.scope.prefix + component.name
        if not component.look.is_point:
            number = 1
            while component.anonymous and name in self._names:
                number += 1
                name = f"{base}_{number}"
            if name in self._names:
                raise PipelineError(
                    f"there are two components named {name!r}; rename one, as in stage(fn, name=...)"
                )
            self._names.add(name)
            if self._depth == 1:
                self.entry_points[name] = len(self.ops)
        if self._depth == 1:
            self.top.append(name)
        self.named.append((name, component))
        return name

    def add_jump(self, name: str, when: Condition, point: Hashable, filled: Filled = None) -> None:
        """Append a jump of the items that meet a condition to a point of the scope."""
        after = len(self.ops) + 1

        def choose(item: Any) -> int:
            return op.target if when(item) else after

        op = Op(Kind.JUMP, name, choose)
        self.ops.append(op)
        self.scope.jumps.append((point, op, filled))

    def add_point(self, point: Hashable) -> None:
        """Note the position of a point. A jump from further down has at least the fields that are filled here."""
        self.scope.points[point] = len(self.ops)
        ways = [self.filled, *(filled for name, _, filled in self.scope.jumps if name == point)]
        known = [filled for filled in ways if filled is not None]
        self.filled = known[0].intersection(*known) if known else None

    def add_result(self, op: Op) -> None:
        """Append an operation after which the item leaves the scope if ``until`` holds."""
        op.until = self.scope.until
        if op.until is not None:
            self.scope.jumps.append((EXIT, op, None))
        self.ops.append(op)


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


def classes_of(item: Any) -> tuple[type, ...]:
    """The classes to check items against with `isinstance`; empty if that is not possible."""
    origin: Any = typing.get_origin(item) or item
    if origin in {typing.Union, types.UnionType}:
        members = [classes_of(member) for member in typing.get_args(item)]
        return tuple(itertools.chain(*members)) if all(members) else ()
    if typing.is_typeddict(origin):
        return (dict,)
    if origin is None or origin is Any or getattr(origin, "_is_protocol", False):
        return ()
    if not isinstance(origin, type):
        raise PipelineError(f"item must be the type of the items, not {item!r}")
    return (origin,)
