"""The driver for event loops: asyncio and trio, through anyio."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar

import anyio

from treadle.effects import cleanup
from treadle.effects.carriers import (
    AsyncioCarrier,
    CallersTask,
    Carrier,
    CarrierGroup,
    copy_back,
)
from treadle.effects.cleanup import (
    close_steps,
    is_thrown_here,
    log_suppressed,
    remaining_steps,
    without_frame,
)
from treadle.effects.effects import (
    Bounded,
    Call,
    Cancelled,
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
    failure_of,
    is_awaitable,
)
from treadle.effects.exits import is_exit
from treadle.effects.regions import Outcome, Region
from treadle.effects.signal_bridge import subscribe_on_loop, wait_for
from treadle.effects.worker_threads import call_in_thread

R = TypeVar("R")

_FAILURES = (Exception, asyncio.CancelledError, SystemExit, GeneratorExit)
"""The exceptions of callables that may become another one; see `failure_of`."""

# Members are looked up slowly, and this is the hot path.
_ASYNC, _THREAD, _BRIEF = Mode.ASYNC, Mode.THREAD, Mode.BRIEF
perf_counter = time.perf_counter


async def drive(steps: Steps[R], emit: Callable[[Any], Any] | None = None) -> R:
    """Perform every effect of some steps on the running event loop.

    Args:
        steps: a generator of effects that has not been started.
        emit: receives each event; may return an awaitable. Its exceptions are logged.

    Returns:
        The return value of the steps.

    Raises:
        Exception: an exception of the steps. A cancellation is raised in the steps first, and then re-raised.
    """
    task = CallersTask()
    task.ignore_handled_cancellations()
    return await AsyncDriver(emit, time.time() - time.perf_counter(), task).drive(steps)


class AsyncDriver:
    """Performs effects in one task.

    It is also the reporter of the calls in this task.

    Args:
        emit: see `drive`.
        clock_origin: the time, in seconds since the epoch, at which the performance counter was 0.
        task: the task in which the driver runs.
    """

    __slots__ = ("_clock_origin", "_emit", "task")

    def __init__(
        self, emit: Callable[[Any], Any] | None, clock_origin: float, task: CallersTask
    ) -> None:
        self._emit = emit
        self._clock_origin = clock_origin
        self.task = task

    def in_task(self, task: CallersTask) -> AsyncDriver:
        """Make the driver of another task of the same drive."""
        return AsyncDriver(self._emit, self._clock_origin, task)

    async def drive(  # noqa: C901, PLR0912, PLR0915 - the hot loop: a call costs more than a branch
        self, steps: Steps[R], first: Effect | None = None, region: Region | None = None
    ) -> R:
        """Perform every effect of the steps, one after another.

        Args:
            steps: a generator of effects.
            first: the effect that they have already yielded; None if they have not been started.
            region: the bound of these steps, if it ends them in this task.

        Raises:
            TimeLimitReached, Stopped: the bound ended the steps.
        """
        send, throw, task, origin = steps.send, steps.throw, self.task, self._clock_origin
        cancelling, effect = task.cancelling, first
        task.generators.append(steps)
        try:
            if effect is None:
                effect = send(None)
            while True:
                try:
                    # The most frequent effects are performed inline, without a further call.
                    if type(effect) is Call:
                        task.effect = effect
                        try:
                            if effect.mode is _THREAD or effect.mode is _BRIEF:
                                outcome = await call_in_thread(effect, self)
                            else:
                                args = effect.args + (self,) if effect.reporting else effect.args  # noqa: RUF005 - faster
                                outcome = effect.fn(*args)
                                if effect.mode is _ASYNC or is_awaitable(outcome):
                                    outcome = await outcome
                                if cancelling is not None and cancelling():
                                    await task.absorb_cancellation()
                        except _FAILURES as error:
                            raise await self._failure_of(error)  # noqa: B904 - it has its own cause
                    elif type(effect) is Emit:
                        outcome, emitted = None, self.emit(effect.event)
                        if emitted is not None:
                            task.effect = effect
                            await emitted
                    elif type(effect) is Now:
                        outcome = origin + perf_counter()
                    elif type(effect) is Bounded:
                        outcome = await self._bounded(effect)
                    else:
                        outcome = await self._perform(effect)
                except Exception as error:  # noqa: BLE001 - raised in the steps
                    if task.is_cancelled:
                        await self._end_late(steps, error)
                    effect = throw(without_frame(error))
                except BaseException as end:
                    await self._end(steps, end)
                    raise
                else:
                    if task.is_cancelled:
                        await self._end_late(steps)
                    effect = send(outcome)
        except StopIteration as stop:
            if region is None or region.reason is None:
                return stop.value
            await self._arrive_late(region)
        except (asyncio.CancelledError, Cancelled) as end:
            if region is None or not region.ends_here():
                is_asked = task.is_unwinding or task.was_asked_to_cancel()
                failure = None if is_asked else failure_of(end)
                if failure is not None:  # the steps raised it
                    raise failure  # noqa: B904 - it has its cause
                raise
        except Exception as error:
            if region is None or region.reason is None:
                raise
            log_suppressed(error)
            await self._arrive_late(region)
        finally:
            del effect  # an event may hold an exception whose traceback refers to this frame
            task.generators.pop()
            if region is not None:
                region.leave(task)
            if not task.generators:  # frames in the traceback of a result may refer to this driver
                self._emit = task.effect = None
        task.is_unwinding = False
        raise (region and region.reason) or AssertionError("unreachable: a bound ended the steps")

    async def _end_late(self, steps: Steps[Any], error: Exception | None = None) -> NoReturn:
        """End cancelled steps whose callable ignored the cancellation: its outcome is dropped."""
        end = Cancelled()
        if not self.task.is_abandoned:
            if error is not None:
                log_suppressed(error)
            await self._end(steps, end)
        raise end

    async def _arrive_late(self, region: Region) -> None:
        """Handle the cancellation of steps that struck their bound themselves, and ended before it was raised."""
        await self._arrive()
        if not region.ends_here():
            raise Cancelled

    async def _end(self, steps: Steps[Any], end: BaseException) -> None:
        """End steps because a cancellation or an interrupt has arrived in this task."""
        if self.task.is_abandoned:
            return  # another task has taken over
        if isinstance(end, GeneratorExit):  # no effect can be performed now
            close_steps(steps)
        else:
            await self._arrive()
            await self.clean_up(steps, end)

    async def _arrive(self) -> None:
        """Note that a cancellation has arrived, even if a callable or the steps ended before it was raised."""
        self.task.is_unwinding = True
        self.task.notice_cancellation()
        await self.task.settle_cancellation()

    async def clean_up(self, steps: Steps[Any], end: BaseException) -> None:
        """Raise a cancellation in steps, and perform their cleanup, shielded from cancellation."""
        task = self.task
        outer_scope = task.scope
        with anyio.move_on_after(cleanup.CLEANUP_SECONDS, shield=True) as scope:
            task.scope = scope
            try:
                failure = await self.drive(remaining_steps(steps, end))
                if failure is not None:
                    log_suppressed(failure)
            finally:
                task.scope = outer_scope

    async def clean_up_all(self, generators: list[Steps[Any]]) -> None:
        """Perform the cleanup of generators that another task ran, from the last, which is the innermost."""
        running = self.task.generators
        place = len(running)
        running.extend(generators)  # if another carrier takes over, it has to end these as well
        while len(running) > place:
            self.task.extend_deadline()
            await self.clean_up(running[-1], Cancelled())
            running.pop()

    async def _take_over(self, carrier: Carrier, generators: list[Steps[Any]]) -> None:
        await self.in_task(carrier).clean_up_all(generators)
        raise Cancelled

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Parallel():
                return await self._parallel(effect)
            case Sleep(seconds=seconds):
                return await anyio.sleep(max(0.0, seconds))
            case Wait(signal=signal):
                return await wait_for(signal)
            case Outcome():
                return await effect.outcome
            case _:
                raise TypeError(f"a stage yielded {effect!r}, which is not an effect")

    def now(self) -> float:
        """See `Reporter`."""
        return self._clock_origin + perf_counter()

    def emit(
        self, event: Any, listener: Callable[[Any], Any] | None = None
    ) -> Awaitable[None] | None:
        """See `Reporter`."""
        listener = listener or self._emit
        if listener is None or self.task.is_abandoned:
            return None
        try:
            emitted = listener(event)
        except _FAILURES as error:
            self._listener_failed(error)
            return None
        if emitted is None or not is_awaitable(emitted):
            return None
        return self._await_listener(emitted)

    async def _await_listener(self, emitted: Awaitable[Any]) -> None:
        try:
            await emitted
        except _FAILURES as error:
            self._listener_failed(error)

    def _listener_failed(self, error: BaseException) -> None:
        """Log the exception of a listener; re-raise an interrupt, and a cancellation of the task."""
        if isinstance(error, asyncio.CancelledError):
            is_end = self.task.was_asked_to_cancel()
        elif isinstance(error, GeneratorExit):
            is_end = is_thrown_here(error)  # then the coroutine is closed
        else:
            is_end = not isinstance(error, Exception) and not is_exit(error)
        if is_end:
            raise error
        log_suppressed(error)

    async def _failure_of(self, error: BaseException) -> BaseException:
        """The exception of a call whose callable raised one; a cancellation of its own becomes `CallCancelled`.

        It is returned, since raising it here would make a reference cycle of the exception and this frame.
        """
        is_closed = is_thrown_here(error)
        task, error = self.task, without_frame(error)
        if isinstance(error, asyncio.CancelledError) and task.was_asked_to_cancel():
            return error
        if isinstance(error, GeneratorExit) and is_closed:
            return error  # this coroutine is closed: nothing can be awaited
        await task.absorb_cancellation()
        return failure_of(error) or error

    async def _parallel(self, effect: Parallel) -> list[Any]:
        results: list[Any] = [None] * len(effect.steps)
        waiting = deque(enumerate(effect.steps))
        unstarted = len(results)
        context = copy_context()

        def branch(driver: AsyncDriver, carrier: Carrier) -> Coroutine[Any, Any, Any]:
            index, steps = waiting.popleft()  # not earlier: trio starts tasks in any order
            carrier.deliver = functools.partial(results.__setitem__, index)
            return driver.drive(steps)

        def start_next() -> None:
            nonlocal unstarted
            if unstarted:
                unstarted -= 1
                self._start(group, context.copy(), branch)

        group = CarrierGroup(self.task, self._take_over, start_next)
        await group.checkpoint()
        for _ in range(min(effect.limit or len(results), len(results))):
            start_next()
        if results:
            await group.wait()
        return results

    def _bounded(self, effect: Bounded) -> Coroutine[Any, Any, Any]:
        until, task = effect.until, self.task
        if until is not None and until.is_set:
            close_steps(effect.steps)
            raise Stopped
        if isinstance(task, AsyncioCarrier) and not task.is_unwinding:
            if task.is_cancelled:  # the steps themselves have just caused it
                close_steps(effect.steps)
                raise Cancelled
            return self.drive(effect.steps, None, Region.enter(effect, self, task))
        if until is None and effect.seconds is None:
            return self.drive(effect.steps)
        return self._in_carrier(effect)

    async def _in_carrier(self, effect: Bounded) -> Any:
        until, seconds = effect.until, effect.seconds
        values: list[Any] = []

        def inner(driver: AsyncDriver, carrier: Carrier) -> Coroutine[Any, Any, Any]:
            carrier.deliver = values.append
            return driver.drive(effect.steps)

        group, context = CarrierGroup(self.task, self._take_over), copy_context()
        await group.checkpoint()
        # Before the carrier starts, since an eager task may set the signal at once.
        ticket = None if until is None else subscribe_on_loop(until, group.stop)
        try:
            self._start(group, context, inner)
            await group.wait(seconds)
        finally:
            if until is not None:
                until.unsubscribe(ticket)
            copy_back(context)
        if values and not group.is_ending:
            return values.pop()
        if until is not None and until.is_set:
            raise Stopped
        raise TimeLimitReached(f"it took longer than {seconds:g} s")

    def _start(
        self,
        group: CarrierGroup,
        context: Context,
        work: Callable[[AsyncDriver, Carrier], Coroutine[Any, Any, Any]],
    ) -> None:
        """Start a task that drives steps; the work receives the driver of that task."""
        carrier = group.carrier(context)
        driver = self.in_task(carrier)
        carrier.start(lambda: work(driver, carrier))
