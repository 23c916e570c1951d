"""Emitting events from within a callable that cannot await the listeners."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, closing, suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from treadle.effects.detached_task import start_task
from treadle.effects.effects import Cancelled, Reporter
from treadle.effects.event_loop import Soon, running_trio, soon_on_loop

if TYPE_CHECKING:
    from collections.abc import Generator


class Notifier:
    """Emits events for sync code in the thread of a call, or in a thread that the call has started.

    Listeners are called in the order of the events. Async ones are awaited in a task next to the call. Once the
    call has ended or was abandoned, events are dropped.

    Args:
        reporter: the reporter of the call.
        on_loop: whether the call runs on an event loop; then the notifier is made there.
    """

    __slots__ = (
        "_delivered", "_failure", "_home", "_posted", "_queue", "_reporter", "_scope", "_soon", "_trio",
        "is_over",
    )  # fmt: skip

    def __init__(self, reporter: Reporter, *, on_loop: bool) -> None:
        self.is_over = False
        self._trio: Any = None
        self._reporter = reporter
        self._home: int | None = None
        self._soon: Soon | None = None
        if on_loop:
            self._home = threading.get_ident()
            self._trio = running_trio()
            self._soon = soon_on_loop()
        self._posted: deque[Any] = deque()
        self._queue: deque[Awaitable[None]] = deque()
        self._delivered: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None
        self._failure: BaseException | None = None

    def notify(self, event: Any) -> None:
        """Emit an event; never raises because the call was abandoned."""
        if self.is_over:
            return
        if self._soon is None or threading.get_ident() == self._home:
            self._emit(event)
            return
        self._posted.append(event)
        with suppress(RuntimeError):  # the event loop has ended
            self._soon(self._emit_posted)

    def _emit_posted(self) -> None:
        while self._posted:
            event = self._posted.popleft()
            if not self.is_over:
                self._emit(event)

    def _emit(self, event: Any) -> None:
        try:
            emitted = self._reporter.emit(event)
        except Cancelled:
            self.is_over = True
            return
        if emitted is not None:
            self._queue.append(emitted)
            if self._delivered is None:
                self._start_delivery()

    def _start_delivery(self) -> None:
        # A callback of an event loop has no task, by which `running_trio` would recognize the loop.
        trio = self._trio if self._soon is not None else running_trio()
        self._delivered = anyio.Event()
        start_task(self._deliver, trio)

    async def _deliver(self) -> None:
        """Await the listeners, one event after another; an interrupt is kept for the task of the call."""
        delivered = self._delivered
        try:
            with anyio.CancelScope() as self._scope:
                while self._queue:
                    await self._queue.popleft()
        except BaseException as error:  # noqa: BLE001 - raised in the task of the call
            self._failure = error
        finally:
            self._delivered = self._scope = None
            if delivered is not None:
                delivered.set()

    async def delivered(self) -> None:
        """Wait until the listeners have received all events; for the task of the call."""
        self._emit_posted()
        if self._delivered is not None:
            await self._delivered.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def end(self) -> None:
        """Drop all further events, and stop waiting for listeners."""
        self.is_over = True
        if self._scope is not None and threading.get_ident() == self._home:
            self._scope.cancel()
        while self._queue:
            _close(self._queue.popleft())


def _close(awaitable: Any) -> None:
    close = getattr(awaitable, "close", None)  # a coroutine that is never awaited has to be closed
    if close is not None:
        close()


def last_value(
    items: Generator[Any, Any, Any], notifier: Notifier, take: Callable[[Any], Any]
) -> Any:
    """Run a generator to its end, and close it if it fails or the call is over.

    Args:
        items: the generator.
        notifier: of the call.
        take: is called with each value.

    Returns:
        Its return value; if that is None, its last value, or None.
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
            if count % VALUES_AT_ONCE == 0:
                # A generator that never waits would not let a time limit take effect.
                await anyio.lowlevel.checkpoint()
            if notifier.is_over:
                raise Cancelled("the call was abandoned")
    return last


VALUES_AT_ONCE = 32
"""The number of values of an async generator that are read before other tasks may run."""
