"""Many items through one pipeline: lazily, several at once, never more than the reader takes."""

from __future__ import annotations

import contextvars
import dataclasses
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
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar, cast

import anyio

from treadle.effects import (
    Cancelled,
    Mode,
    Scheduler,
    Signal,
    Steps,
    SyncDriver,
    Task,
    Wait,
    background_task,
    drive,
)
from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.execute import Progress, Run, stepped, walk
from treadle.pipeline.observe import StageObserver, observed


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
        if self._free:
            self._free -= 1
            return
        turn = Signal()
        self._line.append(turn)
        try:
            yield Wait(turn)
        except BaseException:
            if turn.is_set:  # the place was given to one that is cancelled: it goes to the next
                self.leave()
            else:
                self._line.remove(turn)
            raise

    def leave(self) -> None:
        """Give the place to the next in line, or back."""
        if self._line:
            self._line.popleft().set()
        else:
            self._free += 1


class Turnstile:
    """Lets items pass in the order of their numbers, for a composer whose memo depends on it.

    Args:
        once: no item comes here twice. Else each has it to itself until it is through the pipeline.
    """

    def __init__(self, *, once: bool) -> None:
        self._once = once
        self._passed: set[int] = set()
        self._next = 0
        self._line: dict[int, Signal] = {}

    def take(self, number: int) -> Steps[None]:
        """Wait until every earlier item has passed, and pass."""
        if self._next < number:
            self._line[number] = Signal()
            yield Wait(self._line[number])
        if self._once:
            self.passed(number)

    def passed(self, number: int) -> None:
        """Note that an item is through, or will never come."""
        if number < self._next:
            return
        self._passed.add(number)
        while self._next in self._passed:
            self._passed.remove(self._next)
            self._next += 1
        turn = self._line.pop(self._next, None)
        if turn is not None:
            turn.set()


T = TypeVar("T")


class Stream:
    """One streaming run: its memos, its gates, and the steps of each item.

    Args:
        ops: the program of the pipeline.
        classes: what every stage has to return one of; none takes anything.
        observers: are told of every stage.
    """

    def __init__(
        self, ops: Sequence[Op], classes: tuple[type, ...], observers: Sequence[StageObserver]
    ) -> None:
        threaded = [_threaded(op) for op in ops]
        self._ops = [
            _gated(op) for op in (observed(threaded, observers) if observers else threaded)
        ]
        self._classes = classes
        self._memos: dict[int, Any] = {}
        self._turnstiles = {
            at: Turnstile(once=_is_passed_once(ops, at))
            for at, op in enumerate(ops)
            if op.kind is Kind.COMPOSE
        }

    def steps(self, number: int, item: Any) -> Steps[list[Any]]:
        """Take one item through; return what comes out for it.

        Args:
            number: how many items came before it.
            item: the item.
        """
        out: list[Any] = []
        try:
            run = Run(
                self._ops,
                self._classes,
                self._memos,
                lambda at: self._turnstiles[at].take(number),
            )
            yield from walk(run, item, out.append, Progress())
        finally:
            for turnstile in self._turnstiles.values():
                turnstile.passed(number)
        return out


def _threaded(op: Op) -> Op:
    """A plain function that asks for replicas has work to do: here it gets worker threads."""
    if op.count is None or op.kind is not Kind.PLAIN:
        return op

    def run(item: Any) -> Steps[Any]:
        return stepped(op, item, Mode.THREAD)

    return dataclasses.replace(op, kind=Kind.STEPS, fn=run)


def _gated(op: Op) -> Op:
    """An operation as it is in a stream: where it has a count, for so many items at once."""
    if op.count is None:
        return op
    gate = Gate(op.count)

    def run(item: Any) -> Steps[Any]:
        yield from gate.enter()
        try:
            return (yield from stepped(op, item))
        finally:
            gate.leave()

    return dataclasses.replace(op, kind=Kind.STEPS, fn=run)


def _is_passed_once(ops: Sequence[Op], at: int) -> bool:
    """Whether no item gets to a place twice: it does after another composer, and in a loop."""
    return not any(
        (op.kind is Kind.COMPOSE and place < at)
        or (op.kind is Kind.GOTO and place > at >= op.target)
        for place, op in enumerate(ops)
    )


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
) -> AsyncGenerator[AsyncIterator[T]]:
    """Run a stream on the event loop while the ``async with`` lasts; see `Pipeline.stream`."""
    reading = _AsyncReading(stream, concurrency)

    async def feed() -> None:
        await reading.feed(items)

    out = reading.read(InOrder(ordered))
    async with reading.finished, reading.outcomes, background_task(feed), aclosing(out) as reader:
        yield reader


