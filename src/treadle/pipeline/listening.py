"""Hearing of a signal on an event loop, whichever thread or process signal sets it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import anyio

from treadle.pipeline.effects import Signal


async def wait_for(signal: Signal) -> None:
    """Wait until a signal is set."""
    if not signal.is_set:
        event = anyio.Event()
        unsubscribe = tell(signal, event.set)
        try:
            await event.wait()
        finally:
            unsubscribe()


def trio_here() -> Any:
    """The module ``trio`` where it runs the code that asks, else None; it is never imported."""
    trio: Any = sys.modules.get("trio")
    return trio if trio is not None and trio.lowlevel.in_trio_task() else None


def tell(signal: Signal, callback: Callable[[], object]) -> Callable[[], None]:
    """Subscribe a function that must run on this event loop, whichever thread sets the signal.

    That thread never waits for the loop: the loop may be waiting for it.
    """
    home = threading.get_ident()
    in_task, soon = _in_trio() or _in_asyncio()

    def on_loop() -> None:
        if threading.get_ident() == home and in_task():
            callback()
        else:  # another thread, or the handler of a process signal, which finds the loop asleep
            with contextlib.suppress(RuntimeError):  # the loop ended first: nobody waits
                soon(callback)

    return signal.subscribe(on_loop)


_Loop: TypeAlias = tuple[Callable[[], bool], Callable[[Callable[[], object]], object]]
"""Of an event loop: whether a task of it runs in this thread, and how to have it call something."""


def _in_trio() -> _Loop | None:
    trio = trio_here()
    if trio is None:
        return None
    return trio.lowlevel.in_trio_task, trio.lowlevel.current_trio_token().run_sync_soon


def _in_asyncio() -> _Loop:
    loop = asyncio.get_running_loop()
    return lambda: asyncio.current_task(loop) is not None, loop.call_soon_threadsafe
