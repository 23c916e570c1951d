"""Task groups that raise one error, and never lose a cancellation to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio


def cancellations_of_task() -> int:
    """How often this task was asked to cancel; trio has cancellations of a class of its own."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


def one_of(errors: BaseExceptionGroup[BaseException], cancellations: int) -> BaseException:
    """What to raise in place of a group: its first error, with the cause and context that has.

    Args:
        errors: the group.
        cancellations: how often this task had been asked to cancel when the group began. If it was
            asked since, the group has lost that to the error, and it comes first.
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
async def companion(task: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncGenerator[None]:
    """Run a task beside the body of an ``async with``, and cancel it when the body ends.

    What either of the two raises ends the other, and is raised by itself.
    """
    cancellations = cancellations_of_task()
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(task)
            yield
            group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        failure = one_of(errors, cancellations)
    if failure is not None:
        raise failure
