"""Functions and awaitables that run with a given OpenTelemetry context, and so with its current span."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from opentelemetry.context import Context, attach, detach

from treadle.effects import is_awaitable


def in_context(context: Context, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it runs in a context, in whichever thread or task it is called.

    An awaitable that it returns is awaited in that context, too.
    """

    def run(*args: Any) -> Any:
        token = attach(context)
        try:
            value = fn(*args)
        finally:
            detach(token)
        return _Attached(value, context) if is_awaitable(value) else value

    return run


class _Attached(Coroutine[Any, Any, Any]):
    """An awaitable with a context attached from its first step to its last.

    It is not an ``async def``: if it is cancelled before its first step, the cancellation has to reach the
    awaitable itself, or Python would warn that it was never awaited. It uses the context variables of its
    task and not a copy of them, so that telemetry does not change which variables the awaitable sees.
    """

    __slots__ = ("_context", "_inner", "_steps")

    def __init__(self, awaitable: Awaitable[Any], context: Context) -> None:
        self._inner: Coroutine[Any, Any, Any] = (
            awaitable if isinstance(awaitable, Coroutine) else _awaited(awaitable)
        )
        self._context = context
        self._steps: Generator[Any, Any, Any] | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        return _attached(self._inner, self._context)

    def send(self, value: Any) -> Any:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        return (self._steps or self._inner).throw(*error)

    def close(self) -> None:
        (self._steps or self._inner).close()


def _attached(inner: Coroutine[Any, Any, Any], context: Context) -> Generator[Any, Any, Any]:
    token = attach(context)
    try:
        value = yield from inner.__await__()
    except GeneratorExit:
        # It was dropped, and is closed in a context in which it was not attached.
        raise
    except BaseException:
        detach(token)
        raise
    detach(token)
    return value


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
