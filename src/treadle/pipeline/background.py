"""Calling what may be async where no event loop is running: one loop in a background thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from treadle.pipeline.effects import Call, CallCancelled, Mode

Future = concurrent.futures.Future

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_on_background_loop(awaitable: Awaitable[Any]) -> Future[Any]:
    """Start to await something on the background loop, which is started if need be.

    Args:
        awaitable: a coroutine or any other awaitable that is not bound to another loop.

    Returns:
        A future of its outcome; cancelling the future cancels the awaitable.
    """

    async def outcome() -> Any:
        return await awaitable

    return asyncio.run_coroutine_threadsafe(outcome(), _running_loop())


def call(effect: Call, awaiting: Callable[[Future[Any]], object] | None = None) -> Any:
    """Make a call from a thread that may block.

    Args:
        effect: the call; its mode does not matter here.
        awaiting: is handed the future of an awaitable outcome, to be able to cancel it.

    Returns:
        What the callable returns, awaited where it is awaitable.
    """
    try:
        return awaited(effect.fn(*effect.args), awaiting)
    except (asyncio.CancelledError, concurrent.futures.CancelledError) as error:
        raise CallCancelled("it was cancelled from within") from error


def awaited(value: Any, awaiting: Callable[[Future[Any]], object] | None = None) -> Any:
    """The value, or what it comes to once it was awaited on the background loop."""
    if not hasattr(type(value), "__await__"):
        return value
    future = run_on_background_loop(value)
    if awaiting is not None:
        awaiting(future)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # an interrupt of this thread ends what runs for it in the other
        raise


def holds_up(effect: Any) -> bool:
    """Whether an effect is a call that may keep others waiting that run at the same time."""
    return isinstance(effect, Call) and effect.mode is not Mode.INLINE


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - there is one a process, as there is one main thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            # A daemon: a callable that never returns must not keep the interpreter from leaving.
            threading.Thread(target=_loop.run_forever, name="treadle-async", daemon=True).start()
        return _loop


def _forget() -> None:
    """In a forked child the thread is gone and the loop is dead: start anew when needed."""
    global _loop, _lock  # noqa: PLW0603 - as above
    _loop, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
