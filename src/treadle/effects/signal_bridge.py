"""The bridge between an event loop and signals, which any thread may set."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio

from treadle.effects.effects import Signal


def running_trio() -> Any:
    """The module ``trio`` if it runs the current task, else None; it is never imported.

    Asyncio is asked first: a trio that is merely imported has no say in an asyncio program.
    """
    try:
        if asyncio.current_task() is not None:
            return None
    except RuntimeError:
        pass
    return sys.modules.get("trio")


def subscribe_on_loop(signal: Signal, callback: Callable[[], object]) -> Callable[[], None]:
    """Subscribe a function that must run on this event loop, whichever thread sets the signal.

    That thread never waits for the loop: the loop may be waiting for it.

    Returns:
        A function that cancels the subscription.
    """
    home = threading.get_ident()
    trio = running_trio()
    if trio is None:
        loop = asyncio.get_running_loop()
        soon: Callable[[Callable[[], object]], object] = loop.call_soon_threadsafe
        current_task: Callable[[], object] = functools.partial(asyncio.current_task, loop)
    else:
        soon = trio.lowlevel.current_trio_token().run_sync_soon
        current_task = trio.lowlevel.current_task

    def is_in_task() -> bool:
        try:
            return current_task() is not None
        except RuntimeError:
            return False

    def on_loop() -> None:
        if threading.get_ident() == home and is_in_task():
            callback()
        else:  # another thread, or the handler of a process signal, which finds the loop asleep
            with contextlib.suppress(RuntimeError):  # the loop has ended, and its tasks with it
                soon(callback)

    return signal.subscribe(on_loop)


async def wait_for(signal: Signal) -> None:
    """Wait until a signal is set."""
    if not signal.is_set:
        event = anyio.Event()
        unsubscribe = subscribe_on_loop(signal, event.set)
        try:
            await event.wait()
        finally:
            unsubscribe()
