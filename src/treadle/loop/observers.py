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


def of_iterations(on_iteration: Callable[[Context], Any]) -> Observer:
    """An observer that calls a function with the context of each finished iteration."""

    def observe(event: Event) -> Any:
        return on_iteration(event.context) if isinstance(event, IterationFinished) else None

    return observe


def of_completion(on_complete: Callable[[RunSummary], Any]) -> Observer:
    """An observer that calls a function with the completion of a run."""
    started: RunStarted | None = None

    def observe(event: Event) -> Any:
        nonlocal started
        if isinstance(event, RunStarted):
            started = event
        elif isinstance(event, RunFinished) and started is not None:
            return on_complete(RunSummary.of(started, event))
        return None

    return observe


Deliver: TypeAlias = Callable[[Event], Awaitable[None] | None]
"""Passes an event to all observers of a run; the result has to be awaited if it is not None."""


class Observers:
    """Several observers as one: a driver calls `deliver`. It numbers the events.

    A driver calls the observers of a run in one thread, one event after another.

    Args:
        observers: called in this order. Each of them receives the events in the order of their numbers.
        counter: numbers the events.
    """

    def __init__(self, observers: Iterable[Observer], counter: EventCounter) -> None:
        self._observers = tuple(observers)
        self._counter = counter
        self._latest: _Delivery | None = None

    def deliver(self, event: Event) -> Awaitable[None] | None:
        """Call all of them; the result has to be awaited if it is not None."""
        counter, place = self._counter, 0
        counter.latest = seq = counter.latest + 1
        try:
            number(event, seq)
        except TypeError:  # an object of a custom stage that is no event: it has no number
            counter.latest -= 1
        for observer in self._observers:
            latest = self._latest
            if latest is not None and latest.next_place <= place:
                return self._go_on(event, None, place)
            place += 1
            try:
                result = observer(event)
            except BaseException as error:
                if not _is_failure(error):
                    self._call_now(event, place)
                    raise
                _report(event, error)
                continue
            if result is not None and is_awaitable(result):
                return self._go_on(event, result, place)
        return None

    async def _go_on(self, event: Event, result: Awaitable[Any] | None, place: int) -> None:
        """Await an observer and call the others, each after it has received the earlier events.

        Args:
            event: the event.
            result: what the observer returned; None if there is nothing to await.
            place: the index of the next observer.
        """
        before = self._latest
        delivery = self._latest = _Delivery(place)
        try:
            while True:
                try:
                    waiting, result = result, None
                    if waiting is not None and is_awaitable(waiting):
                        await waiting
                    if place == len(self._observers):
                        return
                    if before is not None:
                        await before.passes(place)
                    place += 1
                    result = self._observers[place - 1](event)
                except BaseException as error:
                    if not _is_failure(error):
                        raise
                    _report(event, error)
                delivery.move(place)
        except GeneratorExit:
            raise
        except BaseException:
            self._call_now(event, place)
            raise
        finally:
            delivery.move(len(self._observers))
            if self._latest is delivery:
                self._latest = None

    def _call_now(self, event: Event, place: int) -> None:
        """Call the others during an interrupt, when nothing can be awaited.

        An observer that misses the start of a run cannot handle its end.
        """
        for observer in self._observers[place:]:
            try:
                result = observer(event)
            except Exception as error:  # noqa: BLE001 - an observer may raise anything
                _report(event, error)
                continue
            if isinstance(result, Coroutine):
                result.close()  # pyright: ignore[reportUnknownMemberType]


class _Delivery:
    """An event on its way through the observers, while one of them is awaited.

    Args:
        next_place: the index of the first observer that has not received the event.
    """

    __slots__ = ("_moved", "next_place")

    def __init__(self, next_place: int) -> None:
        self.next_place = next_place
        self._moved: anyio.Event | None = None

    def move(self, next_place: int) -> None:
        """Note that further observers have received the event."""
        self.next_place = next_place
        moved, self._moved = self._moved, None
        if moved is not None:
            moved.set()

    async def passes(self, place: int) -> None:
        """Wait until an observer has received the event."""
        while self.next_place <= place:
            if self._moved is None:
                import anyio  # noqa: PLC0415 - slow to import

                self._moved = anyio.Event()
            await self._moved.wait()


def _is_failure(error: BaseException) -> bool:
    """Whether the exception of an observer is its failure, and not a cancellation or an interrupt of the run."""
    return isinstance(error, Exception) or is_exit(error)


def _report(event: Event, error: BaseException) -> None:
    log.error("an observer raised at %s", type(event).__name__, exc_info=error)
