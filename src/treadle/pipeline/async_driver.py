"""The driver for event loops: asyncio and trio, through anyio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

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
)

R = TypeVar("R")

WIND_UP_SECONDS = 5.0
"""How long cancelled steps may take to leave things in order. It is a bound on misbehaviour: closing a
stream takes milliseconds."""


async def drive(steps: Steps[R], emit: Callable[[Any], Any] | None = None) -> R:
    """Perform every effect of some steps on the running event loop.

    Args:
        steps: a generator of effects that has not been started.
        emit: is handed the event of every `Emit`; may return an awaitable. It must not raise.

    Returns:
        What the steps return.

    Raises:
        Exception: what the steps raise. A cancellation is raised within the steps first, and then on.
    """
    return await AsyncDriver(emit).drive(steps)


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
                        outcome = await self._call(effect)  # type: ignore[arg-type]  # `kind` says so
                    elif kind is Now:
                        outcome = self._clock_origin + time.perf_counter()
                    else:
                        outcome = await self._perform(effect)
                except Exception as error:  # noqa: BLE001 - a failure is the steps' to deal with
                    effect = throw(error)
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as end:
                    await self._wind_up(steps, end)
                    raise
                else:
                    effect = send(outcome)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def _wind_up(self, steps: Steps[Any], end: BaseException) -> None:
        """Raise a cancellation within the steps and perform what they still do, shielded from it."""
        with anyio.move_on_after(WIND_UP_SECONDS, shield=True):
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
            except BaseException as raised:
                if raised is not end:
                    raise

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Call():
                return await self._call(effect)
            case Now():
                return self._clock_origin + time.perf_counter()
            case Emit(event=event):
                if self._emit is not None:
                    told = self._emit(event)
                    if told is not None:
                        await told
                return None
            case Parallel():
                return await self._parallel(effect)
            case Within():
                return await self._within(effect)
            case Sleep(seconds=seconds):
                return await anyio.sleep(seconds)
            case Wait(signal=signal):
                return await _wait(signal)
            case _:
                raise TypeError(f"a stage yielded {effect!r}, which is no effect")

    async def _call(self, effect: Call) -> Any:
        try:
            if effect.mode is Mode.ASYNC:
                return await effect.fn(*effect.args)
            if effect.mode is Mode.THREAD:
                value = await anyio.to_thread.run_sync(effect.fn, *effect.args, abandon_on_cancel=True)
            else:
                value = effect.fn(*effect.args)
            if hasattr(type(value), "__await__"):
                return await value
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            raise CallCancelled("it was cancelled from within") from error
        return value

    async def _parallel(self, effect: Parallel) -> list[Any]:
        steps = effect.steps
        if len(steps) == 1:
            return [await self.drive(steps[0])]
        results: list[Any] = [None] * len(steps)
        places = anyio.Semaphore(min(effect.limit or len(steps), len(steps)) or 1)

        async def branch(index: int) -> None:
            async with places:
                results[index] = await self.drive(steps[index])

        async with one_error(), anyio.create_task_group() as group:
            for index in range(len(steps)):
                group.start_soon(branch, index)
        return results

    async def _within(self, effect: Within) -> Any:
        if effect.until is not None and effect.until.is_set:
            effect.steps.close()
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


def _is_cancelled() -> bool:
    """Tell a cancellation of this task from one that a callable raised of its own accord."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio has cancellations of another class
        return False
    return task is not None and task.cancelling() > 0


@asynccontextmanager
async def one_error() -> AsyncIterator[None]:
    """Raise the first error of a group by itself, with the cause and context it has."""
    first: BaseException | None = None
    try:
        yield
    except BaseExceptionGroup as errors:
        first = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]  # pyright: ignore[reportUnknownVariableType]
    if first is not None:  # outside the handler, where the group would become its context
        raise first


@asynccontextmanager
async def companion(task: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    """Run a task beside the body of an ``async with``, and cancel it when the body ends."""
    async with one_error(), anyio.create_task_group() as group:
        group.start_soon(task)
        yield
        group.cancel_scope.cancel()


async def _wait(signal: Signal) -> None:
    if not signal.is_set:
        event = anyio.Event()
        unsubscribe = _tell(signal, event.set)
        try:
            await event.wait()
        finally:
            unsubscribe()


def _tell(signal: Signal, callback: Callable[[], object]) -> Callable[[], None]:
    """Subscribe a function that must run on this event loop, whichever thread sets the signal."""
    token = anyio.lowlevel.current_token()
    home = threading.get_ident()

    def on_loop() -> None:
        if threading.get_ident() == home:
            callback()
        else:
            with contextlib.suppress(anyio.RunFinishedError):  # the loop ended first: nobody waits
                anyio.from_thread.run_sync(callback, token=token)

    return signal.subscribe(on_loop)
