"""`StreamPipeline`: the ways to run many items through a pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, ClassVar

from treadle import effects
from treadle.effects import Steps
from treadle.errors import TreadleError
from treadle.pipeline.errors import PipelineError
from treadle.pipeline.execute import Progress
from treadle.pipeline.pipeline import Pipeline
from treadle.pipeline.streams.execute import execute_all
from treadle.type_vars import ItemT

if TYPE_CHECKING:
    from treadle.pipeline.streams.stream import Stream


class NotOneItemError(TreadleError, LookupError):
    """`StreamPipeline.run` or `StreamPipeline.steps` produced no item, or several."""


class StreamPipeline(Pipeline[ItemT]):
    """A pipeline for many items, in which components may drop, make and convert items; see `Pipeline`."""

    _is_for_streams: ClassVar[bool] = True

    def steps(
        self, item: ItemT, progress: Progress | None = None, *, start: str | None = None
    ) -> Steps[ItemT]:
        """As `Pipeline.steps`.

        Raises:
            NotOneItemError: the item was dropped, or became several.
        """
        out = yield from self.steps_all(item, progress, start=start)
        if len(out) != 1:
            raise NotOneItemError(
                f"the pipeline returned {len(out)} items for one; run_all returns them all"
            )
        return out[0]

    def steps_all(
        self, item: ItemT, progress: Progress | None = None, *, start: str | None = None
    ) -> Steps[list[ItemT]]:
        """As `steps`, for pipelines that drop items or make several of one."""
        position = 0 if start is None else self._position_of(start)
        return execute_all(self._ops, self._classes, item, progress or Progress(), position)

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
        return self._stream(concurrency, ordered).read(items)

    def stream_sync(
        self, items: Iterable[ItemT], *, concurrency: int = 1, ordered: bool = True
    ) -> Iterator[ItemT]:
        """As `stream`, without an event loop: a generator that works while it is read."""
        return self._stream(concurrency, ordered).read_sync(items)

    def _stream(self, concurrency: int, ordered: bool) -> Stream[ItemT]:
        if concurrency < 1:
            raise PipelineError(f"concurrency must be at least 1, not {concurrency}")
        from treadle.pipeline.streams.stream import Stream  # noqa: PLC0415 - slow to import

        return Stream(
            self._compiled.ops, self._classes, self._observers, concurrency, ordered=ordered
        )
