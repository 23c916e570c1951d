"""The driver for event loops: asyncio and trio, through anyio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

from treadle.pipeline.closing import GRACE_SECONDS, WIND_UP_SECONDS, report, shut
from treadle.pipeline.detached import call_detached
from treadle.pipeline.effects import (
    Call,
    CallCancelled,
    Effect,
    Emit,
    Mode,
    Now,
    Parallel,
    Sleep,
    Steps,
    Stopped,
    TimeLimitReached,
    Wait,
    Within,
    is_awaitable,
)
from treadle.pipeline.groups import cancellations_of_task, one_of
from treadle.pipeline.in_thread import call_in_thread
from treadle.pipeline.listening import tell, wait_for

R = TypeVar("R")


async def drive(
    steps: Steps[R],
    emit: Callable[[Any], Any] | None = None,
    *,
    grace: float = GRACE_SECONDS,
) -> R:
    """Perform every effect of some steps on the running event loop.

    Args:
        steps: a generator of effects that has not been started.
        emit: is handed the event of every `Emit`; may return an awaitable. What it raises is
            logged.
        grace: how many seconds a `Mode.DETACHED` call that was cancelled may take to end.

    Returns:
        What the steps return.

    Raises:
        Exception: what the steps raise. A cancellation is raised within the steps first, and then
            on.
    """
    return await AsyncDriver(emit, grace).drive(steps)


# Members are looked up slowly, and this is the hot path.
_ASYNC, _INLINE, _THREAD = Mode.ASYNC, Mode.INLINE, Mode.THREAD


class AsyncDriver:
    """Performs effects for one run; see `drive`."""

    __slots__ = ("_clock_origin", "_emit", "_grace")

    def __init__(
        self, emit: Callable[[Any], Any] | None = None, grace: float = GRACE_SECONDS
    ) -> None:
        self._emit = emit
        self._grace = grace
        self._clock_origin = time.time() - time.perf_counter()

    async def drive(self, steps: Steps[R]) -> R:
        """Perform every effect of the steps, one after another."""
        send, throw = steps.send, steps.throw
        try:
            effect = send(None)
            while True:
                try:
                    # The three that happen on every iteration are performed here, not a call away.
                    kind = type(effect)
                    if kind is Call:
                        outcome = await self._call(effect)  # type: ignore[arg-type] # as `kind` says
                    elif kind is Now:
                        outcome = self._clock_origin + time.perf_counter()
                    else:
                        outcome = await self._perform(effect)
                except Exception as error:  # noqa: BLE001 - a failure is the steps' to deal with
                    effect = throw(error)
                except GeneratorExit:  # nothing can be performed any more
                    shut(steps)
                    raise
                except BaseException as end:
                    await self._wind_up(steps, end)
                    raise
                else:
                    effect = send(outcome)
        except StopIteration as stop:
            result: R = stop.value
            return result

    async def _wind_up(self, steps: Steps[Any], end: BaseException) -> None:
        """Raise a cancellation within steps, and perform what they still do, shielded from it."""
        with anyio.move_on_after(WIND_UP_SECONDS, shield=True) as scope:
            try:
                effect = steps.throw(end)
                while True:
                    try:
                        outcome = await self._perform(effect)
                    except Exception as error:  # noqa: BLE001 - as above
                        effect = steps.throw(error)
                    else:
                        effect = steps.send(outcome)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 - the cancellation stands
                report(error)
            except BaseException as raised:
                if raised is not end:
                    raise
        if scope.cancelled_caught:
            shut(steps)

    async def _perform(self, effect: Effect) -> Any:  # noqa: PLR0911 - one for each kind of effect
        match effect:
            case Emit():  # the most frequent here
                told = self._tell(effect.event)
                return None if told is None else await told
            case Call():
                return await self._call(effect)
            case Now():
                return self._clock_origin + time.perf_counter()
            case Parallel():
                return await self._parallel(effect)
            case Within():
                return await self._within(effect)
            case Sleep(seconds=seconds):
                return await anyio.sleep(max(0.0, seconds))
            case Wait(signal=signal):
                return await wait_for(signal)
            case _:
                raise TypeError(f"a stage yielded {effect!r}, which is no effect")

    def _tell(self, event: Any) -> Awaitable[Any] | None:
        """Tell the watcher; the outcome is None, or has to be awaited where the watcher's has."""
        if self._emit is None:
            return None
        try:
            told = self._emit(event)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see there
            _watcher_failed(error)
            return None
        return _wait_for_watcher(told) if is_awaitable(told) else None

    async def _call(self, effect: Call) -> Any:
        try:
            if effect.mode is _ASYNC:
                return await effect.fn(*effect.args)
            if effect.mode is _INLINE:
                value = effect.fn(*effect.args)
                return await value if is_awaitable(value) else value
            if effect.mode is _THREAD:
                return await call_in_thread(effect, self._grace)
            return await call_detached(effect, self._grace)
        except (asyncio.CancelledError, concurrent.futures.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and cancellations_of_task() > 0:
                raise
            raise CallCancelled("it was cancelled from within") from error

    async def _parallel(self, effect: Parallel) -> list[Any]:
        if len(effect.steps) == 1:
            return [await self.drive(effect.steps[0])]
        results: list[Any] = [None] * len(effect.steps)
        waiting = deque(enumerate(effect.steps))

        async def work() -> None:
            while waiting:
                index, steps = waiting.popleft()
                try:
                    results[index] = await self.drive(steps)
                except BaseException as raised:
                    waiting.clear()  # before anybody else takes one
                    if not isinstance(raised, (KeyboardInterrupt, SystemExit)):
                        raise
                    # Out of a task of its own it would end the loop before anybody can clear up.
                    interrupts.append(raised)
                    group.cancel_scope.cancel()

        cancellations = cancellations_of_task()
        interrupts: list[BaseException] = []
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                for _ in range(min(effect.limit or len(results), len(results))):
                    group.start_soon(work)
        except BaseExceptionGroup as errors:
            failure = one_of(errors, cancellations)
        for raised in (*interrupts, failure):
            if raised is not None:  # outside the handler, where the group would become its context
                raise raised
        return results

    async def _within(self, effect: Within) -> Any:
        if effect.until is not None and effect.until.is_set:
            shut(effect.steps)
            raise Stopped
        with anyio.CancelScope() as scope:
            if effect.seconds is not None:
                scope.deadline = anyio.current_time() + effect.seconds
            unsubscribe = tell(effect.until, scope.cancel) if effect.until is not None else None
            try:
                return await self.drive(effect.steps)
            finally:
                if unsubscribe is not None:
                    unsubscribe()
        if effect.until is not None and effect.until.is_set:
            raise Stopped
        raise TimeLimitReached(f"it took longer than {effect.seconds:g} s")


async def _wait_for_watcher(told: Awaitable[Any]) -> None:
    try:
        await told
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see there
        _watcher_failed(error)


def _watcher_failed(error: BaseException) -> None:
    """Report what a watcher raised, which changes nothing; a cancellation of the task goes on its way."""
    if isinstance(error, Exception):
        report(error)
    elif cancellations_of_task() > 0:
        raise error
    else:
        report(CallCancelled("a watcher was cancelled from within"))
