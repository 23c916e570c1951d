"""The bridge between an event loop and signals, which any thread may set."""

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
    """The module ``trio`` if it runs the current task, else None; it is never imported.

    Asyncio is checked first: a trio that is only imported must not affect an asyncio program.
    """
    try:
        if asyncio.current_task() is not None:
            return None
    except RuntimeError:
        pass
    return sys.modules.get("trio")


def subscribe_on_loop(signal: Signal, callback: Callable[[], object]) -> object:
    """Subscribe a function that must run on this event loop, whichever thread sets the signal.

    That thread never waits for the loop: the loop may be waiting for it.

    Returns:
        The ticket of the subscription.
    """
    trio = running_trio()
    current_task: Callable[[], object] = (
        asyncio.current_task if trio is None else trio.lowlevel.current_task
    )
    soon = soon_on_loop()
    home = threading.get_ident()
    return signal.subscribe(lambda: call_on_loop(callback, home, soon, current_task))


Soon: TypeAlias = Callable[[Callable[[], object]], object]


def soon_on_loop() -> Soon:
    """The function that schedules a call on this event loop, from any thread; equal for the same loop only.

    Raises:
        RuntimeError: no event loop runs here.
    """
    trio = running_trio()
    if trio is None:
        return asyncio.get_running_loop().call_soon_threadsafe
    soon: Soon = trio.lowlevel.current_trio_token().run_sync_soon
    return soon


def call_on_loop(
    callback: Callable[[], object], home: int, soon: Soon, current_task: Callable[[], object]
) -> None:
    """Call a function on the event loop: at once in one of its tasks, else soon.

    Args:
        callback: the function.
        home: the thread of the loop.
        soon: schedules a call on the loop, from any thread.
        current_task: returns the task that the loop runs; raises `RuntimeError` if no loop runs.
    """
    if threading.get_ident() == home:
        with contextlib.suppress(RuntimeError):  # no loop runs
            if current_task() is not None:
                callback()
                return
    # Called in another thread, or by the handler of a process signal while the loop sleeps.
    with contextlib.suppress(RuntimeError):  # the loop has ended, and its tasks with it
        soon(callback)


async def wait_for(signal: Signal) -> None:
    """Wait until a signal is set."""
    if not signal.is_set:
        event = anyio.Event()
        ticket = subscribe_on_loop(signal, event.set)
        try:
            await event.wait()
        finally:
            signal.unsubscribe(ticket)
