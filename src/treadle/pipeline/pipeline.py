"""`Pipeline`: components, checked and compiled once, and the ways to run an item through them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Generic, Never, Self, cast

from treadle import effects
from treadle.effects import Steps
from treadle.errors import InitSignature, did_you_mean
from treadle.pipeline.compiler import Compiler, Component, Components, Kind, classes_of
from treadle.pipeline.components import (
    ComponentLike,
    Stage,
    check_plain,
    components_of,
    embedded,
    stage,
)
from treadle.pipeline.diagram import mermaid, text
from treadle.pipeline.errors import PipelineError
from treadle.pipeline.execute import Progress, execute
from treadle.pipeline.observe import StageObserver, observed
from treadle.type_vars import ItemT


class Pipeline(Generic[ItemT]):
    """A checked, immutable sequence of components; safe to share between threads and tasks.

    Args:
        *components: stages, other components, bare callables, or lists of these, in order.
        until: a condition; an item that meets it leaves the pipeline after the current stage.
        item: the type of the items: what stages must return, and whose fields ``requires`` and
            ``provides`` may name. None accepts anything.
        given: the fields of the item that are filled when it enters.
        on_stage: observers of every stage's start, stop and exception.

    Raises:
        PipelineError: an option is unknown, two components or points have the same name, a goto has no
            point, no earlier stage provides what a stage requires, or a field is unknown. The order of the
            components is never changed.
    """

    _last_kind: ClassVar[Kind] = Kind.END
    __signature__ = InitSignature()

    def __init__(
        self,
        *components: ComponentLike,
        until: Callable[[ItemT], object] | None = None,
        item: type[ItemT] | None = None,
        given: Collection[str] = (),
        on_stage: Collection[StageObserver] = (),
        **_: Never,
    ) -> None:
        for name in _:
            known = "until", "item", "given", "on_stage"
            raise PipelineError(f"Pipeline: there is no option {name!r}{did_you_mean(name, known)}")
        self.components: Components = components_of(components)
        if until is not None:
            check_plain(until, "until")
        for observer in on_stage:
            check_plain(observer, "an observer in on_stage")
        given = (given,) if isinstance(given, str) else tuple(given)
        self.until = until
        self._observers = tuple(on_stage)
        self._options: dict[str, Any] = {"item": item, "given": given}
        self._classes = classes_of(item)
        self._compiled = Compiler(self.components, until, item, given)
        for op in self._compiled.ops:
            if op.kind > self._last_kind:
                raise PipelineError(
                    f"{op.name!r} drops, makes or converts items, which takes a StreamPipeline of "
                    f"treadle.pipeline.streams"
                )
        self._ops = [observed(op, self._observers) for op in self._compiled.ops]
        self.provides = {
            name: frozenset(one.provides)
            for name, one in self._compiled.named
            if isinstance(one, Stage)
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the components at the top level, in order."""
        return tuple(self._compiled.top)

    @property
    def async_stages(self) -> tuple[str, ...]:
        """The full names of the stages that are an ``async def``, in order."""
        return tuple(op.name for op in self._compiled.ops if op.kind is Kind.CALL)

    def has_entry(self, name: str) -> bool:
        """Whether an item may enter at a component, as ``start`` of `steps`."""
        return name in self._compiled.entry_points

    def steps(
        self, item: ItemT, progress: Progress | None = None, *, start: str | None = None
    ) -> Steps[ItemT]:
        """The generator of effects that runs one item through the pipeline, for a driver.

        Args:
            item: the item.
            progress: updated during execution.
            start: the name of the component that the item enters first; None means the first one. It
                must be at the top level.

        Returns:
            The item that the pipeline returns.

        Raises:
            StageError: a stage raised an exception.
            PipelineError: ``start`` is not a valid entry point.
        """
        position = 0 if start is None else self._position_of(start)
        return execute(self._ops, self._classes, item, progress or Progress(), position)

    def _position_of(self, start: str) -> int:
        entry_points = self._compiled.entry_points
        if start not in entry_points:
            known = ", ".join(entry_points) or "none"
            raise PipelineError(f"an item cannot start at {start!r}; entry points: {known}")
        return entry_points[start]

    async def run(self, item: ItemT) -> ItemT:
        """Run one item through the pipeline on the running event loop; see `steps`."""
        return await effects.drive(self.steps(item))

    def run_sync(self, item: ItemT) -> ItemT:
        """Run one item in this thread; async stages run on an event loop in a background thread."""
        return effects.drive_sync(self.steps(item))

    def insert_before(self, name: str, *components: ComponentLike) -> Self:
        """A new pipeline with components before a named one, which may be nested.

        Args:
            name: its full name, as in traces and errors; or its short name, if it is unique.
            *components: the components to insert.

        Raises:
            PipelineError: there is no such component, or the new pipeline is invalid.
        """
        return self._edited([name], lambda old: (*components_of(components), old))

    def insert_after(self, name: str, *components: ComponentLike) -> Self:
        """A new pipeline with components after a named one; see `insert_before`."""
        return self._edited([name], lambda old: (old, *components_of(components)))

    def replace(self, name: str, *components: ComponentLike) -> Self:
        """A new pipeline with other components in place of a named one; see `insert_before`.

        A stage in place of a stage takes over what it requires and provides, unless it declares that itself.
        """
        return self._edited([name], lambda old: _in_place_of(old, components_of(components)))

    def without(self, *names: str) -> Self:
        """A new pipeline without the named components; see `insert_before`."""
        return self._edited(names, lambda _: ())

    def _edited(self, names: Sequence[str], edit: Callable[[Component], Components]) -> Self:
        named = self._compiled.named
        chosen = {_index_of(name, named) for name in names}
        indexes = itertools.count()

        def copied(components: Components) -> Components:
            made: list[Component] = []
            for component in components:
                index = next(indexes)  # counted before the nested ones, as in `named`
                new = component.with_parts(copied)
                made += edit(new) if index in chosen else (new,)
            return tuple(made)

        return self.with_components(*copied(self.components))

    def with_components(self, *components: ComponentLike) -> Self:
        """A new pipeline of other components, with the same options."""
        return type(self)(*components, until=self.until, on_stage=self._observers, **self._options)

    def diagram(self, kind: str = "mermaid") -> str:
        """Draw the pipeline.

        Args:
            kind: ``mermaid`` for a flowchart, ``text`` for an indented outline.
        """
        if kind not in {"mermaid", "text"}:
            raise PipelineError(f"kind must be 'mermaid' or 'text', not {kind!r}")
        return mermaid(self.components) if kind == "mermaid" else text(self.components)


