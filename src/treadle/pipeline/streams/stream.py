"""`StreamPipeline`: many items through one pipeline, lazy, concurrent, with backpressure from the reader."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import anyio

from treadle.effects import (
    Call,
    Cancelled,
    Detached,
    DetachedTask,
    Mode,
    Parallel,
    Scheduler,
    Signal,
    Steps,
    Wait,
    drive,
    drive_sync,
)
from treadle.errors import TreadleError
from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.errors import PipelineError
from treadle.pipeline.execute import Progress, run_stage
from treadle.pipeline.observe import observed
from treadle.pipeline.pipeline import Pipeline
from treadle.pipeline.streams.components import Replicated
from treadle.pipeline.streams.execute import execute_all
from treadle.queues import Queues
from treadle.type_vars import ItemT

T = TypeVar("T")

Source: TypeAlias = Iterator[T] | AsyncIterator[T]
WAIT: Any = object()
"""Stands for a result that is not ready."""
SOURCE = "source"


class NotOneItemError(TreadleError, LookupError):
    """`StreamPipeline.run` or `StreamPipeline.steps` produced no item, or several."""


class StreamPipeline(Pipeline[ItemT]):
    """A pipeline for many items, in which components may drop, make and convert items; see `Pipeline`."""

    _last_kind: ClassVar[Kind] = Kind.UNPLUG

    def steps(
        self, item: ItemT, progress: Progress | None = None, *, start: str | None = None
    ) -> Steps[ItemT]:
        """The generator of effects that runs one item to one result; see `Pipeline.steps`.

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
        """The generator of effects that runs one item to a list of results; see `Pipeline.steps`."""
        position = 0 if start is None else self._position_of(start)
        return execute_all(self._ops, self._classes, item, progress or Progress(), position)

    async def run_all(self, item: ItemT) -> list[ItemT]:
        """Run one item through the pipeline; return all results: none, one or many."""
        return await drive(self.steps_all(item))

    def run_all_sync(self, item: ItemT) -> list[ItemT]:
        """Run one item in this thread; return all results: none, one or many."""
        return drive_sync(self.steps_all(item))

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
        return self._stream(concurrency, ordered).within_loop(items)

    def stream_sync(
        self, items: Iterable[ItemT], *, concurrency: int = 1, ordered: bool = True
    ) -> Iterator[ItemT]:
        """Run many items without an event loop: a generator that works while it is read; see `stream`."""
        return self._stream(concurrency, ordered).within_thread(items)

    def _stream(self, concurrency: int, ordered: bool) -> Stream[ItemT]:
        if concurrency < 1:
            raise PipelineError(f"concurrency must be at least 1, not {concurrency}")
        ops = [self._for_many(op) for op in self._compiled.ops]
        return Stream(ops, self._classes, concurrency, ordered=ordered)

    def _for_many(self, op: Op) -> Op:
        """Add the limit and the threads of a replicated stage; an item that waits there has not started it."""
        count = op.component.count if isinstance(op.component, Replicated) else 0  # pyright: ignore[reportUnknownMemberType]
        if count and op.kind is Kind.PLAIN:
            op = dataclasses.replace(op, kind=Kind.CALL, mode=Mode.THREAD)
        stage = observed(op, self._observers)
        if not count:
            return stage
        queues = Queues(count)

        def run(item: Any) -> Steps[Any]:
            return queues.holding({op.name: True}, run_stage(stage, item))

        return dataclasses.replace(op, kind=Kind.GENERATOR, fn=run)


class Outcome(Signal):
    """The results of an item, or why there are none; None while it is in progress. Set once they are read."""

    results: list[Any] | Exception | None = None


