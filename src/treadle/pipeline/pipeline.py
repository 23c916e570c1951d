"""`Pipeline`: components, checked and flattened once, through which items are stepped."""

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
from typing import Any, Generic, TypeVar

from treadle.effects import Steps, drive, drive_sync
from treadle.pipeline.compiler import Compiler, Kind, Op, Reviewer, classes_of
from treadle.pipeline.components import Component, GotoPoint, check_plain, components_of
from treadle.pipeline.diagram import mermaid, text
from treadle.pipeline.editing import edited, named
from treadle.pipeline.errors import NotOneItemError, PipelineError
from treadle.pipeline.execute import Progress, Run, walk
from treadle.pipeline.observe import StageObserver, observed
from treadle.pipeline.streaming import Stream, stream_async, stream_sync


def place_of(start: str, components: tuple[Component, ...], ops: Sequence[Op]) -> int:
    """The place of a stage at which an item may enter.

    Args:
        start: its name.
        components: those of the pipeline.
        ops: their program.

    Raises:
        PipelineError: there is none of this name, or it is nested in something that an item has to
            enter first, or comes after a composer, which makes other items of those that enter.
    """
    places = places_of(components, ops)
    if start not in places:
        known = ", ".join(places) or "none"
        raise PipelineError(f"an item cannot start at {start!r}; where it can: {known}")
    return places[start]


def places_of(components: tuple[Component, ...], ops: Sequence[Op]) -> dict[str, int]:
    """The places at which an item may enter, by the names of what stands there.

    Args:
        components: those of the pipeline.
        ops: their program.
    """
    top = {
        name
        for name, made, depth in named(components)
        if depth == 0 and not isinstance(made, GotoPoint)
    }
    places: dict[str, int] = {}
    for at, op in enumerate(ops):
        if op.name in top:
            places.setdefault(op.name, at)  # a plug has a second one, where the item comes out
        if op.kind is Kind.COMPOSE:
            break
    return places


T = TypeVar("T")


