"""Operations of an event loop for which asyncio and trio have different names; calls from other threads."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import anyio

from treadle.effects.effects import Signal


def running_trio() -> Any:
    """The module ``trio`` if it runs this task or callback, else None; it is never imported."""
    try:
        if asyncio.current_task() is not None:  # trio may run as a guest of this loop
            return None
    except RuntimeError:
        pass
    trio: Any = sys.modules.get("trio")
    return trio if trio is not None and trio.lowlevel.in_trio_run() else None


def call_later(seconds: float, act: Callable[[], object], trio: Any) -> Callable[[], object]:
    """Call a function, which must not raise, on this event loop after some seconds; return one that cancels that.

    Two passes of the loop lie between the time and the call: if the loop was paused, each task gets to run before
    it counts as late.
    """
    wanted = [act]  # emptied by a cancellation, since the function may refer to a whole run

    def fire() -> None:
        if wanted:
            wanted.pop()()

    if trio is None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(0.0, seconds), lambda: loop.call_soon(loop.call_soon, fire))
        end = timer.cancel
    else:
        scope = trio.CancelScope()
        end = scope.cancel

        async def wait() -> None:
            with scope:
                await trio.sleep(max(0.0, seconds))
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
                fire()

        trio.lowlevel.spawn_system_task(wait)

    def cancel() -> None:
        wanted.clear()
        end()

    return cancel


Soon: TypeAlias = Callable[[Callable[[], object]], object]


def soon_on_loop() -> Soon:
    """The function that schedules a call on this event loop, from any thread; equal for the same loop only."""
    trio = running_trio()
    if trio is None:
        return asyncio.get_running_loop().call_soon_threadsafe
    return trio.lowlevel.current_trio_token().run_sync_soon


def caller_on_loop() -> Soon:
    """Make a function for any thread, which calls a function on this event loop: at once in its tasks, else soon.

    It never waits for the loop, which may be waiting for the thread.
    """
    trio = running_trio()
    current_task: Callable[[], object] = (
        asyncio.current_task if trio is None else trio.lowlevel.current_task
    )
    soon, home = soon_on_loop(), threading.get_ident()

    def call(callback: Callable[[], object]) -> None:
        if threading.get_ident() == home:
            with contextlib.suppress(RuntimeError):  # no loop runs
                if current_task() is not None:
                    callback()
                    return
        # Called in another thread, or by the handler of a process signal while the loop sleeps.
        with contextlib.suppress(RuntimeError):  # the loop has ended, and its tasks with it
            soon(callback)

    return call


async def wait_for(signal: Signal) -> None:
    """Wait until a signal is set."""
    if not signal.is_set:
        event, call = anyio.Event(), caller_on_loop()
        ticket = signal.subscribe(lambda: call(event.set))
        try:
            await event.wait()
        finally:
            signal.unsubscribe(ticket)
