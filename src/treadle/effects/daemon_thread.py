"""A function in a separate thread, awaited on an event loop."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from treadle.effects.cleanup import settle
from treadle.effects.effects import Signal

R = TypeVar("R")


async def in_daemon_thread(fn: Callable[[], R]) -> R:
    """Call a function in a separate thread, which is abandoned when this is cancelled.

    Unlike the threads of anyio, which are few and for which the interpreter waits at exit, it may run forever.

    Args:
        fn: takes no arguments; what it returns or raises is the outcome.
    """
    from treadle.effects.event_loop import wait_for  # noqa: PLC0415 - it imports anyio

    done = Signal()
    outcome: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            outcome.append((fn(), None))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            outcome.append((None, error))
        done.set()

    run = contextvars.copy_context().run
    threading.Thread(target=run, args=(work,), name="treadle-daemon", daemon=True).start()
    await wait_for(done)
    made: R = settle(outcome.pop())
    return made
