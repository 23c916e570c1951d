"""Calling what may block from an event loop: in a worker thread that nobody has to wait for."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any

import anyio.to_thread

from treadle.pipeline.detached import call_detached
from treadle.pipeline.effects import Call, is_awaitable


async def call_in_thread(effect: Call, grace: float) -> Any:
    """Make a call in a worker thread, which is left to itself when the call is cancelled.

    Args:
        effect: the call. Where its callable returns an awaitable, that is awaited as by
            `call_detached`: what nobody has to wait for in a thread does not hold up the loop.
        grace: see `call_detached`.
    """
    value = await _in_thread(effect)
    if not is_awaitable(value):
        return value
    is_begun = False

    async def awaited() -> Any:
        nonlocal is_begun
        is_begun = True
        return await value

    try:
        return await call_detached(Call(awaited, label=effect.label, key=effect.key), grace)
    finally:
        if not is_begun:
            _let_go([value])


async def _in_thread(effect: Call) -> Any:
    """What the callable returns.

    It is handed over in a list: trio takes no function that returns a coroutine, and one that comes
    too late has to be closed.
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
