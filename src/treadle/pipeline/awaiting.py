"""Changing what an awaitable comes to, without losing it where it is never awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any, TypeVar

R = TypeVar("R")


class Then(Coroutine[Any, Any, R]):
    """A coroutine of what a function makes of an awaitable's outcome.

    It has no frame of its own, so that one which is cancelled before it began reaches the awaitable
    itself: wrapped in an ``async def`` it would be left over, and Python would warn of it.

    Args:
        awaitable: a coroutine, or anything else that can be awaited.
        change: takes the outcome, returns another.
    """

    __slots__ = ("_change", "_inner")

    def __init__(self, awaitable: Awaitable[Any], change: Callable[[Any], R]) -> None:
        is_one = type(awaitable) is CoroutineType or isinstance(awaitable, Coroutine)
        self._inner: Coroutine[Any, Any, Any] = awaitable if is_one else _awaited(awaitable)  # type: ignore[assignment]
        self._change = change

    def send(self, value: Any) -> Any:
        """Go on; see `collections.abc.Coroutine`."""
        try:
            return self._inner.send(value)
        except StopIteration as stop:
            outcome = stop.value
        raise StopIteration(self._change(outcome))

    def throw(self, *error: Any) -> Any:
        """Raise an exception where it waits; see `collections.abc.Coroutine`."""
        try:
            return self._inner.throw(*error)
        except StopIteration as stop:
            outcome = stop.value
        raise StopIteration(self._change(outcome))

    def close(self) -> None:
        """End it; see `collections.abc.Coroutine`."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, R]:
        outcome = yield from self._inner.__await__()
        return self._change(outcome)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
