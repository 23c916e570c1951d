"""The driver of a run inside a workflow: it performs effects with nothing but tasks of the workflow's event loop.

It uses no threads, no clock and no anyio, so that a workflow that is replayed takes the same steps in the same
order. What is not the same on a replay, such as a call of a tool, is up to a `Performer`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from treadle.effects import (
    CLEANUP_SECONDS,
    Bounded,
    Call,
    Cancelled,
    Effect,
    Emit,
    Now,
    Parallel,
    Signal,
    Sleep,
    Steps,
    Stopped,
    TimeLimitReached,
    Wait,
    close_steps,
    failure_of,
    log_suppressed,
)
from treadle.effects.cleanup import remaining_steps

R = TypeVar("R")


class Performer(Protocol):
    """Performs the effects that reach beyond the workflow."""

    def now(self) -> float:
        """The time, in seconds since the epoch; it never goes back."""
        ...

    def emit(self, event: Any) -> None:
        """Hand an event to the listeners; it never raises."""
        ...

    async def call(self, call: Call) -> Any:
        """Perform a call, and return its outcome or raise its exception.

        If the task is cancelled, it cancels the call, waits until it has ended or for some seconds, and re-raises.
        """
        ...

    def keeps_time_of(self, effect: Effect, seconds: float) -> bool:
        """Whether it ends an effect itself after some seconds, by raising `TimeLimitReached`."""
        ...


class WorkflowDriver:
    """Performs the effects of steps on the running event loop, which may be that of a workflow.

    Args:
        performer: performs the effects that reach beyond the workflow.
    """

    def __init__(self, performer: Performer) -> None:
        self._performer = performer

    async def drive(self, steps: Steps[R], bound: _Bound | None = None) -> R:
        """Perform every effect of some steps, one after another.

        Args:
            steps: a generator of effects that has not been started.
            bound: ends the steps; its time starts with the first effect that does not keep the time itself.

        Returns:
            Their return value.

        Raises:
            Exception: an exception of the steps. A cancellation of the task is raised in the steps first, and then
                re-raised.
        """
        error: Exception | None = None
        outcome: Any = None
        try:
            while True:
                effect = steps.send(outcome) if error is None else steps.throw(error)
                error = outcome = None
                if bound is not None:
                    bound.start(effect)
                try:
                    outcome = await self._perform(effect)
                except Exception as raised:  # noqa: BLE001 - raised in the steps
                    error = raised
                except BaseException as end:
                    await self._end(steps, end)
                    raise
        except StopIteration as stop:
            return stop.value
        except Cancelled as end:  # raised by the steps themselves, although nothing cancelled them
            raise failure_of(asyncio.CancelledError()) or end from end
        finally:
            del error  # its traceback refers to this frame

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Call():
                return await self._performer.call(effect)
            case Now():
                return self._performer.now()
            case Emit():
                self._performer.emit(effect.event)
            case Parallel():
                return await self._parallel(effect)
            case Bounded():
                return await self._bounded(effect)
            case Sleep(seconds=seconds):
                await asyncio.sleep(max(0.0, seconds))
            case Wait(signal=signal):
                await _set(signal)
            case _:
                raise TypeError(f"a stage yielded {effect!r}, which is not an effect")
        return None

    async def _parallel(self, effect: Parallel) -> list[Any]:
        results: list[Any] = [None] * len(effect.steps)
        waiting = deque(enumerate(effect.steps))

        async def work() -> None:
            while waiting:
                index, steps = waiting.popleft()
                results[index] = await self.drive(steps)

        running = min(effect.limit or len(results), len(results))
        await _together([asyncio.create_task(work()) for _ in range(running)])
        return results

    async def _bounded(self, effect: Bounded) -> Any:
        until = effect.until
        if until is not None and until.is_set:
            close_steps(effect.steps)
            raise Stopped
        bound = _Bound(self._performer, effect.seconds)
        inner = asyncio.create_task(self.drive(effect.steps, bound))
        ends: list[asyncio.Future[Any]] = [inner, bound.is_over]
        stopped = None if until is None else asyncio.create_task(_set(until))
        if stopped is not None:
            ends.append(stopped)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _ended(inner)
            raise
        finally:
            bound.cancel()
            if stopped is not None:
                stopped.cancel()
        if inner.done():
            return inner.result()
        await _ended(inner)
        if stopped is not None and stopped.done() and not stopped.cancelled():
            raise Stopped
        raise TimeLimitReached(f"it took longer than {effect.seconds:g} s")

    async def _end(self, steps: Steps[Any], end: BaseException) -> None:
        """End steps whose effect was cancelled; their cleanup is not stopped by a further cancellation.

        If the workflow leaves the memory of its worker, nothing can be performed: another one continues it.
        """
        bound = _Bound(self._performer, CLEANUP_SECONDS)
        try:
            bound.start(None)  # raises if the workflow leaves
        except BaseException:
            close_steps(steps)
            raise
        if not isinstance(end, asyncio.CancelledError):
            bound.cancel()
            close_steps(steps)
            return
        task = asyncio.create_task(self.drive(remaining_steps(steps, Cancelled())))
        await shielded(asyncio.wait([task, bound.is_over], return_when=asyncio.FIRST_COMPLETED))
        bound.cancel()
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            failure = task.exception() or task.result()
            if isinstance(failure, Exception):
                log_suppressed(failure)


class _Bound:
    """The time limit of a `Bounded`.

    Args:
        performer: may keep the time of an effect itself.
        seconds: the limit; None means no limit.

    Attributes:
        is_over: done when the time is up.
    """

    def __init__(self, performer: Performer, seconds: float | None) -> None:
        self._performer = performer
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, effect: Effect | None) -> None:
        """Start the timer, unless it runs already, or the performer ends the effect at the limit."""
        seconds = self._seconds
        if seconds is None or self._timer is not None:
            return
        if effect is None or not self._performer.keeps_time_of(effect, seconds):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._end)

    def _end(self) -> None:
        if not self.is_over.done():
            self.is_over.set_result(None)

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()


async def _set(signal: Signal) -> None:
    """Wait until a signal is set, in the thread of the workflow."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arrive() -> None:
        if not future.done():
            future.set_result(None)

    ticket = signal.subscribe(arrive)
    try:
        await future
    finally:
        signal.unsubscribe(ticket)


async def _together(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for tasks; the first to fail, or a cancellation, cancels the others, and waits for their end."""
    left = list(tasks)
    try:
        while left:
            await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for task in [one for one in left if one.done()]:
                left.remove(task)
                task.result()
    except BaseException:
        for task in left:
            task.cancel()
        for task in left:
            await _ended(task)
        raise


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait for its end; log what it raised in its cleanup."""
    task.cancel()
    await shielded(asyncio.wait([task]))
    failure = None if task.cancelled() else task.exception()
    if failure is not None:
        log_suppressed(failure)


async def shielded(waiting: Coroutine[Any, Any, Any]) -> None:
    """Await something to its end; a cancellation that arrives meanwhile is ignored: one is under way already.

    Raises:
        CancelledError: all tasks are cancelled, since the workflow leaves the memory of its worker.
    """
    task = asyncio.ensure_future(waiting)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