class Stream(AsyncIterator[T]):
    """The state that the items of one stream share: memos, limits, turns and results; also their async reader."""

    def __init__(
        self, ops: Sequence[Op], classes: tuple[type, ...], concurrency: int, *, ordered: bool
    ) -> None:
        self._ops = ops
        self._classes = classes
        self._concurrency = concurrency
        self._is_ordered = ordered
        self._memos: dict[int, Any] = {}
        self._composers = {
            position: _is_entered_once(ops, position)
            for position, op in enumerate(ops)
            if op.kind is Kind.COMPOSE
        }
        self._turns = Queues()
        """Workers draw items in turn; an item joins the queue of each composer: memos depend on the order."""
        self._outcomes: deque[Outcome] = deque()
        """In the order in which they are read: that of the items, or that in which they were completed."""
        self._is_drained = False
        self._is_over = False
        self._results = self._read()
        self._arrived = anyio.Event()

    def within_loop(
        self, items: Iterable[T] | AsyncIterable[T]
    ) -> AbstractAsyncContextManager[AsyncIterator[T]]:
        """Run the stream on the event loop until the ``async with`` ends; see `StreamPipeline.stream`."""

        async def work() -> None:
            try:
                source: Any = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
                await drive(self._steps(source))
            finally:
                self._finish()

        return Detached(lambda: (self, DetachedTask(work, self._close)))

    async def __anext__(self) -> T:
        for result in self._results:
            if result is not WAIT:
                return result
            self._arrived = anyio.Event()
            await self._arrived.wait()
        raise StopAsyncIteration

    def within_thread(self, items: Iterable[T]) -> Iterator[T]:
        """Run the stream without an event loop, while it is read; see `StreamPipeline.stream_sync`."""
        scheduler = Scheduler()
        task = scheduler.spawn(self._steps(iter(items)), self._finish, copy_context())
        try:
            for result in self._results:
                if result is WAIT:
                    scheduler.turn()
                else:
                    yield result
        finally:
            scheduler.cancel([task], Cancelled())

    def _read(self) -> Iterator[T]:
        """The results in their order; `WAIT` while the next one is not there."""
        while True:
            results = self._outcomes[0].results if self._outcomes else None
            if results is not None:
                outcome = self._outcomes.popleft()
                if isinstance(results, Exception):
                    raise results
                yield from results
                outcome.set()
            elif self._is_over:
                return
            else:
                yield WAIT

    def _finish(self, _: object = None) -> None:
        self._is_over = True
        self._arrived.set()

    def _close(self) -> None:
        """Drop the results: the reader has left."""
        self._results = iter(())
        self._finish()

    def _steps(self, source: Source[T]) -> Steps[None]:
        try:
            yield Parallel([self._worker(source) for _ in range(self._concurrency)])
        finally:
            if isinstance(source, AsyncGenerator):
                yield Call(cast("AsyncGenerator[T]", source).aclose, mode=Mode.ASYNC)

    def _worker(self, source: Source[T]) -> Steps[None]:
        """Run items through the pipeline, the next one when the results of the last one were read."""
        while not self._is_drained:
            work = yield from self._turns.holding({SOURCE: True}, self._draw(source))
            if work is not None:
                yield Wait((yield from work))

    def _draw(self, source: Source[T]) -> Steps[Steps[Signal] | None]:
        """Draw an item; return the steps that run it, or None at the end of the source."""
        outcome = Outcome()
        try:
            if not self._is_drained:
                item = yield from _next_of(source)
                turns = {one: self._turns.enter(str(one)) for one in self._composers}
                if self._is_ordered:
                    self._outcomes.append(outcome)
                return self._run(outcome, item, turns)
        except StopAsyncIteration:
            self._is_drained = True
        except Exception as error:  # noqa: BLE001 - raised after the items before it
            self._is_drained = True
            outcome.results = error
            self._outcomes.append(outcome)
            self._arrived.set()
        return None

    def _run(self, outcome: Outcome, item: T, turns: dict[int, Signal]) -> Steps[Signal]:
        def admit(position: int) -> Steps[None]:
            if not turns[position].is_set:
                yield Wait(turns[position])
            if self._composers[position]:  # entered once: the next item may follow at once
                self._turns.leave(str(position), turns[position])

        try:
            outcome.results = yield from execute_all(
                self._ops, self._classes, item, Progress(), memos=self._memos, admit=admit
            )
        except Exception as error:  # noqa: BLE001 - raised where the results are read
            outcome.results = error
        finally:
            for position, turn in turns.items():
                self._turns.leave(str(position), turn)
        if not self._is_ordered:
            self._outcomes.append(outcome)
        self._arrived.set()
        return outcome


def _is_entered_once(ops: Sequence[Op], at: int) -> bool:
    """Whether no item can reach a position twice, as it can after another composer or in a loop."""
    return not any(
        (op.kind is Kind.COMPOSE and position < at)
        or (op.kind is Kind.JUMP and position > at >= op.target >= 0)
        for position, op in enumerate(ops)
    )


def _next_of(source: Source[T]) -> Steps[T]:
    """Draw an item; raise `StopAsyncIteration` at the end."""
    if isinstance(source, AsyncIterator):
        return (yield Call(anext, source, mode=Mode.ASYNC))
    for item in source:
        return item
    raise StopAsyncIteration
