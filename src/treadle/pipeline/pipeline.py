"""`Pipeline`: components, checked and compiled once, and the ways to run items through them."""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, Self

from treadle import effects
from treadle.effects import Steps
from treadle.errors import InitSignature, did_you_mean
from treadle.pipeline.compiler import Compiler, Kind, classes_of
from treadle.pipeline.components import (
    Component,
    ComponentLike,
    Stage,
    check_plain,
    components_of,
    stage,
)
from treadle.pipeline.diagram import mermaid, text
from treadle.pipeline.editing import edited
from treadle.pipeline.errors import NotOneItemError, PipelineError
from treadle.pipeline.execute import Execution, Progress, execute
from treadle.pipeline.observe import StageObserver, observed
from treadle.type_vars import ItemT

if TYPE_CHECKING:
    from treadle.pipeline.streaming import Stream

_OPTIONS = ("until", "item", "given", "on_stage")


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

    if not TYPE_CHECKING:  # type checkers know the options

        def __new__(cls, *_: Any, **options: Any) -> Self:
            """Check the names; the error of ``__init__`` has no suggestion."""
            given = options if cls.__init__ is Pipeline.__init__ else ()
            for name in given:
                if name not in _OPTIONS:
                    raise PipelineError(
                        f"Pipeline: there is no option {name!r}{did_you_mean(name, _OPTIONS)}"
                    )
            return object.__new__(cls)

        __signature__ = InitSignature()

    def __init__(
        self,
        *components: ComponentLike,
        until: Callable[[ItemT], object] | None = None,
        item: type[ItemT] | None = None,
        given: Collection[str] = (),
        on_stage: Collection[StageObserver] = (),
    ) -> None:
        self.components: tuple[Component, ...] = components_of(components)
        if until is not None:
            check_plain(until, "until")
        for observer in on_stage:
            check_plain(observer, "an observer in on_stage")
        self.until = until
        self._options: dict[str, Any] = {
            "until": until,
            "item": item,
            "given": (given,) if isinstance(given, str) else tuple(given),
            "on_stage": tuple(on_stage),
        }
        self._on_stage = tuple(on_stage)
        self._classes = classes_of(item)
        self._program = Compiler(item).compile(
            self.components,
            until=until,
            given=self._options["given"],
        )
        self.provides = {
            name: frozenset(one.provides)
            for name, one, _ in self._program.named
            if isinstance(one, Stage)
        }
        ops = self._program.ops
        self._ops = observed(ops, self._on_stage) if self._on_stage else ops

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the components at the top level, in order."""
        return tuple(one.name for one in self._program.named if one.is_top)

    def stages_of_kind(self, kind: Kind) -> tuple[str, ...]:
        """The full names of the stages that run in some way, such as those that are called as an effect."""
        return tuple(op.name for op in self._program.ops if op.kind is kind)

    def has_entry(self, name: str) -> bool:
        """Whether an item may enter at a component, as ``start`` of `steps`."""
        return name in self._program.entry_points

    def steps(
        self, item: ItemT, progress: Progress | None = None, *, start: str | None = None
    ) -> Steps[ItemT]:
        """The generator of effects that runs one item through the pipeline, for a driver.

        Args:
            item: the item.
            progress: updated during execution.
            start: the name of the component that the item enters first; None means the first one. It
                must be at the top level, and no composer may come before it.

        Returns:
            The one item that the pipeline returns.

        Raises:
            StageError: a stage raised an exception.
            NotOneItemError: the item was dropped, or became several.
            PipelineError: ``start`` is not a valid entry point.
        """
        out = yield from self.steps_all(item, progress, start=start)
        if len(out) != 1:
            raise NotOneItemError(
                f"the pipeline returned {len(out)} items for one; run_all returns them all"
            )
        return out[0]

    def _entry_point(self, start: str) -> int:
        entry_points = self._program.entry_points
        if start not in entry_points:
            known = ", ".join(entry_points) or "none"
            raise PipelineError(f"an item cannot start at {start!r}; entry points: {known}")
        return entry_points[start]

    def steps_all(
        self, item: ItemT, progress: Progress | None = None, *, start: str | None = None
    ) -> Steps[list[ItemT]]:
        """As `steps`, for pipelines that drop items or make several of one."""
        position = 0 if start is None else self._entry_point(start)
        run = Execution(self._ops, self._classes)
        return execute(run, item, progress or Progress(), position)

    async def run(self, item: ItemT) -> ItemT:
        """Run one item through the pipeline on the running event loop; see `steps`."""
        return await effects.drive(self.steps(item))

    def run_sync(self, item: ItemT) -> ItemT:
        """As `run`, in this thread; async stages run on an event loop in a background thread."""
        return effects.drive_sync(self.steps(item))

    async def run_all(self, item: ItemT) -> list[ItemT]:
        """Run one item through the pipeline; return all results: none, one or many."""
        return await effects.drive(self.steps_all(item))

    def run_all_sync(self, item: ItemT) -> list[ItemT]:
        """As `run_all`, in this thread."""
        return effects.drive_sync(self.steps_all(item))

    def stream(
        self,
        items: Iterable[ItemT] | AsyncIterable[ItemT],
        *,
        concurrency: int = 1,
        ordered: bool = True,
    ) -> AbstractAsyncContextManager[AsyncIterator[ItemT]]:
        """Run many items: ``async with p.stream(items) as out: async for item in out``.

        The pipeline draws an item only when fewer than ``concurrency`` items are in progress or
        unread. A slow reader therefore slows down the source, and results do not accumulate.

        Args:
            items: the items; drawn one by one.
            concurrency: the maximum number of items in progress or unread.
            ordered: yield results in the order of the items, else in the order of completion.

        Returns:
            A context manager of the iterator. Leaving it cancels the items in progress. A failing
            item raises its `StageError` in place of its result.
        """
        return self._stream(concurrency).read(items, concurrency, ordered)

    def stream_sync(
        self, items: Iterable[ItemT], *, concurrency: int = 1, ordered: bool = True
    ) -> Iterator[ItemT]:
        """As `stream`, without an event loop: a generator that works while it is read."""
        return self._stream(concurrency).read_sync(items, concurrency, ordered)

    def _stream(self, concurrency: int) -> Stream:
        if concurrency < 1:
            raise PipelineError(f"concurrency must be at least 1, not {concurrency}")
        from treadle.pipeline.streaming import Stream  # noqa: PLC0415 - slow to import

        return Stream(self._program.ops, self._classes, self._on_stage)

    def insert_before(self, name: str, *components: ComponentLike) -> Pipeline[ItemT]:
        """A new pipeline with components before a named one, which may be nested.

        Args:
            name: its full name, as in traces and errors; or its short name, if it is unique.
            *components: the components to insert.

        Raises:
            PipelineError: there is no such component, or the new pipeline is invalid.
        """
        return self._edited([name], lambda old: (*components_of(components), old))

    def insert_after(self, name: str, *components: ComponentLike) -> Pipeline[ItemT]:
        """A new pipeline with components after a named one; see `insert_before`."""
        return self._edited([name], lambda old: (old, *components_of(components)))

    def replace(self, name: str, *components: ComponentLike) -> Pipeline[ItemT]:
        """A new pipeline with other components in place of a named one; see `insert_before`.

        A stage in place of a stage takes over what it requires and provides, unless it declares that itself.
        """
        return self._edited([name], lambda old: _in_place_of(old, components_of(components)))

    def without(self, *names: str) -> Pipeline[ItemT]:
        """A new pipeline without the named components; see `insert_before`."""
        return self._edited(names, lambda _: ())

    def _edited(
        self, names: Sequence[str], edit: Callable[[Component], tuple[Component, ...]]
    ) -> Pipeline[ItemT]:
        return self.with_components(
            *edited(self.components, self._program.named, names, edit),
        )

    def with_components(self, *components: ComponentLike) -> Pipeline[ItemT]:
        """A new pipeline of other components, with the same options."""
        return Pipeline(*components, **self._options)

    def diagram(self, kind: str = "mermaid") -> str:
        """Draw the pipeline.

        Args:
            kind: ``mermaid`` for a flowchart, ``text`` for an indented outline.
        """
        if kind not in {"mermaid", "text"}:
            raise PipelineError(f"kind must be 'mermaid' or 'text', not {kind!r}")
        return mermaid(self.components) if kind == "mermaid" else text(self.components)


def _in_place_of(old: Component, new: tuple[Component, ...]) -> tuple[Component, ...]:
    """The components that replace one; a stage takes over what the replaced stage requires and provides."""
    if isinstance(old, Stage) and len(new) == 1 and isinstance(new[0], Stage):
        return (stage(new[0], replaces=old),)
    return new
