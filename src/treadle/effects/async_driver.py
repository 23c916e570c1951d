"""The driver for event loops: asyncio and trio, through anyio."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, TypeAlias, TypeVar, cast

import anyio

from treadle.effects import cleanup
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
    Wait,
    is_awaitable,
)
from treadle.effects.event_loop import running_trio, wait_for
from treadle.effects.failures import failure_of, is_exit
from treadle.effects.worker_tasks import Bound, RootTask, WorkerGroup, WorkerTask, copy_back
from treadle.effects.worker_threads import call_in_thread

R = TypeVar("R")

_FAILURES = (Exception, asyncio.CancelledError, SystemExit, GeneratorExit)
"""The exceptions of callables that may become another one; see `failure_of`."""

# A global name is quicker than a member of an enumeration; each effect passes here.
_ASYNC, _THREAD, _BRIEF = Mode.ASYNC, Mode.THREAD, Mode.BRIEF
perf_counter = time.perf_counter

_Continuation: TypeAlias = tuple[Callable[[Any], Effect] | None, Any]
"""The function that continues the innermost steps, and its argument; None and the exception of the whole."""


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
    task = RootTask(running_trio())
    task.ignore_handled_cancellations()
    task.frames.append((steps, None))
    result: R = await AsyncDriver(emit, time.time() - time.perf_counter(), task).run()
    return result


class AsyncDriver:
    """Performs the effects of the steps that a task runs.

    It is also the reporter of the calls in this task.

    Args:
        emit: see `drive`.
        clock_origin: the time, in seconds since the epoch, at which the performance counter was 0.
        task: the task in which the driver runs.
    """

    __slots__ = ("_clock_origin", "_emit", "_end", "task")

    def __init__(
        self, emit: Callable[[Any], Any] | None, clock_origin: float, task: RootTask
    ) -> None:
        self._emit = emit
        self._clock_origin = clock_origin
        self._end: BaseException | None = None  # an interrupt, or a cancellation by the caller
        self.task = task

    def in_task(self, task: RootTask) -> AsyncDriver:
        """Make the driver of another task of the same drive."""
        return AsyncDriver(self._emit, self._clock_origin, task)

    def elsewhere(self) -> AsyncDriver:
        """Make a driver that emits events in a task without steps."""
        return self.in_task(RootTask(self.task.trio))

    async def run(self) -> Any:  # noqa: C901, PLR0912, PLR0915 - the hot loop: a call costs more than a branch
        """Perform every effect of the frames of the task, until the outermost steps have ended.

        Returns:
            The return value of the outermost steps.

        Raises:
            BaseException: the exception of these, the bound that ended them, or the cancellation.
        """
        task, origin = self.task, self._clock_origin
        frames, cancelling = task.frames, task.cancelling
        advance: Callable[[Any], Effect] | None = frames[-1][0].send
        outcome: Any = None
        effect: Effect | None = None
        end: BaseException | None = None
        bound: Bound | None = None
        try:
            if task.is_cancelled:  # before it began, or in the task that ran the frames before
                advance, outcome = await self._unwind(Cancelled())
            while advance is not None:
                steps = frames[-1][0]
                send, throw = steps.send, steps.throw
                in_scope = task.in_scope if task.is_scoped else None
                try:
                    effect = advance(outcome)
                    advance = outcome = None
                    while True:
                        try:
                            # The most frequent effects are performed inline, without a further call.
                            if type(effect) is Call:
                                task.effect = effect
                                try:
                                    mode = effect.mode
                                    if mode is _THREAD or mode is _BRIEF:
                                        outcome = call_in_thread(effect, self, self.elsewhere)
                                    else:
                                        args = (
                                            (*effect.args, self)
                                            if effect.reporting
                                            else effect.args
                                        )
                                        outcome = effect.fn(*args)
                                    if mode is _ASYNC or is_awaitable(outcome):
                                        outcome = await (
                                            outcome if in_scope is None else in_scope(outcome)
                                        )
                                    if cancelling is not None and cancelling():
                                        await task.absorb_cancellation()
                                except _FAILURES as error:
                                    raise await self._failure_of(error)  # noqa: B904 - it has its own cause
                            elif type(effect) is Emit:
                                outcome, emitted = None, self.emit(effect.event)
                                if emitted is not None:
                                    task.effect = effect
                                    await (emitted if in_scope is None else in_scope(emitted))
                            elif type(effect) is Now:
                                outcome = origin + perf_counter()
                            elif type(effect) is Bounded and self._enter(effect):
                                advance, outcome = effect.steps.send, None
                                break
                            else:
                                outcome = self._perform(effect)
                                outcome = await (outcome if in_scope is None else in_scope(outcome))
                        except Exception as error:  # noqa: BLE001 - raised in the steps
                            if not task.is_cancelled:
                                effect = throw(without_frame(error))
                                continue
                            if not task.is_abandoned:
                                log_suppressed(error)
                        except BaseException as error:  # noqa: BLE001 - raised in the steps, and at the end
                            end = error
                        else:
                            if not task.is_cancelled:
                                effect = send(outcome)
                                continue
                        break
                except StopIteration as stop:
                    _, bound = task.leave()
                    if task.is_cancelled or (bound is not None and bound.is_cleanup):
                        advance, outcome = await self._ended(bound, stop.value)
                    elif frames:
                        advance, outcome = frames[-1][0].send, stop.value
                    else:
                        return stop.value
                except Exception as error:  # noqa: BLE001 - as below
                    _, bound = task.leave()
                    if task.is_cancelled or (bound is not None and bound.is_cleanup):
                        advance, outcome = await self._ended(bound, error)
                    else:
                        advance, outcome = self._raising(without_frame(error))
                except BaseException as error:  # noqa: BLE001 - raised in the steps around, and at the end
                    advance, outcome = await self._raised(task.leave()[1], error)
                else:
                    if advance is None:  # no steps were entered: these were interrupted
                        advance, outcome = await self._unwind(end or Cancelled())
                        end = None
            raise cast("BaseException", outcome)
        finally:
            # The traceback of an exception may refer to this frame, and the result of a run to the exception.
            del effect, outcome, end, bound
            self._end = None
            if not frames or task.is_abandoned:  # a result may refer to this driver
                self._emit = task.effect = None

    def _enter(self, effect: Bounded) -> bool:
        """Enter bounded steps in this task; return whether it has entered them.

        Raises:
            Stopped: the signal of the bound is set.
        """
        task = self.task
        if task.is_cancelled:  # the steps themselves have just caused it
            return False
        if effect.until is not None and effect.until.is_set:
            close_steps(effect.steps)
            raise Stopped
        is_bound = effect.until is not None or effect.seconds is not None
        if is_bound and not task.enters_bounds:
            return False
        bound = Bound(task, effect.seconds, effect.until)
        task.frames.append((effect.steps, bound))
        if bound.reason is not None:  # another thread has just set the signal
            task.interrupt(bound)
        return True

    async def _unwind(self, end: BaseException) -> _Continuation:
        """Begin to end the steps, since a cancellation or an interrupt has arrived in this task."""
        task = self.task
        if task.is_abandoned:  # another task has taken over
            return None, end
        if isinstance(end, GeneratorExit):  # no effect can be performed now
            while task.frames:
                close_steps(task.leave()[0])
            return None, end
        if not (task.is_cancelled and task.is_cancellation(end)):
            self._end = end
        # First, since the bounds around a cleanup do not interrupt it.
        continuation = self._close_innermost(end)
        await task.settle()
        return continuation

    def _close_innermost(self, end: BaseException) -> _Continuation:
        """Continue with the cleanup of the innermost steps, in which a cancellation is raised."""
        task = self.task
        steps, bound = task.frames[-1]
        if bound is not None and bound.is_cleanup:  # which closes its steps
            return steps.throw, end
        task.leave()
        cleaning = remaining_steps(steps, end)
        within = Bound(task, cleanup.CLEANUP_SECONDS, is_cleanup=True, inner=bound)
        task.frames.append((cleaning, within))
        task.shield()
        return cleaning.send, None

    async def _raised(self, bound: Bound | None, error: BaseException) -> _Continuation:
        """Continue after steps that have raised a cancellation or an interrupt.

        Args:
            bound: the bound of the steps.
            error: the exception.
        """
        task = self.task
        if not task.is_cancellation(error):
            self._end = error
        elif bound is None or not bound.is_cleanup:  # else it was raised in them
            failure = None if task.was_asked_to_cancel() else failure_of(error)
            if failure is not None:
                return self._raising(failure)
            if not task.is_cancelled:
                self._end = error
        return await self._ended(bound)

    async def _ended(self, bound: Bound | None, outcome: object = None) -> _Continuation:
        """Continue after steps that were cancelled, or their cleanup, have ended.

        Args:
            bound: the bound of the steps.
            outcome: an exception of theirs is logged, and a value dropped.
        """
        task = self.task
        if isinstance(outcome, Exception):
            log_suppressed(outcome)
        if task.is_cancelled:
            await task.settle()
        end = self._end or (Cancelled() if self._has_to_end() else None)
        if end is not None:
            return self._close_innermost(end) if task.frames else (None, end)
        if bound is not None and bound.is_cleanup:
            bound = bound.inner
        reason = None if bound is None else bound.reason
        return self._raising(reason or Cancelled())

    def _raising(self, error: BaseException) -> _Continuation:
        """Continue with an exception, raised in the innermost steps, or at the end if there are none."""
        frames = self.task.frames
        return frames[-1][0].throw if frames else None, error

    def _has_to_end(self) -> bool:
        """Whether a bound around the innermost steps, up to a cleanup, or the end of the task ends them."""
        for _, bound in reversed(self.task.frames):
            if bound is not None:
                if bound.reason is not None:
                    return True
                if bound.is_cleanup:
                    return False
        return self.task.is_ending

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Parallel():
                return await self._parallel(effect)
            case Bounded():
                return await self._bounded(effect)
            case Sleep(seconds=seconds):
                return await anyio.sleep(max(0.0, seconds))
            case Wait(signal=signal):
                return await wait_for(signal)
            case _:
                raise TypeError(f"a stage yielded {effect!r}, which is not an effect")

    def now(self) -> float:
        """The clock of the driver, in seconds since the epoch."""
        return self._clock_origin + perf_counter()

    def emit(
        self, event: Any, listener: Callable[[Any], Any] | None = None
    ) -> Awaitable[None] | None:
        """Hand an event to the given listener, or to those of the run."""
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

    def _group(self, on_value: Callable[[], object] | None = None) -> WorkerGroup:
        return WorkerGroup(self.task, lambda worker: self.in_task(worker).run(), on_value)

    async def _parallel(self, effect: Parallel) -> list[Any]:
        results: list[Any] = [None] * len(effect.steps)
        waiting = deque(enumerate(effect.steps))
        unstarted = len(results)
        context = copy_context()

        def begin(worker: WorkerTask) -> None:
            index, steps = waiting.popleft()
            worker.deliver = functools.partial(results.__setitem__, index)
            worker.frames.append((steps, None))

        def start_next() -> None:
            nonlocal unstarted
            if unstarted:
                unstarted -= 1
                group.start(context.copy(), begin)

        group = self._group(start_next)
        await group.checkpoint()
        for _ in range(min(effect.limit or len(results), len(results))):
            start_next()
        if results:
            await group.wait()
        return results

    async def _bounded(self, effect: Bounded) -> Any:
        """Run bounded steps in a worker task, which can be abandoned."""
        if self.task.is_cancelled:
            return close_steps(effect.steps)
        values: list[Any] = []

        def begin(worker: WorkerTask) -> None:
            worker.deliver = values.append
            bound = Bound(worker, effect.seconds, effect.until)
            worker.frames.append((effect.steps, bound))

        group, context = self._group(), copy_context()
        await group.checkpoint()
        try:
            group.start(context, begin)
            await group.wait()
        finally:
            copy_back(context)
        return values.pop()