class _AsyncReading:
    """What is under way for the reader of one `stream_async`."""

    def __init__(self, stream: Stream, concurrency: int) -> None:
        self._stream = stream
        # One more than there are places: for the failure of the source.
        self.finished, self.outcomes = anyio.create_memory_object_stream[tuple[int, Any]](
            concurrency + 1
        )
        # A place is taken before an item is drawn, and given back once its outcome was read.
        self._places = anyio.Semaphore(concurrency)

    async def feed(self, items: Iterable[Any] | AsyncIterable[Any]) -> None:
        """Draw items as there are places, and start on them."""
        async with self.finished, anyio.create_task_group() as workers, _drawn(items) as source:
            for number in itertools.count():
                await self._places.acquire()
                try:
                    item = await anext(source)
                except StopAsyncIteration:
                    return
                except Exception as error:  # noqa: BLE001 - it is raised after what came before it
                    self.finished.send_nowait((number, error))
                    return
                workers.start_soon(self._work, number, item)

    async def _work(self, number: int, item: Any) -> None:
        try:
            outcome: Any = await drive(self._stream.steps(number, item))
        except Exception as error:  # noqa: BLE001 - it is raised where it is read
            outcome = error
        self.finished.send_nowait((number, outcome))

    async def read(self, order: InOrder) -> AsyncGenerator[Any]:
        """Give what comes out of each item, and then its place back."""
        async for number, outcome in self.outcomes:
            for settled in order.add(number, outcome):
                if isinstance(settled, Exception):
                    raise settled
                for item in settled:
                    yield item
                self._places.release()


@asynccontextmanager
async def _drawn(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """Draw items one by one, and close the source in the end where it is an async generator."""
    source = aiter(items) if isinstance(items, AsyncIterable) else _each(items)
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            await cast("AsyncGenerator[T]", source).aclose()


async def _each(items: Iterable[T]) -> AsyncGenerator[T]:
    for item in items:
        yield item


def stream_sync(stream: Stream, items: Iterable[T], concurrency: int, ordered: bool) -> Iterator[T]:
    """Run a stream without an event loop, while it is read; see `Pipeline.stream_sync`."""
    reading = _SyncReading(stream, items, InOrder(ordered))
    try:
        while True:
            reading.draw(concurrency)
            outcome = reading.next_outcome()
            if isinstance(outcome, Exception):
                raise outcome
            if outcome is None:
                return
            yield from outcome
            reading.unread -= 1
    finally:
        reading.end()


class _SyncReading:
    """What is under way for the reader of one `stream_sync`."""

    def __init__(self, stream: Stream, items: Iterable[Any], order: InOrder) -> None:
        self.unread = 0
        self._stream = stream
        self._source = iter(items)
        self._order = order
        self._numbers = itertools.count()
        self._scheduler = Scheduler(SyncDriver())
        self._settled: deque[Any] = deque()
        self._running: set[Task] = set()
        self._is_drained = False

    def draw(self, concurrency: int) -> None:
        """Start on as many items as there are places for."""
        while self.unread < concurrency and not self._is_drained:
            number = next(self._numbers)
            try:
                item = next(self._source)
            except StopIteration:
                self._is_drained = True
            except Exception as error:  # noqa: BLE001 - it is raised after what came before it
                self._is_drained = True
                self._settled.extend(self._order.add(number, error))
            else:
                self._start(number, item)
                self.unread += 1

    def _start(self, number: int, item: Any) -> None:
        def finish(value: Any, error: Exception | None) -> None:
            self._running.discard(task)
            self._settled.extend(self._order.add(number, value if error is None else error))

        steps = self._stream.steps(number, item)
        task = self._scheduler.spawn(steps, finish, contextvars.copy_context())
        self._running.add(task)

    def next_outcome(self) -> list[Any] | Exception | None:
        """What came of the next item; None where there is none."""
        while self._running and not self._settled:
            self._scheduler.turn()
        return self._settled.popleft() if self._settled else None

    def end(self) -> None:
        """Cancel what is still under way."""
        for task in list(self._running):
            self._scheduler.cancel(task, Cancelled())
