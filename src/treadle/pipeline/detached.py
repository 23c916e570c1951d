"""Awaiting what may not end when it is told to: in a task of its own, which can be left behind.

A coroutine can catch its cancellation and go on, or shield itself from it; whoever awaits it in the
usual way then waits for as long as it likes. Here the call has a task. When the waiting for it is
cancelled, the task is cancelled too, and has a moment to end. If it goes on after that, nobody
waits for it any more.

On asyncio the task is kept out of ``asyncio.all_tasks()``: ``asyncio.run`` cancels those, and waits
for them, before it returns. Whoever waits for the call here sees to its end, and a program can
leave though a call never ends. On trio it cannot: ``trio.run`` returns when every task has ended.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from treadle.pipeline.closing import log, report
from treadle.pipeline.effects import Call, CallCancelled
from treadle.pipeline.listening import trio_here


async def call_detached(effect: Call, grace: float) -> Any:
    """Make a call in a task of its own, and wait for it.

    Args:
        effect: the call; what its callable returns is awaited.
        grace: how many seconds the call has to end once the waiting for it is cancelled.

    Returns:
        What the call comes to, as with a plain ``await``.

    Raises:
        CallCancelled: the call was cancelled, though nobody had cancelled the waiting for it.
    """
    trio = trio_here()
    if trio is None:
        return await _on_asyncio(effect, grace)
    return await _on_trio(trio, effect, grace)


class _Outcome:
    """What comes of a call, kept apart from its task: the task itself never fails.

    An exception that stays in a task is logged where nobody asks for it, and an interrupt in one
    ends the loop before those who wait can leave things in order.
    """

    __slots__ = ("error", "is_there", "value")

    def __init__(self) -> None:
        self.is_there = False
        self.value: Any = None
        self.error: BaseException | None = None

    async def of(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Make the call."""
        try:
            self.value = await fn(*args)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is waited for
            self.error = error
        self.is_there = True

    def take(self) -> Any:
        """Return what the call returned, or raise what it raised."""
        error, self.error = self.error, None  # its traceback leads to this object: no circles
        try:
            if error is None and self.is_there:
                return self.value
            if error is None or isinstance(error, _CANCELLATIONS):
                raise CallCancelled("it was cancelled from within") from error
            raise error
        finally:
            del error

    def drop(self) -> None:
        """Pass over what came of a call that was cancelled; only an interrupt is everybody's."""
        error, self.error = self.error, None
        if isinstance(error, Exception):
            report(error)
        elif error is not None and not isinstance(error, _CANCELLATIONS):
            raise error


_CANCELLATIONS = (asyncio.CancelledError, concurrent.futures.CancelledError)


def _tell_left(effect: Call, grace: float) -> None:
    log.warning("%r still goes on %g s after it was cancelled: it is left behind", effect, grace)


async def _on_asyncio(effect: Call, grace: float) -> Any:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    outcome = _Outcome()

    async def work() -> None:
        if not ended.cancelled():  # else who waits was cancelled before the call was made
            await outcome.of(effect.fn, *effect.args)
            end()

    def end(_: object = None) -> None:
        if not ended.done():
            ended.set_result(None)

    task = loop.create_task(work())
    asyncio._unregister_task(task)  # noqa: SLF001 - it is documented, for tasks of one's own
    task.add_done_callback(end)  # for a task that others cancel before it begins
    try:
        await ended
    except GeneratorExit:  # nothing can be awaited any more
        with contextlib.suppress(RuntimeError):  # the loop is closed
            task.cancel()
        raise
    except BaseException:
        task.cancel()
        if await _ends(task, grace):
            outcome.drop()
        else:
            _tell_left(effect, grace)
            _leave(task)
        raise
    return outcome.take()


async def _ends(task: asyncio.Task[None], grace: float) -> bool:
    """Wait for a task, whatever is cancelled meanwhile; tell whether it ended in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    with anyio.CancelScope(shield=True):
        while not task.done() and (left := deadline - loop.time()) > 0:
            # Who waits is cancelled already; to be cancelled again tells nothing new.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,), timeout=left)
    return task.done()


def _leave(task: asyncio.Task[None]) -> None:
    left = _left_behind()
    left.add(task)
    task.add_done_callback(left.discard)


@functools.cache
def _left_behind() -> set[asyncio.Task[None]]:
    """The tasks that were left behind and go on, held for good.

    Python closes a coroutine that nobody holds, and one that catches everything would catch that as
    well and never return. When the interpreter leaves, only what a daemon thread holds is left
    alone.
    """
    tasks: set[asyncio.Task[None]] = set()
    keeper = threading.Thread(target=_hold, args=(tasks,), name="treadle-left-behind", daemon=True)
    with contextlib.suppress(RuntimeError):  # the system has no more threads to give
        keeper.start()
    return tasks


def _hold(_: object) -> None:
    threading.Event().wait()


async def _on_trio(trio: Any, effect: Call, grace: float) -> Any:
    await trio.lowlevel.checkpoint_if_cancelled()
    ended, stop, shelter = trio.Event(), trio.CancelScope(), trio.CancelScope()
    outcome = _Outcome()

    async def bounded() -> Any:
        with stop, shelter:
            return await effect.fn(*effect.args)

    async def work() -> None:
        await outcome.of(bounded)
        ended.set()

    trio.lowlevel.spawn_system_task(work, context=contextvars.copy_context())
    try:
        await ended.wait()
    except (trio.Cancelled, KeyboardInterrupt):
        stop.cancel()
        with trio.move_on_after(grace, shield=True):
            await ended.wait()
        if ended.is_set():
            outcome.drop()
        else:
            _tell_left(effect, grace)
            shelter.shield = True  # else each of its waits is cancelled at once, and it spins
        raise
    return outcome.take()
