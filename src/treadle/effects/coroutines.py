"""Coroutines that change the outcome of another, or run it with other context variables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from types import CoroutineType, coroutine
from typing import Any, TypeVar

from treadle.effects.effects import is_awaitable
from treadle.effects.middleware import intercept

R = TypeVar("R")


class Then(Coroutine[Any, Any, R]):
    """A coroutine that applies a function to the outcome of an awaitable.

    It has no frame, so a cancellation before the start reaches the awaitable itself. In an ``async def``
    wrapper, the awaitable would never be awaited, and Python would warn.

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
        self._inner = coroutine_of(awaitable)
        self._change = change
        self._failed = failed

    def send(self, value: Any) -> Any:
        """Continue; see `collections.abc.Coroutine`."""
        return self._advanced(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception where it waits; see `collections.abc.Coroutine`."""
        return self._advanced(self._inner.throw, *error)

    def _advanced(self, advance: Callable[..., Any], *args: Any) -> Any:
        try:
            return advance(*args)
        except StopIteration as stop:
            changed: Any = self._change(stop.value)
        except Exception as error:
            if self._failed is None:
                raise
            changed = self._failed(error)
        if not is_awaitable(changed):
            raise StopIteration(changed)
        self._inner, self._change, self._failed = coroutine_of(changed), _same, None
        return self.send(None)

    def close(self) -> None:
        """End it; see `collections.abc.Coroutine`."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, R]:
        try:
            changed: Any = self._change((yield from self._inner.__await__()))
        except Exception as error:
            if self._failed is None:
                raise
            changed = self._failed(error)
        return (yield from changed.__await__()) if is_awaitable(changed) else changed


@coroutine
def in_context(awaitable: Awaitable[R], context: Context) -> Generator[Any, Any, R]:
    """Await something in a context, which is entered for each of its steps, whichever task awaits this."""
    waits: Any = coroutine_of(awaitable)
    return (yield from intercept(waits, _same, context.run))


def _same(outcome: Any) -> Any:
    return outcome


def coroutine_of(awaitable: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    """Return the awaitable itself if it is a coroutine, else a coroutine that awaits it."""
    if type(awaitable) is CoroutineType or isinstance(awaitable, Coroutine):
        return awaitable  # pyright: ignore[reportUnknownVariableType]
    return _awaited(awaitable)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
