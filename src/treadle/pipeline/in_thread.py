"""Calling what may block from an event loop: in a worker thread that nobody has to wait for."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any

import anyio.to_thread

from treadle.pipeline.effects import Call


async def call_in_thread(effect: Call) -> Any:
    """Make a call in a worker thread, which is left to itself when the call is cancelled.

    The outcome is handed over in a list: trio takes no function that returns a coroutine, and one
    that comes too late has to be closed.
    """
    outcome: list[Any] = []
    is_abandoned = False

    def work() -> None:
        outcome.append(effect.fn(*effect.args))
        if is_abandoned:
            _let_go(outcome)

    try:
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except BaseException:
        is_abandoned = True
        _let_go(outcome)
        raise
    return outcome.pop()


def _let_go(outcome: list[Any]) -> None:
    with contextlib.suppress(IndexError):  # the other thread has it
        value = outcome.pop()
        if isinstance(value, Coroutine):
            value.close()
