"""Observers: who is told of events. One that raises is reported, and changes nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from treadle.context import Context
from treadle.effects import is_awaitable
from treadle.events import Completion, Event, IterationFinished, RunFinished, RunStarted

log = logging.getLogger("treadle.loop")

Observer: TypeAlias = Callable[[Event], Any]
"""Takes an event; sync or async. The run waits for it, so that a slow one holds the run up.

One that is told of several runs at once, and has to tell them apart, has a method ``for_run()`` that makes an
observer for one run, or returns None where nobody looks; it is asked before each.
"""


def for_run(observer: Observer) -> Observer | None:
    """The observer to tell of one run: one that it makes for it, or itself; None where nobody looks."""
    # Of its class, as methods with a meaning are: a mock has every attribute that it is asked for.
    makes = callable(getattr(type(observer), "for_run", None))
    made: Observer | None = observer.for_run() if makes else observer  # type: ignore[attr-defined]
    return made


def of_iterations(on_iteration: Callable[[Context], Any]) -> Observer:
    """An observer that hands on the context of each finished iteration."""

    def observe(event: Event) -> Any:
        return on_iteration(event.context) if isinstance(event, IterationFinished) else None

    return observe


def of_completion(on_complete: Callable[[Completion], Any]) -> Observer:
    """An observer that hands on what a run came to, once it is over."""
    started: RunStarted | None = None

    def observe(event: Event) -> Any:
        nonlocal started
        if isinstance(event, RunStarted):
            started = event
        elif isinstance(event, RunFinished) and started is not None:
            return on_complete(Completion.of(started, event))
        return None

    return observe


class Observers:
    """Several observers as one, for a driver to hand events to.

    Args:
        observers: are told in this order.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)

    def __call__(self, event: Event) -> Awaitable[None] | None:
        """Tell all; the outcome is None, or has to be awaited where one of them is async."""
        for place, observer in enumerate(self._observers):
            try:
                told = observer(event)
            except Exception:  # noqa: BLE001 - whatever it is, it is the observer's
                _report(event)
                continue
            except BaseException:
                self._tell_at_once(event, place + 1)
                raise
            if is_awaitable(told):
                return self._go_on(event, told, place + 1)
        return None

    async def _go_on(self, event: Event, told: Awaitable[Any], place: int) -> None:
        try:
            await told
        except Exception:  # noqa: BLE001 - as above
            _report(event)
        except GeneratorExit:
            raise
        except BaseException:
            self._tell_at_once(event, place)
            raise
        rest = Observers(self._observers[place:])(event)
        if rest is not None:
            await rest

    def _tell_at_once(self, event: Event, place: int) -> None:
        """Tell the others while an interrupt is under way: who misses the start of a run is lost at its end.

        It is too late for what has to be awaited.
        """
        for observer in self._observers[place:]:
            try:
                told = observer(event)
            except Exception:  # noqa: BLE001 - as above
                _report(event)
                continue
            if isinstance(told, Coroutine):
                told.close()  # pyright: ignore[reportUnknownMemberType]


def _report(event: Event) -> None:
    log.error("an observer raised at %s", type(event).__name__, exc_info=sys.exc_info())
