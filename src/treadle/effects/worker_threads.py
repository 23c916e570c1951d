"""Calls in threads, awaited on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from treadle.effects.cleanup import discard, settle
from treadle.effects.effects import Call, Cancelled, Reporter, is_awaitable

R = TypeVar("R")


class _ThreadReporter:
    """The reporter of a call in a worker thread.

    Args:
        reporter: the reporter of the task that makes the call.
    """

    __slots__ = ("_home", "_listening", "_reporter", "_token", "is_abandoned", "now")

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._home = threading.get_ident()
        self._listening: dict[anyio.CancelScope, anyio.Event] = {}
        self._token = anyio.lowlevel.current_token()
        self.is_abandoned = False
        self.now = reporter.now

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
        """Call the listeners; return an interrupt, which would end the event loop if raised in a task."""
        if not self.is_abandoned:
            try:
                # This is a separate task, which a cancellation of the call does not reach.
                emitted = self._reporter.emit(event, listener)
                if emitted is not None:
                    await self._until_abandoned(emitted)
            except (KeyboardInterrupt, SystemExit) as interrupt:
                return interrupt
            except asyncio.CancelledError:  # the event loop ends, and would log it
                self.is_abandoned = True
        return None

    async def _until_abandoned(self, emitted: Awaitable[None]) -> None:
        with anyio.CancelScope() as scope:
            ended = self._listening[scope] = anyio.Event()
            try:
                await emitted
            finally:
                del self._listening[scope]
                ended.set()

    async def abandon(self) -> None:
        """Deliver no further events; cancel the async listeners, and wait for their end."""
        self.is_abandoned = True
        listening = list(self._listening.items())
        for scope, _ in listening:
            scope.cancel()
        if listening:
            with anyio.CancelScope(shield=True):
                for _, ended in listening:
                    await ended.wait()


async def call_in_thread(effect: Call, reporter: Reporter) -> Any:
    """Make a call in a worker thread, which is abandoned when the call is cancelled.

    Args:
        effect: the call. If its function returns an awaitable, that is awaited on the event loop.
        reporter: the reporter of the task that makes the call.
    """
    value = await _in_thread(effect, _ThreadReporter(reporter))
    return await value if is_awaitable(value) else value


async def _in_thread(effect: Call, reporter: _ThreadReporter) -> Any:
    """Call the function.

    Its outcome is passed in a list: trio accepts no function that returns a coroutine, a coroutine that is
    returned too late has to be closed, and an exception would form a reference cycle with the future of anyio.
    """
    outcome: list[tuple[Any, BaseException | None]] = []
    args = (*effect.args, reporter) if effect.reporting else effect.args

    def work() -> None:
        try:
            outcome.append((effect.fn(*args), None))
        except BaseException as error:  # noqa: BLE001 - raised where the call is awaited
            outcome.append((None, error))
        if reporter.is_abandoned:
            discard(outcome)

    try:
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except BaseException:
        await reporter.abandon()
        discard(outcome)
        raise
    return settle(outcome.pop())
