"""The event loop on which connections live, in a thread that belongs to no run."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from treadle.effects import Signal, run_on_loop
from treadle.effects.background import LOOK_UP_SECONDS

R = TypeVar("R")


class Home:
    """An event loop in a daemon thread.

    A connection is bound to one event loop, but runs are not: they use asyncio, trio or no loop at all, in any
    thread. So they send their calls here.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        # A daemon: a program that never closes its connections must be able to exit.
        self._thread = threading.Thread(target=self._run, name="treadle-mcp", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(
            loop_factory=lambda: self._loop
        ) as runner:  # it cancels what still runs
            runner.run(self._live())

    async def _live(self) -> None:
        await self._ended.wait()

    async def call(self, fn: Callable[..., Coroutine[Any, Any, R]], *args: Any) -> R:
        """Await a coroutine function here, from a task of any event loop; cancelling the task cancels it.

        Args:
            fn: the function.
            *args: its arguments.
        """
        from treadle.effects.signal_bridge import wait_for  # noqa: PLC0415 - it imports anyio

        done = Signal()
        future = run_on_loop(self._loop, fn(*args))
        future.add_done_callback(lambda _: done.set())
        try:
            await wait_for(done)
        finally:
            future.cancel()
        made: R = future.result()
        return made

    def call_sync(self, fn: Callable[..., Coroutine[Any, Any, R]], *args: Any) -> R:
        """Await a coroutine function here, from a thread that may block; an interrupt cancels it."""
        future = run_on_loop(self._loop, fn(*args))
        try:
            while not future.done():
                concurrent.futures.wait([future], LOOK_UP_SECONDS)
        finally:
            future.cancel()
        made: R = future.result()
        return made

    def close(self) -> None:
        """End the loop; the thread ends soon."""
        self._loop.call_soon_threadsafe(self._ended.set)
