"""The driver for event loops: asyncio and trio, through anyio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from treadle.pipeline.closing import WIND_UP_SECONDS, report, shut
from treadle.pipeline.effects import (
    Call,
    CallCancelled,
    Effect,
    Emit,
    Mode,
    Now,
    Parallel,
    Signal,
    Sleep,
    Steps,
    Stopped,
    TimeLimitReached,
    Wait,
    Within,
    is_awaitable,
)

R = TypeVar("R")


async def drive(steps: Steps[R], emit: Callable[[Any], Any] | None = None) -> R:
    """Perform every effect of some steps on the running event loop.

    Args:
        steps: a generator of effects that has not been started.
        emit: is handed the event of every `Emit`; may return an awaitable. What it raises is
            logged.

    Returns:
        What the steps return.

    Raises:
        Exception: what the steps raise. A cancellation is raised within the steps first, and then
            on.
    """
    return await AsyncDriver(emit).drive(steps)


_ASYNC, _THREAD = Mode.ASYNC, Mode.THREAD  # members are looked up slowly, and this is the hot path


class AsyncDriver:
    """Performs effects for one run; see `drive`."""

    __slots__ = ("_clock_origin", "_emit")

    def __init__(self, emit: Callable[[Any], Any] | None = None) -> None:
        self._emit = emit
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
            case Call():
                return await self._call(effect)
            case Now():
                return self._clock_origin + time.perf_counter()
            case Emit(event=event):
                return await self._tell(event)
            case Parallel():
                return await self._parallel(effect)
            case Within():
                return await self._within(effect)
            case Sleep(seconds=seconds):
                return await anyio.sleep(max(0.0, seconds))
            case Wait(signal=signal):
                return await _wait(signal)
            case _:
                raise TypeError(f"a stage yielded {effect!r}, which is no effect")

    async def _tell(self, event: Any) -> None:
        if self._emit is not None:
            try:
                await self._call(Call(self._emit, event))
            except Exception as error:  # noqa: BLE001 - a watcher changes nothing
                report(error)

    async def _call(self, effect: Call) -> Any:
        value: Any
        try:
            if effect.mode is _ASYNC:
                return await effect.fn(*effect.args)
            if effect.mode is _THREAD:
                value = await _in_thread(effect)
            else:
                value = effect.fn(*effect.args)
            if is_awaitable(value):
                return await value
        except (asyncio.CancelledError, concurrent.futures.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _cancellations() > 0:
                raise
            raise CallCancelled("it was cancelled from within") from error
        return value

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

        cancellations = _cancellations()
        interrupts: list[BaseException] = []
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                for _ in range(min(effect.limit or len(results), len(results))):
                    group.start_soon(work)
        except BaseExceptionGroup as errors:
            failure = _one_of(errors, cancellations)
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
            unsubscribe = _tell(effect.until, scope.cancel) if effect.until is not None else None
            try:
                return await self.drive(effect.steps)
            finally:
                if unsubscribe is not None:
                    unsubscribe()
        if effect.until is not None and effect.until.is_set:
            raise Stopped
        raise TimeLimitReached(f"it took longer than {effect.seconds:g} s")


async def _in_thread(effect: Call) -> Any:
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


def _cancellations() -> int:
    """How often this task was asked to cancel; trio has cancellations of a class of its own."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


def _one_of(errors: BaseExceptionGroup[BaseException], cancellations: int) -> BaseException:
    """What to raise in place of a group: its first error, with the cause and context that has.

    Args:
        errors: the group.
        cancellations: how often this task had been asked to cancel when the group began. If it was
            asked since, the group has lost that to the error, and it comes first.
    """
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(first, Exception) and _cancellations() > cancellations:
        cancelled = asyncio.CancelledError()
        cancelled.__cause__ = first
        return cancelled
    return first  # pyright: ignore[reportUnknownVariableType]


@asynccontextmanager
async def companion(task: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncGenerator[None]:
    """Run a task beside the body of an ``async with``, and cancel it when the body ends.

    What either of the two raises ends the other, and is raised by itself.
    """
    cancellations = _cancellations()
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(task)
            yield
            group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        failure = _one_of(errors, cancellations)
    if failure is not None:
        raise failure


async def _wait(signal: Signal) -> None:
    if not signal.is_set:
        event = anyio.Event()
        unsubscribe = _tell(signal, event.set)
        try:
            await event.wait()
        finally:
            unsubscribe()


def _tell(signal: Signal, callback: Callable[[], object]) -> Callable[[], None]:
    """Subscribe a function that must run on this event loop, whichever thread sets the signal.

    That thread never waits for the loop: the loop may be waiting for it.
    """
    home = threading.get_ident()
    in_task, soon = _in_trio() or _in_asyncio()

    def on_loop() -> None:
        if threading.get_ident() == home and in_task():
            callback()
        else:  # another thread, or the handler of a process signal, which finds the loop asleep
            with contextlib.suppress(RuntimeError):  # the loop ended first: nobody waits
                soon(callback)

    return signal.subscribe(on_loop)


_Loop: TypeAlias = tuple[Callable[[], bool], Callable[[Callable[[], object]], object]]
"""Of an event loop: whether a task of it runs in this thread, and how to have it call something."""


def _in_trio() -> _Loop | None:
    trio = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_task():
        return None
    return trio.lowlevel.in_trio_task, trio.lowlevel.current_trio_token().run_sync_soon


def _in_asyncio() -> _Loop:
    loop = asyncio.get_running_loop()
    return lambda: asyncio.current_task(loop) is not None, loop.call_soon_threadsafe