class Pipeline(Generic[T]):
    """A checked, immutable sequence of components; safe to share between threads and tasks.

    Args:
        *components: stages, other components, bare callables, or lists of these, in order.
        until: an item of which this holds leaves the pipeline after the stage that made it so.
        item: the type of the items: what stages must return, and whose fields ``requires`` and
            ``provides`` may name. None takes anything.
        given: the fields of the item that are filled when it comes in.
        on_stage: observers of every stage's start, stop and exception.
        review: called with the stage's name, the item before it and the item after it, for each
            item that a stage, a composer or the end of a ``plug_with`` produced. The item that it
            returns goes on; an exception that it raises is a `StageError` of that stage. It is not
            called inside a ``plug_with``, where items have another type.
        trusted: the functions whose results are not reviewed, as they were before `stage` was
            applied to them (``Stage.fn``).

    Raises:
        PipelineError: two components or points of one name, a goto without a point, a stage that
            requires what nothing before it provides, an unknown field. The author's order is never
            changed.
    """

    def __init__(
        self,
        *components: Any,
        until: Callable[[T], bool] | None = None,
        item: type[T] | None = None,
        given: Collection[str] = (),
        on_stage: Collection[StageObserver] = (),
        review: Callable[[str, T, T], T] | None = None,
        trusted: Collection[Callable[..., Any]] = (),
    ) -> None:
        self.components: tuple[Component, ...] = components_of(components)
        if until is not None:
            check_plain(until, "until")
        if review is not None:
            check_plain(review, "review")
        for observer in on_stage:
            check_plain(observer, "an observer in on_stage")
        self.until = until
        self._item = item
        self._given = (given,) if isinstance(given, str) else tuple(given)
        self._on_stage = tuple(on_stage)
        self._classes = classes_of(item)
        self._review, self._trusted = review, tuple(trusted)
        self._ops = Compiler(item).compile(
            self.components, until=until, given=self._given, reviewers=self.reviewers
        )
        self._watched_ops = observed(self._ops, self._on_stage) if self._on_stage else self._ops

    @property
    def reviewers(self) -> tuple[Reviewer, ...]:
        """The review of this pipeline with its trusted functions, where it has one."""
        return () if self._review is None else (Reviewer(self._review, self._trusted),)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the components at the top, in order."""
        names = named(self.components)
        return tuple(name for name, _, depth in names if depth == 0)

    def has_entry(self, name: str) -> bool:
        """Whether an item may enter at a stage, as ``start`` of `steps`."""
        return name in places_of(self.components, self._ops)

    def steps(
        self, item: T, trace: Progress | None = None, *, start: str | None = None
    ) -> Steps[T]:
        """The generator of effects that takes one item through; a driver runs it.

        Args:
            item: the item.
            trace: is kept up to date with how far the item has come.
            start: the name of the stage that the item enters first; None is the first of all. It
                stands at the top, and no composer comes before it.

        Returns:
            The one item that comes out.

        Raises:
            StageError: a stage raised.
            NotOneItemError: the item was dropped, or became several.
            PipelineError: there is no such stage to start at.
        """
        out: list[T] = []
        at = 0 if start is None else place_of(start, self.components, self._ops)
        run = Run(self._watched_ops, self._classes)
        yield from walk(run, item, out.append, trace or Progress(), at)
        if len(out) != 1:
            raise NotOneItemError(
                f"{len(out)} items came out of the pipeline for one; run_all returns them all"
            )
        return out[0]

    def steps_all(self, item: T) -> Steps[list[T]]:
        """As `steps`, for pipelines that drop items or make several of one."""
        out: list[T] = []
        yield from walk(Run(self._watched_ops, self._classes), item, out.append, Progress())
        return out

    async def run(self, item: T) -> T:
        """Take one item through, on the running event loop; see `steps` for what comes of it."""
        return await drive(self.steps(item))

    def run_sync(self, item: T) -> T:
        """Take one item through in this thread; async stages run on a loop in the background."""
        return drive_sync(self.steps(item))

    async def run_all(self, item: T) -> list[T]:
        """Take one item through; return all that comes out: none, one or many."""
        return await drive(self.steps_all(item))

    def run_all_sync(self, item: T) -> list[T]:
        """As `run_all`, in this thread."""
        return drive_sync(self.steps_all(item))

    def stream(
        self,
        items: Iterable[T] | AsyncIterable[T],
        *,
        concurrency: int = 1,
        ordered: bool = True,
    ) -> AbstractAsyncContextManager[AsyncIterator[T]]:
        """Take many items through: ``async with p.stream(items) as out: async for item in out``.

        An item is drawn only when there is a place for it, and its place is free again once its
        outcome was read, so a slow reader holds everything up and nothing piles up.

        Args:
            items: what to take through; drawn one by one.
            concurrency: how many may be under way or unread at once.
            ordered: give results in the order of the items, else as they come.

        Returns:
            A context manager of the iterator. Leaving it ends what is under way. A failing item
            raises its `StageError` where its result would stand.
        """
        _check_concurrency(concurrency)
        return stream_async(
            Stream(self._ops, self._classes, self._on_stage), items, concurrency, ordered
        )

    def stream_sync(
        self, items: Iterable[T], *, concurrency: int = 1, ordered: bool = True
    ) -> Iterator[T]:
        """As `stream`, without an event loop: a generator that works on while it is read."""
        _check_concurrency(concurrency)
        return stream_sync(
            Stream(self._ops, self._classes, self._on_stage), items, concurrency, ordered
        )

    def insert_before(self, name: str, *components: Any) -> Pipeline[T]:
        """A new pipeline with components before the one of this name, wherever it is nested.

        Args:
            name: its full name, as it is in traces and errors; or its own, where only one has it.
            *components: what to insert.

        Raises:
            PipelineError: there is none of this name, or the new pipeline could not work.
        """
        return self._edited([name], lambda old: (*components_of(components), old))

    def insert_after(self, name: str, *components: Any) -> Pipeline[T]:
        """A new pipeline with components after the one of this name; see `insert_before`."""
        return self._edited([name], lambda old: (old, *components_of(components)))

    def replace(self, name: str, *components: Any) -> Pipeline[T]:
        """A new pipeline with others in place of the one of this name; see `insert_before`."""
        return self._edited([name], lambda _: components_of(components))

    def without(self, *names: str) -> Pipeline[T]:
        """A new pipeline without the components of these names; see `insert_before`."""
        return self._edited(names, lambda _: ())

    def diagram(self, kind: str = "mermaid") -> str:
        """Draw the pipeline.

        Args:
            kind: ``mermaid`` for a flowchart, ``text`` for an indented outline.
        """
        if kind not in {"mermaid", "text"}:
            raise ValueError(f"a diagram is 'mermaid' or 'text', not {kind!r}")
        return mermaid(self.components) if kind == "mermaid" else text(self.components)

    def _edited(
        self, names: Sequence[str], edit: Callable[[Component], tuple[Component, ...]]
    ) -> Pipeline[T]:
        def remade(embedded: Pipeline[Any], components: tuple[Component, ...]) -> Pipeline[Any]:
            return embedded._with(components)

        return self._with(edited(self.components, names, edit, remade))

    def _with(self, components: tuple[Component, ...]) -> Pipeline[T]:
        return Pipeline(
            *components,
            until=self.until,
            item=self._item,
            given=self._given,
            on_stage=self._on_stage,
            review=self._review,
            trusted=self._trusted,
        )


def _check_concurrency(concurrency: int) -> None:
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
