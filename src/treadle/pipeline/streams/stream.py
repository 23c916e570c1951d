"""Streams of items through one pipeline: lazy, concurrent, with backpressure from the reader."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import itertools
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, TypeVar, cast

import anyio

from treadle.effects import (
    CLEANUP_SECONDS,
    Call,
    Cancelled,
    Detached,
    DetachedTask,
    Mode,
    Scheduler,
    Signal,
    Steps,
    Task,
    Wait,
    drive,
    task_group,
)
from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.execute import Progress, run_stage
from treadle.pipeline.observe import StageObserver, observed
from treadle.pipeline.streams.compiler import Compose, StreamCompiler
from treadle.pipeline.streams.execute import execute_all

T = TypeVar("T")

Results: TypeAlias = list[Any] | Exception
"""The results for one item, or the exception that its processing raised."""


class Semaphore:
    """Admits a limited number of items at a time, in the order of arrival.

    Args:
        limit: how many may be inside at once.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[Signal] = deque()

    def acquire(self) -> Steps[None]:
        """Wait until fewer than ``limit`` items are inside, and enter."""
        if self._free:
            self._free -= 1
            return
        admitted = Signal()
        self._waiting.append(admitted)
        try:
            yield Wait(admitted)
        except BaseException:
            if admitted.is_set:  # admitted while it was being cancelled: admit the next one
                self.release()
            else:
                self._waiting.remove(admitted)
            raise

    def release(self) -> None:
        """Leave, and admit the item that has waited longest."""
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._free += 1


class Sequencer:
    """Admits items to a composer in the order of their numbers, since its memo depends on it.

    Args:
        once: no item enters the composer twice, so the next may follow at once. Otherwise an item
            has the composer to itself until it has left the pipeline.
    """

    def __init__(self, *, once: bool) -> None:
        self._once = once
        self._finished: set[int] = set()
        self._next = 0
        self._waiting: dict[int, Signal] = {}

    def enter(self, number: int) -> Steps[None]:
        """Wait until all earlier items have finished."""
        if self._next < number:
            self._waiting[number] = Signal()
            yield Wait(self._waiting[number])
        if self._once:
            self.finish(number)

    def finish(self, number: int) -> None:
        """Note that an item will not enter, or not enter again."""
        if number < self._next:
            return
        self._finished.add(number)
        while self._next in self._finished:
            self._finished.remove(self._next)
            self._next += 1
        admitted = self._waiting.pop(self._next, None)
        if admitted is not None:
            admitted.set()


class Stream:
    """The state that the items of one stream share: memos, semaphores and sequencers.

    Args:
        compiled: the compiled pipeline.
        classes: the classes of valid items; empty accepts anything.
        observers: called with the events of every stage.
    """

    def __init__(
        self,
        compiled: StreamCompiler,
        classes: tuple[type, ...],
        observers: Sequence[StageObserver],
    ) -> None:
        ops, counts = list(compiled.ops), compiled.counts
        for position in counts:
            ops[position] = _threaded(ops[position])
        ops = list(observed(ops, observers))
        for position, count in counts.items():
            # For the observers, an item that waits for a semaphore has not started the stage.
            ops[position] = _limited(ops[position], Semaphore(count))
        self._ops = ops
        self._classes = classes
        self._memos: dict[int, Any] = {}
        self._sequencers = {
            position: Sequencer(once=_is_entered_once(ops, position))
            for position, op in enumerate(ops)
            if isinstance(op, Compose)
        }

    def steps(self, number: int, item: Any) -> Steps[Results]:
        """Run one item through the pipeline; return its results, or the exception that it raised.

        Args:
            number: the number of items before it.
            item: the item.
        """

        def admit(position: int) -> Steps[None]:
            return self._sequencers[position].enter(number)

        try:
            return (
                yield from execute_all(
                    self._ops, self._classes, item, Progress(), memos=self._memos, admit=admit
                )
            )
        except Exception as error:  # noqa: BLE001 - raised where the results are read
            return error
        finally:
            for sequencer in self._sequencers.values():
                sequencer.finish(number)

    def read(
        self, items: Iterable[T] | AsyncIterable[T], concurrency: int, ordered: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[T]]:
        """Run the stream on the event loop until the ``async with`` ends; see `StreamPipeline.stream`."""

        def begin() -> tuple[AsyncIterator[T], DetachedTask]:
            reader: _Reader[T] = _Reader(concurrency, ordered)
            return reader, DetachedTask(lambda: self._feed(items, reader), reader.close)

        return Detached(begin)

    async def _feed(self, items: Iterable[T] | AsyncIterable[T], reader: _Reader[T]) -> None:
        async def work(number: int, item: T) -> None:
            reader.add(number, await drive(self.steps(number, item)))

        try:
            async with task_group() as workers, _iterated(items) as source:
                for number in itertools.count():
                    await reader.slots.acquire()
                    try:
                        item = await drive(_next(source))
                    except StopAsyncIteration:
                        break
                    except Exception as error:  # noqa: BLE001 - raised after the items before it
                        reader.add(number, error)
                        break
                    workers.start_soon(work, number, item)
        finally:
            reader.end()

    def read_sync(self, items: Iterable[T], concurrency: int, ordered: bool) -> Iterator[T]:
        """Run the stream without an event loop, while it is read; see `StreamPipeline.stream_sync`."""
        scheduler, queue = Scheduler(), _ResultQueue(ordered)
        running: dict[int, Task] = {}

        def finish(number: int, results: Results, _error: Exception | None) -> None:
            del running[number]
            queue.add(number, results)

        source, numbers, unread = iter(items), itertools.count(), 0
        is_drained = False
        try:
            while True:
                while unread < concurrency and not is_drained:
                    number = next(numbers)
                    try:
                        item = next(source)
                    except StopIteration:
                        is_drained = True
                    except Exception as error:  # noqa: BLE001 - raised after the items before it
                        is_drained = True
                        queue.add(number, error)
                    else:
                        steps, done = self.steps(number, item), functools.partial(finish, number)
                        running[number] = scheduler.spawn(steps, done, contextvars.copy_context())
                        unread += 1
                while running and not queue.ready:
                    scheduler.turn()
                if not queue.ready:
                    return
                yield from queue.pop()
                unread -= 1
        finally:
            scheduler.cancel(running.values(), Cancelled())


