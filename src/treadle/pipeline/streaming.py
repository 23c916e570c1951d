"""Many items through one pipeline: lazily, several at a time, in order, never more than the reader can take."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict, deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import anyio

from treadle.pipeline.async_driver import companion, drive
from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.effects import Call, Cancelled, Mode, Signal, Steps, Wait
from treadle.pipeline.scheduler import Scheduler, Task
from treadle.pipeline.sync_driver import SyncDriver
from treadle.pipeline.walk import Run, Trace, walk

T = TypeVar("T")


class Gate:
    """Lets a few pass at a time; the others wait in line.

    Args:
        places: how many may be inside at once.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._line: deque[Signal] = deque()

    def enter(self) -> Steps[None]:
        """Wait for a place and take it."""
        while self._free == 0:
            turn = Signal()
            self._line.append(turn)
            yield Wait(turn)
        self._free -= 1

    def leave(self) -> None:
        """Give the place back and wake the next in line."""
        self._free += 1
        if self._line:
            self._line.popleft().set()


class Turnstile:
    """Lets items pass in the order of their numbers, for a composer whose memo depends on it."""

    def __init__(self) -> None:
        self._passed: set[int] = set()
        self._next = 0
        self._line: list[Signal] = []

    def wait(self, number: int) -> Steps[None]:
        """Wait until every earlier item has passed."""
        while self._next < number:
            turn = Signal()
            self._line.append(turn)
            yield Wait(turn)

    def passed(self, number: int) -> None:
        """Note that an item is through, or will never come."""
        self._passed.add(number)
        while self._next in self._passed:
            self._passed.remove(self._next)
            self._next += 1
        line, self._line = self._line, []
        for turn in line:
            turn.set()


class Stream:
    """One streaming run: its memos, its gates, and the steps of each item.

    Args:
        ops: the program of the pipeline.
        item_type: what every stage has to return; None takes anything.
    """

    def __init__(self, ops: Sequence[Op], item_type: type | None) -> None:
        self._ops = [_gated(op) for op in ops]
        self._item_type = item_type
        self._memos: dict[int, Any] = {}
        self._turnstiles: defaultdict[int, Turnstile] = defaultdict(Turnstile)
        self._over: list[int] = []

    def steps(self, number: int, item: Any) -> Steps[list[Any]]:
        """Take one item through; return what comes out for it.

        Args:
            number: how many items came before it.
            item: the item.
        """

        def turn(at: int) -> Steps[None]:
            if at not in self._turnstiles:
                for earlier in self._over:
                    self._turnstiles[at].passed(earlier)
            yield from self._turnstiles[at].wait(number)
            self._turnstiles[at].passed(number)

        out: list[Any] = []
        try:
            run = Run(self._ops, self._item_type, self._memos, turn)
            yield from walk(run, item, out.append, Trace())
        finally:
            self._over.append(number)
            for turnstile in self._turnstiles.values():
                turnstile.passed(number)
        return out


def _gated(op: Op) -> Op:
    """The operation as it is in a stream: where it has a count, no more than so many items at once."""
    if op.count is None or op.kind > Kind.ASYNC:
        return op
    gate = Gate(op.count)

    def run(item: Any) -> Steps[Any]:
        yield from gate.enter()
        try:
            if op.kind is Kind.STEPS:
                return (yield from op.fn(item))
            # A plain function that asks for replicas has work to do: it gets worker threads.
            mode = Mode.ASYNC if op.kind is Kind.ASYNC else Mode.THREAD
            return (yield Call(op.fn, item, mode=mode, label="stage", key=op.name))
        finally:
            gate.leave()

    return dataclasses.replace(op, kind=Kind.STEPS, fn=run)


class InOrder:
    """Puts what is finished out of order back in order."""

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        self._waiting: dict[int, Any] = {}
        self._next = 0

    def add(self, number: int, outcome: Any) -> Iterator[Any]:
        """Take in one outcome; give all whose turn it is now."""
        if not self._ordered:
            yield outcome
            return
        self._waiting[number] = outcome
        while self._next in self._waiting:
            yield self._waiting.pop(self._next)
            self._next += 1


@asynccontextmanager
async def stream_async(
    stream: Stream, items: Iterable[T] | AsyncIterable[T], concurrency: int, ordered: bool
) -> AsyncIterator[AsyncIterator[T]]:
    """Run a stream on the event loop, for as long as the ``async with`` lasts; see `Pipeline.stream`."""
    finished, outcomes = anyio.create_memory_object_stream[tuple[int, Any]](concurrency)
    # A place is taken before an item is drawn, and given back once its outcome was read.
    places = anyio.Semaphore(concurrency)

    async def work(number: int, item: T) -> None:
        try:
            outcome: Any = await drive(stream.steps(number, item))
        except Exception as error:  # noqa: BLE001 - it is raised where it is read
            outcome = error
        await finished.send((number, outcome))

    async def feed() -> None:
        async with finished, anyio.create_task_group() as workers:
            source = aiter(items) if isinstance(items, AsyncIterable) else _each(items)
            for number in itertools.count():
                await places.acquire()
                try:
                    item = await anext(source)
                except StopAsyncIteration:
                    return
                workers.start_soon(work, number, item)

    async def read() -> AsyncIterator[T]:
        order = InOrder(ordered)
        async for number, outcome in outcomes:
            for settled in order.add(number, outcome):
                if isinstance(settled, Exception):
                    raise settled
                for item in settled:
                    yield item
                places.release()

    async with outcomes, companion(feed):
        async with aclosing(read()) as reader:
            yield reader


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


def stream_sync(
    stream: Stream, items: Iterable[T], concurrency: int, ordered: bool
) -> Iterator[T]:
    """Run a stream without an event loop, advancing while it is read; see `Pipeline.stream_sync`."""
    scheduler = Scheduler(SyncDriver())
    order = InOrder(ordered)
    settled: deque[Any] = deque()
    running: set[Task] = set()
    source = enumerate(items)
    unread = 0

    def start(number: int, item: T) -> None:
        def finish(value: Any, error: BaseException | None) -> None:
            running.discard(task)
            settled.extend(order.add(number, value if error is None else error))

        task = scheduler.spawn(stream.steps(number, item), finish)
        running.add(task)

    try:
        while True:
            while unread < concurrency and (drawn := next(source, None)) is not None:
                start(*drawn)
                unread += 1
            while running and not settled:
                scheduler.turn()
            if not settled:
                return
            outcome = settled.popleft()
            if isinstance(outcome, Exception):
                raise outcome
            yield from outcome
            unread -= 1
    finally:
        for task in list(running):
            scheduler.cancel(task, Cancelled())