def embed(pipeline: Pipeline[Any], name: str) -> Component:
    """Put the components of another pipeline here; their names start with ``name.``.

    Args:
        pipeline: the pipeline to embed. `done` and ``until`` of it end the embedded part only.
            The ``until`` of the outer pipeline applies inside it too, and ends both.
        name: the namespace.

    Raises:
        PipelineError: it is not a pipeline.
    """
    if not isinstance(pipeline, Pipeline):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PipelineError(f"embed({name!r}) takes a Pipeline, not {type(pipeline).__name__}")
    return embedded(name, pipeline.components, pipeline.until)


def _in_place_of(old: Component, new: tuple[Component, ...]) -> tuple[Component, ...]:
    """The components that replace one; a stage takes over what the replaced stage requires and provides."""
    if not isinstance(old, Stage) or len(new) != 1 or not isinstance(new[0], Stage):
        return new
    made, replaced = cast("Stage[..., Any]", new[0]), cast("Stage[..., Any]", old)
    return (stage(made, replaces=replaced),)


def _index_of(name: str, named: Sequence[tuple[str, Component]]) -> int:
    """The index of the component with a full name, else with a short name; points come last."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PipelineError(f"a component is given by its name, a text, not {type(name).__name__}")
    matches: dict[tuple[bool, bool], list[int]] = {}
    for index, (full_name, component) in enumerate(named):
        if name in {full_name, component.name}:
            rank = component.look.is_point, full_name != name
            matches.setdefault(rank, []).append(index)
    if not matches:
        known = [full_name for full_name, _ in named]
        raise PipelineError(f"there is no component {name!r}{did_you_mean(name, known)}")
    first, *others = matches[min(matches)]
    if others:
        several = ", ".join(repr(named[index][0]) for index in (first, *others))
        raise PipelineError(f"there are several components {name!r}: {several}")
    return first
