"""Observers: callables that receive events. Their exceptions are logged and do not affect the run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle.context import Context, EventCounter
from treadle.effects import is_awaitable, is_exit
from treadle.events import Event, IterationFinished, RunFinished, RunStarted, RunSummary, number

if TYPE_CHECKING:
    import anyio

log = logging.getLogger("treadle.loop")

Observer: TypeAlias = Callable[[Event], Any]
"""A callable, sync or async, that receives events. The run waits for it, so a slow observer slows it down.

An observer that needs separate state for each run has a method ``for_run()``. It is called before each run, and
returns an observer for that run, or None.

An observer with an attribute ``discards_on_retry`` that is True declares that it discards the text of a response
when it receives `ModelRetried`, or shows none. If all do, a stream that breaks off after a text is requested
again.
"""


def for_run(observer: Observer) -> Observer | None:
    """The observer of one run: the one that ``for_run()`` returns, or the observer itself."""
    # Looked up on the class, as special methods are: a mock has every attribute.
    makes = callable(getattr(type(observer), "for_run", None))
    made: Observer | None = observer.for_run() if makes else observer  # type: ignore[attr-defined]
    return made


def of_callbacks(
    on_iteration: Callable[[Context], Any] | None, on_complete: Callable[[RunSummary], Any] | None
) -> Observer:
    """An observer that calls one function with the context of each iteration, one with the end of the run."""
    started: RunStarted | None = None

    def observe(event: Event) -> Any:
        nonlocal started
        if isinstance(event, IterationFinished) and on_iteration is not None:
            return on_iteration(event.context)
        if isinstance(event, RunStarted):
            started = event
        elif isinstance(event, RunFinished) and on_complete is not None and started is not None:
            return on_complete(RunSummary.of(started, event))
        return None

    return observe


Deliver: TypeAlias = Callable[[Event], Awaitable[None] | None]
"""Passes an event to all observers of a run; the result has to be awaited if it is not None."""


class Observers:
    """Several observers as one; each receives the events in the order of their numbers, from the counter."""

    def __init__(self, observers: Iterable[Observer], counter: EventCounter) -> None:
        self._observers = tuple(observers)
        self._counter = counter
        self._latest: _Delivery | None = None

    def deliver(self, event: Event) -> Awaitable[None] | None:
        """Call all, in one thread, one event after another; the result has to be awaited if it is not None."""
        self._counter.latest += 1
        try:
            number(event, self._counter.latest)
        except TypeError:  # an object of a custom stage that is no event: it has no number
            self._counter.latest -= 1
        before = self._latest
        waits = self._call_from(0, event, before)
        return None if waits is None else self._go_on(event, before, *waits)

    def _call_from(
        self, index: int, event: Event, before: _Delivery | None
    ) -> tuple[int, Awaitable[Any]] | None:
        """Call the observers from an index on; return where to go on and after what, unless all were called."""
        for observer in self._observers[index:]:
            if before is not None and before.next_index <= index:
                return index, before.passes(index)
            index += 1
            try:
                result = observer(event)
                if result is not None and is_awaitable(result):
                    return index, result
            except BaseException as error:  # noqa: BLE001 - see `_failed`
                self._failed(event, index, error)
        return None

    async def _go_on(
        self, event: Event, before: _Delivery | None, index: int, waiting: Awaitable[Any]
    ) -> None:
        """Await what an event waits for, and call the other observers; later events may arrive meanwhile."""
        delivery = self._latest = _Delivery(index)
        waits: tuple[int, Awaitable[Any]] | None = index, waiting
        try:
            while waits is not None:
                index, waiting = waits
                delivery.move(index)
                try:
                    await waiting
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - of an observer, or a cancellation
                    self._failed(event, index, error)
                waits = self._call_from(index, event, before)
        finally:
            delivery.move(len(self._observers))
            if self._latest is delivery:
                self._latest = None

    def _failed(self, event: Event, index: int, error: BaseException) -> None:
        """Log the failure of an observer; re-raise a cancellation or an interrupt, after the other observers."""
        if isinstance(error, Exception) or is_exit(error):
            log.error("an observer raised at %s", type(event).__name__, exc_info=error)
            return
        # Nothing can be awaited now. An observer that misses the start of a run cannot handle its end.
        while (waits := self._call_from(index, event, None)) is not None:
            index, waiting = waits
            if isinstance(waiting, Coroutine):
                waiting.close()  # pyright: ignore[reportUnknownMemberType]
        raise error


class Changed:
    """Wakes the tasks that wait for a change."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        """Wake the tasks that wait."""
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        if self._event is None:
            import anyio  # noqa: PLC0415 - slow to import

            self._event = anyio.Event()
        await self._event.wait()


class _Delivery(Changed):
    """An event on its way through the observers; the index is that of the first that has not received it."""

    def __init__(self, next_index: int) -> None:
        super().__init__()
        self.next_index = next_index

    def move(self, next_index: int) -> None:
        """Note that further observers have received the event."""
        self.next_index = next_index
        self.notify()

    async def passes(self, index: int) -> None:
        """Wait until an observer has received the event."""
        while self.next_index <= index:
            await self.wait()
