"""The event loop on which connections live, in a thread that belongs to no run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from treadle.effects import BackgroundCall, Signal
from treadle.mcp.errors import MCPConnectionError

R = TypeVar("R")


class ClientThread:
    """An event loop in a daemon thread.

    A connection is bound to one event loop, but runs are not: they use asyncio, trio or no loop at all, in any
    thread. So they send their calls here.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._mutex = threading.Lock()
        self._is_closed = False
        # A daemon: a program that never closes its connections must be able to exit.
        threading.Thread(target=self._run, name="treadle-mcp", daemon=True).start()

    def _run(self) -> None:
        """Run the loop until it is closed; calls that still run then are cancelled."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._ended.wait())

    def _start(
        self, fn: Callable[..., Coroutine[Any, Any, R]], args: Sequence[Any]
    ) -> BackgroundCall:
        with self._mutex:
            if self._is_closed:
                raise MCPConnectionError(_DISCONNECTED)
            return BackgroundCall(fn(*args), self._loop).start()

    async def call(self, fn: Callable[..., Coroutine[Any, Any, R]], *args: Any) -> R:
        """Await a coroutine function here, from a task of any event loop; cancelling the task cancels it.

        Args:
            fn: the function.
            *args: its arguments.

        Raises:
            MCPConnectionError: the loop was closed before the function returned.
            Exception: what the function raised.
        """
        from treadle.effects.event_loop import wait_for  # noqa: PLC0415 - it imports anyio

        done = Signal()
        future = self._start(fn, args)
        future.add_done_callback(lambda _: done.set())
        try:
            await wait_for(done)
        finally:
            future.cancel()
        return _value_of(future)

    def call_sync(self, fn: Callable[..., Coroutine[Any, Any, R]], *args: Any) -> R:
        """As `call`, from a thread that may block; an interrupt cancels the function."""
        return _value_of(self._start(fn, args))

    def close(self) -> None:
        """End the loop; the thread ends soon. Calling it again does nothing."""
        with self._mutex:  # no call starts after the loop has ended: it would wait forever
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._ended.set)


_DISCONNECTED = "the MCP server was disconnected"


def _value_of(future: BackgroundCall) -> Any:
    """The result of a call that its caller has not cancelled."""
    try:
        return future.wait()
    except asyncio.CancelledError:  # one of asyncio, which must not reach a caller on trio
        raise MCPConnectionError(_DISCONNECTED) from None
