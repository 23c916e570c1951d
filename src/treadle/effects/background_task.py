"""A task that runs next to the body of an ``async with``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio

from treadle.effects.carriers import cancellations_of_task


def _first_of(errors: BaseExceptionGroup[BaseException], cancellations: int) -> BaseException:
    """Return what to raise instead of a group: its first error, with its cause and context.

    Args:
        errors: the group.
        cancellations: how often this task had been asked to cancel when the group began. If it was
            asked since, the group has lost that cancellation to the error, and it comes first.
    """
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = cast("Any", first).exceptions[0]
    if isinstance(first, Exception) and cancellations_of_task() > cancellations:
        cancelled = asyncio.CancelledError()
        cancelled.__cause__ = first
        return cancelled
    return first


@asynccontextmanager
async def background_task(task: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncGenerator[None]:
    """Run a task next to the body of an ``async with``, and cancel it when the body ends.

    An exception of either ends the other, and is raised without a group.
    """
    cancellations = cancellations_of_task()
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(task)
            yield
            group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        failure = _first_of(errors, cancellations)
    if failure is not None:
        raise failure
