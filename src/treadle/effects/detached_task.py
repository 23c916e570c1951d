"""Tasks that belong to no task and no cancel scope of the code that starts them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from typing import Any, TypeVar

import anyio

from treadle.effects.cleanup import CLEANUP_SECONDS, log_abandoned, log_suppressed, settle
from treadle.effects.event_loop import Soon, running_trio, soon_on_loop

T = TypeVar("T")

LEAVE_SECONDS = 4 * CLEANUP_SECONDS
"""The longest wait for the end of a cancelled task, in seconds. Steps end earlier by themselves; other code may
ignore its cancellation."""


_tasks: set[asyncio.Task[None]] = set()
"""The tasks in progress: an event loop has only weak references to its tasks."""


class DetachedTask:
    """A task that may be cancelled from another task than the one that starts it, and from another thread.

    It is a task of the event loop on asyncio, and a system task on trio. The starting task enters no cancel scope.
    An exception of this task waits for `take_error`, `wait` or `leave`.

    Args:
        work: an async function.
        on_cancel: is called on the event loop before the task is cancelled.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, object]],
        on_cancel: Callable[[], object] = lambda: None,
    ) -> None:
        self._work: Callable[[], Any] = work
        self._on_cancel = on_cancel
        self._soon: Soon = soon_on_loop()
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._error: BaseException | None = None
        trio = running_trio()
        if trio is not None:
            trio.lowlevel.spawn_system_task(self._run, context=copy_context())
            return
        task = asyncio.get_running_loop().create_task(self._run())
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        task.add_done_callback(lambda _: self._end())  # one that is cancelled early never runs

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._work()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - raised in the task of the caller
            if not isinstance(error, anyio.get_cancelled_exc_class()):  # else the event loop ends
                self._error = error
        self._end()

    def _end(self) -> None:
        self._ended.set()
        self._work = self._on_cancel = lambda: None  # they may refer to this object: avoid a cycle

    def take_error(self) -> BaseException | None:
        """Return the exception with which the task ended, once: the caller has to raise it."""
        error, self._error = self._error, None
        return error

    def cancel(self) -> None:
        """Cancel the task soon; from any thread."""
        if not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # the event loop has ended, with the task
                self._soon(self._cancel)

    def _cancel(self) -> None:
        if not self._ended.is_set():
            self._on_cancel()
            self._scope.cancel()

    async def wait(self) -> None:
        """Wait for the end of the task, and raise its exception, if there is one."""
        await self._ended.wait()
        settle([(None, self.take_error())])

    async def leave(self, error: BaseException | None) -> None:
        """Cancel the task, and wait for its end, if this event loop runs it.

        A cancellation of the caller that arrives meanwhile is raised; or the exception of the task, if the body
        has ended without one, or if it is an interrupt.
        """
        is_here = False
        with contextlib.suppress(RuntimeError):  # no event loop runs
            is_here = self._soon == soon_on_loop()
        if not is_here:
            return self.cancel()
        self._cancel()
        cancelled, failure = await self._wait(), self.take_error()
        try:
            if failure is None or isinstance(failure, Exception):
                if cancelled is not None:
                    raise cancelled from failure
                if failure is not None and error is not None:
                    return log_suppressed(failure)
            if failure is not None:
                raise failure
        finally:
            del error, cancelled, failure  # their tracebacks refer to this frame

    async def _wait(self) -> BaseException | None:
        """Wait for the end of the task; return a cancellation of the caller that arrived meanwhile."""
        cancelled: BaseException | None = None
        deadline = anyio.current_time() + LEAVE_SECONDS
        while not self._ended.is_set():
            scope = anyio.CancelScope(deadline=deadline, shield=True)
            try:
                with scope:
                    await self._ended.wait()
            except asyncio.CancelledError as error:  # which a shield does not hold off
                cancelled = error
            if scope.cancelled_caught:
                log_abandoned(self._work, LEAVE_SECONDS)
                break
        return cancelled


class Detached(AbstractAsyncContextManager[T]):
    """An ``async with`` whose body reads from a `DetachedTask`, which ends with the body, or with this object.

    The body may ``yield``, and be left in another task. This is no generator: the garbage collector may close a
    generator before the one around it. ``start`` starts the task, and returns its reader.
    """

    def __init__(self, start: Callable[[], tuple[T, DetachedTask]]) -> None:
        self._start = start
        self._task: DetachedTask | None = None  # it must not refer to this object

    async def __aenter__(self) -> T:
        if self._task is not None:
            raise RuntimeError("a stream is entered once: make another one")
        reader, self._task = self._start()
        return reader

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._task is not None:
            await self._task.leave(error)

    def __del__(self) -> None:
        if self._task is not None:
            self._task.cancel()
