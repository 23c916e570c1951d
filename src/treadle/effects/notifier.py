"""Emitting events from within a callable that cannot await the listeners."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, closing
from typing import Any

import anyio.lowlevel

from treadle.effects.coroutines import coroutine_of
from treadle.effects.detached_task import DetachedTask
from treadle.effects.effects import Cancelled, Reporter
from treadle.effects.event_loop import caller_on_loop


class Notifier:
    """Emits events for sync code in the thread of a call, or in a thread that the call has started.

    Listeners are called in the order of the events. Async ones are awaited in a task next to the call. Once the
    call has ended or was abandoned, events are dropped.

    Args:
        reporter: the reporter of the call.
        on_loop: whether the call runs on an event loop; then the notifier is made there.
    """

    def __init__(self, reporter: Reporter, *, on_loop: bool) -> None:
        self.is_over = False
        self._reporter = reporter
        self._call_on_loop = caller_on_loop() if on_loop else None
        self._posted: deque[Any] = deque()
        self._unawaited: deque[Awaitable[None]] = deque()
        self._delivery: DetachedTask | None = None

    def notify(self, event: Any) -> None:
        """Emit an event; never raises because the call was abandoned."""
        if self._call_on_loop is None:
            self._emit(event)
        else:
            self._posted.append(event)
            self._call_on_loop(self._emit_posted)

    def _emit_posted(self) -> None:
        while self._posted:
            self._emit(self._posted.popleft())

    def _emit(self, event: Any) -> None:
        if self.is_over:
            return
        try:
            emitted = self._reporter.emit(event)
        except Cancelled:
            self.is_over = True
            return
        if emitted is not None:
            self._unawaited.append(emitted)
            if self._delivery is None:
                self._delivery = DetachedTask(self._deliver)

    async def _deliver(self) -> None:
        """Await the listeners, one event after another; an interrupt is raised in the task of the call."""
        while self._unawaited:
            await self._unawaited.popleft()
        self._delivery = None

    async def delivered(self) -> None:
        """Wait until the listeners have received all events; for the task of the call."""
        self._emit_posted()
        if self._delivery is not None:
            await self._delivery.wait()

    def end(self) -> None:
        """Drop all further events, and stop waiting for listeners."""
        self.is_over = True
        if self._delivery is not None:
            self._delivery.cancel()
        while self._unawaited:
            coroutine_of(self._unawaited.popleft()).close()  # it is never awaited


def last_value(
    items: Generator[Any, Any, Any], notifier: Notifier, take: Callable[[Any], Any]
) -> Any:
    """Run a generator to its end, and close it if it fails or the call is over; ``take`` receives each value.

    Return its return value; if that is None, its last value, or None.
    """
    last = None
    with closing(items):
        while not notifier.is_over:
            try:
                last = next(items)
            except StopIteration as stop:
                return last if stop.value is None else stop.value
            take(last)
    raise Cancelled("the call was abandoned")


async def last_async_value(
    items: AsyncGenerator[Any, Any], notifier: Notifier, take: Callable[[Any], Any]
) -> Any:
    """Run an async generator to its end; see `last_value`."""
    last, count = None, 0
    async with aclosing(items):
        async for value in items:
            last, count = value, count + 1
            take(value)
            await notifier.delivered()
            if count % 32 == 0:
                # A generator that never waits would not let a time limit take effect.
                await anyio.lowlevel.checkpoint()
            if notifier.is_over:
                raise Cancelled("the call was abandoned")
    return last
