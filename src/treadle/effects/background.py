"""Calls of async functions without a running event loop, on a loop in a background thread."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import contextvars
import os
import sys
import threading
import time
from collections.abc import Awaitable
from typing import Any, Self

from treadle.effects import cleanup
from treadle.effects.coroutines import coroutine_of

Future = concurrent.futures.Future

LOOK_UP_SECONDS = 0.5
"""The longest uninterrupted wait of a thread, in seconds. Python handles process signals in the main thread,
between two instructions. A signal that arrives just before that thread begins to wait, or in another thread,
does not interrupt the wait, and is handled after it."""

_lock = threading.Lock()
_loops: list[asyncio.AbstractEventLoop] = []
_depth = contextvars.ContextVar("treadle_background_depth", default=0)
"""How many background loops wait for the code that runs here. The first loop serves plain threads;
code that runs on a loop, and blocks it to await something, is served by the next loop."""


class BackgroundCall(Future[Any]):
    """The outcome of an awaitable on an event loop in another thread; cancelling it cancels the awaitable.

    `asyncio.run_coroutine_threadsafe` does the same, but does not retrieve the exception of a task whose future
    was cancelled, so asyncio would log it. Without a loop, it runs on a background loop.
    """

    def __init__(
        self, awaitable: Awaitable[Any], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        super().__init__()
        self._coroutine = coroutine_of(awaitable)
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._has_reacted = False
        self._has_ended = threading.Event()

    def start(self) -> Self:
        """Start to await, with the context variables of this thread; one that is cancelled already is closed."""
        context = contextvars.copy_context()
        loop = self._loop = self._loop or context.run(_next_loop)
        # anyio notes there which library runs, and this task may be one of trio.
        sniffio: Any = sys.modules.get("sniffio")
        if sniffio is not None:
            context.run(sniffio.current_async_library_cvar.set, None)
        loop.call_soon_threadsafe(self._begin, loop, context=context)
        return self

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.cancelled():
            self._coroutine.close()
            self._has_ended.set()
        else:
            self._task = loop.create_task(self._coroutine)
            self._task.add_done_callback(self._settle)

    def _settle(self, task: asyncio.Task[Any]) -> None:
        self._has_ended.set()
        self._task = None  # the exception of one that was cancelled may refer to this object
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if not self.set_running_or_notify_cancel():
            return
        if error is None:
            self.set_result(task.result())
        else:
            self.set_exception(error)

    def cancel(self) -> bool:
        """Cancel the awaitable, on its loop; see `concurrent.futures.Future.cancel`."""
        was_cancelled, is_cancelled = self.cancelled(), super().cancel()
        if is_cancelled and not was_cancelled and self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_task)
        return is_cancelled

    def _cancel_task(self) -> None:
        self._has_reacted = True
        if self._task is not None:
            self._task.cancel()

    def wait(self) -> Any:
        """Block this thread until there is a value, and return it; an interrupt cancels the call."""
        try:
            while not self.done():
                concurrent.futures.wait([self], LOOK_UP_SECONDS)
            return self.result()
        except BaseException:
            if self.cancel():
                self.wait_for_end(time.monotonic() + cleanup.GRACE_SECONDS)
            raise
        finally:
            del self  # the traceback of its exception refers to this frame

    def wait_for_end(self, deadline: float) -> bool:
        """Wait until a cancelled call has ended, or a deadline of the monotonic clock; return whether it has.

        If it blocks its loop, so that the loop has not even reacted, later calls run on another loop.
        """
        if self._has_ended.wait(max(0.0, deadline - time.monotonic())):
            return True
        if not self._has_reacted and self._loop is not None:
            _replace(self._loop)
        return False


def _next_loop() -> asyncio.AbstractEventLoop:
    depth = _depth.get()
    _depth.set(depth + 1)
    with _lock:
        while len(_loops) <= depth:
            _loops.append(_start_loop())
        return _loops[depth]


def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    # A daemon: a callable that never returns must not keep the interpreter from exiting.
    threading.Thread(target=_run, args=(loop,), name="treadle-async", daemon=True).start()
    return loop


def _replace(blocked: asyncio.AbstractEventLoop) -> None:
    """Start another loop for later calls in place of one that a callable blocks."""
    with _lock:
        if blocked in _loops:
            _loops[_loops.index(blocked)] = _start_loop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop forever: an interrupt is raised where the call is awaited, and must not end the loop."""
    while True:
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            loop.run_forever()


def _close_generators() -> None:
    """Close the async generators of the loops at the exit of the interpreter, as `asyncio.run` does at its end.

    Generators close what lives as long as a loop, such as connections.
    """
    for loop in _loops:
        # A generator that still runs, in a call that was abandoned, cannot be closed. asyncio would log it.
        loop.set_exception_handler(lambda _loop, _context: None)
    closed = [BackgroundCall(loop.shutdown_asyncgens(), loop).start() for loop in _loops]
    concurrent.futures.wait(closed, timeout=1.0)  # a loop may be blocked


atexit.register(_close_generators)


def _forget() -> None:
    """Reset the state in a forked child, which has no threads: loops are started again when needed."""
    global _lock, _loops
    _lock, _loops = threading.Lock(), []
    _depth.set(0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
