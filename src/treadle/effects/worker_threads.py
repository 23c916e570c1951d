"""Functions in threads, awaited on an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from treadle.effects.cleanup import Outcome, call_into, discard, settle
from treadle.effects.effects import Call, Cancelled, Reporter, Signal, is_awaitable
from treadle.effects.event_loop import wait_for

R = TypeVar("R")


async def in_daemon_thread(fn: Callable[[], R]) -> R:
    """Call a function in a separate thread, which is abandoned when this is cancelled.

    Unlike the threads of anyio, which are few and for which the interpreter waits at exit, it may run forever.
    """
    done = Signal()
    outcome: list[Outcome] = []

    def work() -> None:
        call_into(outcome, fn)
        done.set()

    run = contextvars.copy_context().run
    threading.Thread(target=run, args=(work,), name="treadle-daemon", daemon=True).start()
    await wait_for(done)
    return settle(outcome)


async def call_in_thread(effect: Call, reporter: Reporter) -> Any:
    """Make a call in a worker thread, which is abandoned when the call is cancelled.

    Its outcome is passed in a list: trio accepts no function that returns a coroutine, and a coroutine that is
    returned too late has to be closed. An awaitable that the function returns is awaited on the event loop.
    """
    within = _ThreadReporter(reporter)
    outcome: list[Outcome] = []
    args = (*effect.args, within) if effect.reporting else effect.args

    def work() -> None:
        call_into(outcome, effect.fn, *args)
        if within.is_abandoned:
            discard(outcome)

    try:
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except BaseException:
        await within.abandon()
        discard(outcome)
        raise
    value = settle(outcome)
    return await value if is_awaitable(value) else value


class _ThreadReporter:
    """The reporter of a call in a worker thread; it has that of the task that makes the call."""

    def __init__(self, reporter: Reporter) -> None:
        self.now = reporter.now
        self.is_abandoned = False
        self._reporter = reporter
        self._home = threading.get_ident()
        self._listening: dict[anyio.CancelScope, anyio.Event] = {}
        self._token = anyio.lowlevel.current_token()

    def emit(
        self, event: Any, listener: Callable[[Any], Any] | None = None
    ) -> Awaitable[None] | None:
        """Hand an event to the given listener, or to those of the run."""
        if threading.get_ident() == self._home:  # in the awaitable that the callable returned
            return self._reporter.emit(event, listener)
        if not self.is_abandoned:
            try:
                interrupt = anyio.from_thread.run(self._on_loop, event, listener, token=self._token)
            except BaseException as error:  # cancelled meanwhile, or the event loop has ended
                raise Cancelled("the call was abandoned") from error
            if interrupt is not None:
                raise interrupt
            if not self.is_abandoned:
                return None
        raise Cancelled("the call was abandoned")

    async def _on_loop(
        self, event: Any, listener: Callable[[Any], Any] | None
    ) -> BaseException | None:
        """Call the listeners; return an interrupt, which would end the event loop if raised in a task.

        This is a separate task, which a cancellation of the call does not reach.
        """
        if self.is_abandoned:
            return None
        try:
            emitted = self._reporter.emit(event, listener)
            if emitted is not None:
                with anyio.CancelScope() as scope:
                    ended = self._listening[scope] = anyio.Event()
                    try:
                        await emitted
                    finally:
                        del self._listening[scope]
                        ended.set()
        except (KeyboardInterrupt, SystemExit) as interrupt:
            return interrupt
        except asyncio.CancelledError:  # the event loop ends, and would log it
            self.is_abandoned = True
        return None

    async def abandon(self) -> None:
        """Deliver no further events; cancel the async listeners, and wait for their end."""
        self.is_abandoned = True
        for scope in self._listening:
            scope.cancel()
        with anyio.CancelScope(shield=True):
            for ended in list(self._listening.values()):
                await ended.wait()
