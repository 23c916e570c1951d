"""Coroutines that change the outcome of another, or run it with other context variables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from types import CoroutineType, coroutine
from typing import Any, TypeVar

from treadle.effects.effects import is_awaitable
from treadle.effects.middleware import intercept

R = TypeVar("R")


class Frameless(Coroutine[Any, Any, R]):
    """A coroutine of ``steps`` that await ``inner``; before their first, a cancellation reaches ``inner`` itself.

    In an ``async def`` wrapper, it would never be awaited, and Python would warn.
    """

    def __init__(self, inner: Coroutine[Any, Any, Any], steps: Generator[Any, Any, R]) -> None:
        self._steps = steps
        self._running: Any = inner

    def send(self, value: Any) -> Any:
        """Continue; see `collections.abc.Coroutine`."""
        self._running = self._steps
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception where it waits; see `collections.abc.Coroutine`."""
        return self._running.throw(*error)

    def close(self) -> None:
        """End it; see `collections.abc.Coroutine`."""
        self._running.close()

    def __await__(self) -> Generator[Any, Any, R]:
        self._running = self._steps
        return self._steps


class Then(Frameless[R]):
    """A coroutine that applies a function to the outcome of an awaitable.

    Args:
        awaitable: a coroutine, or anything else that can be awaited.
        change: takes the outcome, returns another, or an awaitable of it.
        failed: takes an exception of the awaitable, returns an awaitable that raises it; None raises it at once.
    """

    def __init__(
        self,
        awaitable: Awaitable[Any],
        change: Callable[[Any], Any],
        failed: Callable[[Exception], Awaitable[R]] | None = None,
    ) -> None:
        inner = coroutine_of(awaitable)
        super().__init__(inner, _changed(inner, change, failed))


def _changed(
    inner: Awaitable[Any],
    change: Callable[[Any], Any],
    failed: Callable[[Exception], Awaitable[Any]] | None,
) -> Generator[Any, Any, Any]:
    try:
        outcome: Any = change((yield from inner.__await__()))
    except Exception as error:
        if failed is None:
            raise
        outcome = failed(error)
    return (yield from outcome.__await__()) if is_awaitable(outcome) else outcome


@coroutine
def in_context(awaitable: Awaitable[R], context: Context) -> Generator[Any, Any, R]:
    """Await something in a context, which is entered for each of its steps, whichever task awaits this."""
    waits: Any = coroutine_of(awaitable)
    return (yield from intercept(waits, same, context.run))


def same(outcome: Any) -> Any:
    """Return the argument."""
    return outcome


def coroutine_of(awaitable: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    """Return the awaitable itself if it is a coroutine, else a coroutine that awaits it."""
    if type(awaitable) is CoroutineType or isinstance(awaitable, Coroutine):
        return awaitable  # pyright: ignore[reportUnknownVariableType]
    return _awaited(awaitable)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