def _threaded(op: Op) -> Op:
    """Run a plain stage in a worker thread, so that its items run concurrently."""
    if op.kind is not Kind.PLAIN:
        return op

    def run(item: Any) -> Steps[Any]:
        return (yield Call(op.fn, item, mode=Mode.THREAD, label="stage", key=op.name))

    return dataclasses.replace(op, kind=Kind.GENERATOR, fn=run)


def _limited(op: Op, semaphore: Semaphore) -> Op:
    """Limit the number of items that are in a stage at once."""

    def run(item: Any) -> Steps[Any]:
        yield from semaphore.acquire()
        try:
            return (yield from run_stage(op, item))
        finally:
            semaphore.release()

    return dataclasses.replace(op, kind=Kind.GENERATOR, fn=run)


def _is_entered_once(ops: Sequence[Op], at: int) -> bool:
    """Whether no item can reach a position twice, as it can after another composer or in a loop."""
    return not any(
        (isinstance(op, Compose) and position < at)
        or (op.kind is Kind.JUMP and position > at >= op.target >= 0)
        for position, op in enumerate(ops)
    )


class _ResultQueue:
    """The results that can be read, in the order of their items, or as they arrive."""

    def __init__(self, ordered: bool) -> None:
        self.ready: deque[Results] = deque()
        self._ordered = ordered
        self._waiting: dict[int, Results] = {}
        self._next = 0

    def add(self, number: int, results: Results) -> None:
        """Add the results of an item."""
        if not self._ordered:
            self.ready.append(results)
            return
        self._waiting[number] = results
        while self._next in self._waiting:
            self.ready.append(self._waiting.pop(self._next))
            self._next += 1

    def pop(self) -> list[Any]:
        """Take the next results; raise if they are an exception."""
        results = self.ready.popleft()
        if isinstance(results, Exception):
            raise results
        return results


class _Reader(AsyncIterator[T]):
    """The results of a stream, for its reader.

    Args:
        concurrency: the maximum number of items in progress or unread.
        ordered: whether they come in the order of the items.
    """

    def __init__(self, concurrency: int, ordered: bool) -> None:
        # Acquired before an item is drawn, released after its results were read.
        self.slots = anyio.Semaphore(concurrency)
        self._queue = _ResultQueue(ordered)
        self._reading: deque[T] | None = None  # the rest of the results of one item
        self._arrived = anyio.Event()
        self._is_over = False

    def add(self, number: int, results: Results) -> None:
        """Add the results of an item."""
        self._queue.add(number, results)
        self._arrived.set()

    def end(self) -> None:
        """Note that there are no more results."""
        self._is_over = True
        self._arrived.set()

    def close(self) -> None:
        """Drop the results: the reader has left."""
        self._queue.ready.clear()
        self._reading = None
        self.end()

    async def __anext__(self) -> T:
        while not self._reading:
            if self._reading is not None:
                self._reading = None
                self.slots.release()
            while not self._queue.ready:
                if self._is_over:
                    raise StopAsyncIteration
                self._arrived = anyio.Event()
                await self._arrived.wait()
            try:
                self._reading = deque(self._queue.pop())
            except Exception:
                self.close()
                raise
        return self._reading.popleft()


@asynccontextmanager
async def _iterated(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """Iterate over items, and close the source at the end if it is an async generator."""
    source = aiter(items) if isinstance(items, AsyncIterable) else _as_async(items)
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            with anyio.move_on_after(CLEANUP_SECONDS, shield=True):
                await cast("AsyncGenerator[T]", source).aclose()


def _next(source: AsyncIterator[T]) -> Steps[T]:
    """Draw an item; a source that raises a cancellation itself fails with `CallCancelled`."""
    item: T = yield Call(anext, source, mode=Mode.ASYNC)
    return item


async def _as_async(items: Iterable[T]) -> AsyncGenerator[T]:
    for item in items:
        yield item
