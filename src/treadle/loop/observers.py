"""Observers: callables that receive events. Their exceptions are logged and do not affect the run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from treadle.context import Context
from treadle.effects import is_awaitable, is_exit
from treadle.events import Completion, Event, IterationFinished, RunFinished, RunStarted

log = logging.getLogger("treadle.loop")

Observer: TypeAlias = Callable[[Event], Any]
"""A callable, sync or async, that receives events. The run waits for it, so a slow observer slows it down.

An observer that needs separate state for each run has a method ``for_run()``. It is called before each run, and
returns an observer for that run, or None.
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


def of_completion(on_complete: Callable[[Completion], Any]) -> Observer:
    """An observer that calls a function with the completion of a run."""
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
    """Several observers as one, which a driver calls.

    Args:
        observers: called in this order.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)

    def __call__(self, event: Event) -> Awaitable[None] | None:
        """Call all of them; the result has to be awaited if it is not None."""
        for place, observer in enumerate(self._observers):
            try:
                result = observer(event)
            except BaseException as error:
                if not _is_failure(error):
                    self._call_now(event, place + 1)
                    raise
                _report(event, error)
                continue
            if result is not None and is_awaitable(result):
                return self._go_on(event, result, place + 1)
        return None

    async def _go_on(self, event: Event, result: Awaitable[Any], place: int) -> None:
        try:
            await result
        except GeneratorExit:
            raise
        except BaseException as error:
            if not _is_failure(error):
                self._call_now(event, place)
                raise
            _report(event, error)
        rest = Observers(self._observers[place:])(event)
        if rest is not None:
            await rest

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


def _is_failure(error: BaseException) -> bool:
    """Whether the exception of an observer is its failure, and not a cancellation or an interrupt of the run."""
    return isinstance(error, Exception) or is_exit(error)


def _report(event: Event, error: BaseException) -> None:
    log.error("an observer raised at %s", type(event).__name__, exc_info=error)
