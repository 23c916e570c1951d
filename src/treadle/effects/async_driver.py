"""The driver for event loops: asyncio, and trio.

Workers run the steps, each in a task of the driver; the task that called `drive` waits for them, since a task of
the caller cannot be abandoned. A worker runs a stack of frames: generators, of which each waits for the `Bounded`
that it has yielded, and the innermost for a call. At a bound the call is cancelled, and the worker unwinds the
frames. A callable that ignores the cancellation for the grace period keeps its task; another worker takes the
frames over.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import functools
import itertools
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from contextvars import Context, copy_context
from typing import Any, TypeAlias, TypeVar, cast

import anyio
import anyio.lowlevel

from treadle.effects import cleanup
from treadle.effects.coroutines import coroutine_of
from treadle.effects.effects import (
    Bounded,
    Call,
    Cancelled,
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
    is_awaitable,
)
from treadle.effects.event_loop import Soon, call_later, caller_on_loop, running_trio, wait_for
from treadle.effects.failures import failure_of, is_exit
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
    shared, context = _Drive(emit), copy_context()
    try:
        return (await _Group(shared, [steps], lambda: context).run())[0]
    finally:
        shared.emit = None  # a result may refer to a worker, and the listeners to the whole run
        for variable, value in context.items():
            if variable.get(_MISSING) is not value:
                variable.set(value)


_CANCELLATIONS = (asyncio.CancelledError, concurrent.futures.CancelledError, Cancelled)
_MISSING = object()
_UNSHIELDED = nullcontext()


class _Drive:
    """The data that all workers of a call of `drive` share."""

    def __init__(self, emit: Callable[[Any], Any] | None) -> None:
        self.emit = emit
        self.trio = running_trio()
        self.clock_origin = time.time() - perf_counter()
        """The time, in seconds since the epoch, at which the performance counter was 0."""
        self.cancellations = (*_CANCELLATIONS, getattr(self.trio, "Cancelled", Cancelled))

    @functools.cached_property
    def call_on_loop(self) -> Soon:
        """Calls a function on the event loop from any thread; first read in a task of the loop."""
        return caller_on_loop()


class _Bound:
    """The bound of steps in progress, which interrupts their worker, from the start on.

    The steps may be the cleanup of others, whose own bound is ``inner``. ``reason`` is the exception to raise
    once the bound is reached; None before.
    """

    def __init__(
        self,
        worker: _Worker,
        seconds: float | None,
        until: Signal | None = None,
        is_cleanup: bool = False,
        inner: _Bound | None = None,
    ) -> None:
        self.is_cleanup = is_cleanup
        self.inner = inner
        self.reason: Exception | None = None
        self.worker: _Worker | None = worker
        self._undo: list[Callable[[], object]] = []
        if seconds is not None:
            reason = TimeLimitReached(f"it took longer than {seconds:g} s")
            strike = functools.partial(self._strike, reason)
            self._undo.append(call_later(seconds, strike, worker.drive.trio))
        if until is not None:
            call = worker.drive.call_on_loop  # any thread may set the signal
            ticket = until.subscribe(lambda: call(lambda: self._strike(Stopped())))
            self._undo.append(functools.partial(until.unsubscribe, ticket))

    def disarm(self) -> None:
        """End the bound: it interrupts nothing from now on."""
        self.worker = None
        while self._undo:
            self._undo.pop()()

    def _strike(self, reason: Exception) -> None:
        if self.worker is not None and self.reason is None:
            self.reason = reason
            self.worker.interrupt()


class _Worker:
    """Runs steps in a task of asyncio, and performs their effects; it is also the reporter of the calls.

    It begins with the next steps of its group; a copy of it takes over its frames if it is abandoned.

    Attributes:
        frames: the steps in progress, innermost last, each with its bound.
        is_cancelled: whether the effect is cancelled, and the cancellation has not arrived yet.
        cancelling: returns how often a callable has cancelled the task, which trio does not allow.
        begins_cancelled: whether the task of the caller was cancelled before the steps began.
        error: the exception that they raised; a cancellation before they end, None if they returned a value.
    """

    def __init__(self, group: _Group, context: Context) -> None:
        self.drive = group.drive
        self.context = context
        self.effect: Effect | None = None
        self.error: BaseException | None = asyncio.CancelledError()
        self.frames: list[tuple[Steps[Any], _Bound | None]] = []
        self.index = -1
        self.is_cancelled = self.is_ending = self.is_abandoned = self.begins_cancelled = False
        self.cancelling: Callable[[], int] = int  # 0
        self._task: Any = None
        self._group = group
        self._cancel_timer: Callable[[], object] | None = None
        self._end: BaseException | None = None  # an interrupt

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        task = self._task = loop.create_task(self._work(), context=self.context)
        # Otherwise `asyncio.run` would wait for the task at its end, even for an abandoned one.
        asyncio._unregister_task(task)  # noqa: SLF001 - documented, for such tasks
        task.add_done_callback(self._left)

    def _left(self, _: object) -> None:
        self._group.ended(self)
        del self._task  # if it was cancelled before it began, its exception refers to this object

    async def _work(self) -> None:
        """Run the steps. Their exception stays out of the task: asyncio would log it, or end the loop."""
        if self.drive.trio is None:
            self._task = asyncio.current_task()  # an eager task runs while it is being started
            self.cancelling = self._task.cancelling
        try:
            if not self.frames:
                if self.is_cancelled:
                    return
                # Taken within the task, since trio begins tasks in any order.
                self.index, steps = self._group.waiting.popleft()
                self.frames.append((steps, None))
                self.begins_cancelled = self._group.begun()
            self._group.results[self.index] = await self._run()
            self.error = None
        except BaseException as error:  # noqa: BLE001 - raised in the task that waits
            self.error = error

    def interrupt(self) -> None:
        """Cancel the effect in progress, if its steps have to end; those around a cleanup end afterwards."""
        if self.is_cancelled or not self._has_to_end():
            return
        self.is_cancelled = True
        self._cancel_effect()
        self._cancel_timer = call_later(cleanup.GRACE_SECONDS, self._check_grace, self.drive.trio)

    def cancel(self) -> None:
        self.is_ending = True
        self.interrupt()

    def _check_grace(self) -> None:
        """Hand the frames to another worker if the effect has ignored its cancellation; children always end."""
        if self.is_cancelled and not isinstance(self.effect, Parallel):
            cleanup.log_abandoned(self.effect, cleanup.GRACE_SECONDS)
            successor = copy.copy(self)
            for _, bound in self.frames:
                if bound is not None:
                    bound.worker = successor
            self.is_abandoned = True
            self._keep()
            self._group.replace(self, successor)

    def in_scope(self, effect: Awaitable[Any]) -> Awaitable[Any]:
        """Return an awaitable of an effect that can be cancelled."""
        return effect

    async def _unless_cancelled(self, effect: Awaitable[Any]) -> Any:
        """As `in_scope`, but the first effect that may wait is cancelled before it begins, except events."""
        if not (self.is_ending or type(self.effect) is Emit):
            self._group.cancel_running()
            coroutine_of(effect).close()
            effect = anyio.lowlevel.checkpoint()  # which receives the cancellation
        return await self.in_scope(effect)

    def _cancel_effect(self) -> None:
        self._task.cancel()

    def _keep(self) -> None:
        """Let the abandoned effect run on."""
        abandoned = _abandoned_tasks()
        abandoned.add(self._task)
        self._task.add_done_callback(abandoned.discard)

    def _was_asked_to_cancel(self) -> bool:
        """Whether a CancelledError in this task comes from the driver, and not from a callable."""
        if self.is_cancelled or self.drive.trio is not None:  # which has its own exception
            return self.is_cancelled
        task = asyncio.current_task()  # another one for a listener of a call in a thread
        return task is not None and task is not self._task and task.cancelling() > 0

    async def _receive_cancellation(self) -> None:
        """Receive a pending cancellation, also of a callable, which was not raised if that awaited nothing."""
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            while self._task.uncancel():
                pass

    def end_grace(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None  # it refers to this object

    async def _settle(self) -> None:
        """Note that a cancellation has arrived: from now on, only a later one counts."""
        self.end_grace()  # first: the effect has ended
        await self._receive_cancellation()
        self.is_cancelled = False

    def _leave(self) -> tuple[Steps[Any], _Bound | None]:
        frame = self.frames.pop()
        if frame[1] is not None:
            frame[1].disarm()
        return frame

    async def _run(self) -> Any:  # noqa: C901, PLR0912, PLR0915 - the hot loop: a call costs more than a branch
        """Perform the effects of the frames; return the value of the outermost steps, or raise their exception."""
        frames, origin = self.frames, self.drive.clock_origin
        cancelling = self.cancelling
        in_scope = self._unless_cancelled if self.begins_cancelled else self.in_scope
        advance: Callable[[Any], Effect] | None = frames[-1][0].send
        outcome: Any = None
        effect: Effect | None = None
        end: BaseException | None = None
        bound: _Bound | None = None
        try:
            if self.is_cancelled:  # in the worker that ran the frames before
                advance, outcome = await self._unwind(Cancelled())
            while advance is not None:
                steps = frames[-1][0]
                send, throw = steps.send, steps.throw
                try:
                    effect = advance(outcome)
                    advance = outcome = None
                    while True:
                        try:
                            # The most frequent effects are performed inline, without a further call.
                            if type(effect) is Call:
                                self.effect = effect
                                try:
                                    mode = effect.mode
                                    if mode is _THREAD or mode is _BRIEF:
                                        outcome = call_in_thread(effect, self)
                                    else:
                                        args = effect.args
                                        if effect.reporting:
                                            args += (self,)
                                        outcome = effect.fn(*args)
                                    if mode is _ASYNC or is_awaitable(outcome):
                                        outcome = await in_scope(outcome)
                                    if cancelling() and not self.is_cancelled:
                                        await self._receive_cancellation()
                                except _FAILURES as error:
                                    raise await self._failure_of(error)  # noqa: B904 - it has its own cause
                            elif type(effect) is Emit:
                                outcome, emitted = None, self.emit(effect.event)
                                if emitted is not None:
                                    self.effect = effect
                                    await in_scope(emitted)
                            elif type(effect) is Now:
                                outcome = origin + perf_counter()
                            elif type(effect) is Bounded and self._enter(effect):
                                advance, outcome = effect.steps.send, None
                                break
                            else:
                                outcome = await in_scope(self._perform(effect))
                        except Exception as error:  # noqa: BLE001 - raised in the steps
                            if not self.is_cancelled:
                                effect = throw(cleanup.without_frame(error))
                                continue
                            if not self.is_abandoned:
                                cleanup.log_suppressed(error)
                        except BaseException as error:  # noqa: BLE001 - raised in the steps, and at the end
                            end = error
                        else:
                            if not self.is_cancelled:
                                effect = send(outcome)
                                continue
                        break
                except StopIteration as stop:
                    _, bound = self._leave()
                    if self.is_cancelled or (bound is not None and bound.is_cleanup):
                        advance, outcome = await self._ended(bound, stop.value)
                    elif frames:
                        advance, outcome = frames[-1][0].send, stop.value
                    else:
                        return stop.value
                except Exception as error:  # noqa: BLE001 - as below
                    _, bound = self._leave()
                    if self.is_cancelled or (bound is not None and bound.is_cleanup):
                        advance, outcome = await self._ended(bound, error)
                    else:
                        advance, outcome = self._raising(cleanup.without_frame(error))
                except BaseException as error:  # noqa: BLE001 - raised in the steps around, and at the end
                    advance, outcome = await self._raised(self._leave()[1], error)
                else:
                    if advance is None:  # no steps were entered: these were interrupted
                        advance, outcome = await self._unwind(end or Cancelled())
                        end = None
            raise cast("BaseException", outcome)
        finally:
            # The traceback of an exception may refer to this frame, and the result of a run to the exception.
            del effect, outcome, end, bound
            self._end = self.effect = None

    def _enter(self, effect: Bounded) -> bool:
        """Enter bounded steps, or raise `Stopped`; return whether they were entered."""
        if self.is_cancelled:  # the steps themselves have just caused it
            return False
        if effect.until is not None and effect.until.is_set:
            cleanup.close_steps(effect.steps)
            raise Stopped
        bound = _Bound(self, effect.seconds, effect.until)
        self.frames.append((effect.steps, bound))
        if bound.reason is not None:  # another thread has just set the signal
            self.interrupt()
        return True

    async def _unwind(self, end: BaseException) -> _Continuation:
        """Begin to end the steps, since a cancellation or an interrupt has arrived in this task."""
        if self.is_abandoned:  # another task has taken over
            return None, end
        if isinstance(end, GeneratorExit):  # no effect can be performed now
            while self.frames:
                cleanup.close_steps(self._leave()[0])
            return None, end
        if not (self.is_cancelled and isinstance(end, self.drive.cancellations)):
            self._end = end
        # First, since the bounds around a cleanup do not interrupt it.
        continuation = self._close_innermost(end)
        await self._settle()
        return continuation

    def _close_innermost(self, end: BaseException) -> _Continuation:
        """Continue with the cleanup of the innermost steps, in which a cancellation is raised."""
        steps, bound = self.frames[-1]
        if bound is not None and bound.is_cleanup:  # which closes its steps
            return steps.throw, end
        self._leave()
        cleaning = cleanup.remaining_steps(steps, end)
        within = _Bound(self, cleanup.CLEANUP_SECONDS, is_cleanup=True, inner=bound)
        self.frames.append((cleaning, within))
        return cleaning.send, None

    async def _raised(self, bound: _Bound | None, error: BaseException) -> _Continuation:
        """Continue after steps, with their bound, that have raised a cancellation or an interrupt."""
        if not isinstance(error, self.drive.cancellations):
            self._end = error
        elif bound is None or not bound.is_cleanup:  # else it was raised in them
            failure = None if self._was_asked_to_cancel() else failure_of(error)
            if failure is not None:
                return self._raising(failure)
            if not self.is_cancelled:
                self._end = error
        return await self._ended(bound)

    async def _ended(self, bound: _Bound | None, outcome: object = None) -> _Continuation:
        """Continue after steps that were cancelled, or their cleanup; an exception of theirs is logged."""
        if isinstance(outcome, Exception):
            cleanup.log_suppressed(outcome)
        if self.is_cancelled:
            await self._settle()
        end = self._end or (Cancelled() if self._has_to_end() else None)
        if end is not None:
            return self._close_innermost(end) if self.frames else (None, end)
        if bound is not None and bound.is_cleanup:
            bound = bound.inner
        reason = None if bound is None else bound.reason
        return self._raising(reason or Cancelled())

    def _raising(self, error: BaseException) -> _Continuation:
        """Continue with an exception, raised in the innermost steps, or at the end if there are none."""
        frames = self.frames
        return frames[-1][0].throw if frames else None, error

    def _has_to_end(self) -> bool:
        """Whether a bound around the innermost steps, up to a cleanup, or the end of the worker ends them."""
        for _, bound in reversed(self.frames):
            if bound is not None:
                if bound.reason is not None:
                    return True
                if bound.is_cleanup:
                    return False
        return self.is_ending

    async def _perform(self, effect: Effect) -> Any:
        self.effect = effect
        match effect:
            case Parallel(steps=steps, limit=limit):
                group = _Group(self.drive, steps, copy_context().copy, has_begun=True)
                return await group.run(limit)
            case Bounded(steps=steps):  # it is not entered: the steps around it end
                return cleanup.close_steps(steps)
            case Sleep(seconds=seconds):
                return await anyio.sleep(max(0.0, seconds))
            case Wait(signal=signal):
                return await wait_for(signal)
            case _:
                raise TypeError(f"a stage yielded {effect!r}, which is not an effect")

    def now(self) -> float:
        """The clock of the driver, in seconds since the epoch."""
        return self.drive.clock_origin + perf_counter()

    def emit(
        self, event: Any, listener: Callable[[Any], Any] | None = None
    ) -> Awaitable[None] | None:
        """Hand an event to the given listener, or to those of the run."""
        listener = listener or self.drive.emit
        if listener is None or self.is_abandoned:
            return None
        try:
            emitted = listener(event)
        except _FAILURES as error:
            self._listener_failed(error)
            return None
        if emitted is not None and is_awaitable(emitted):
            return self._await_listener(emitted)
        return None

    async def _await_listener(self, emitted: Awaitable[Any]) -> None:
        try:
            await emitted
        except _FAILURES as error:
            self._listener_failed(error)

    def _listener_failed(self, error: BaseException) -> None:
        """Log the exception of a listener; re-raise an interrupt, and a cancellation of the task."""
        if self._ends_task(error) or (isinstance(error, SystemExit) and not is_exit(error)):
            raise error
        cleanup.log_suppressed(error)

    def _ends_task(self, error: BaseException) -> bool:
        """Whether a caught exception is a cancellation by the driver, or closes the coroutine that caught it."""
        if isinstance(error, asyncio.CancelledError):
            return self._was_asked_to_cancel()
        return isinstance(error, GeneratorExit) and cleanup.is_thrown_here(error)

    async def _failure_of(self, error: BaseException) -> BaseException:
        """The exception of a call whose callable raised one; a cancellation of the callable is `CallCancelled`.

        It is returned, since raising it here would make a reference cycle of the exception and this frame.
        """
        is_end = self._ends_task(error)
        error = cleanup.without_frame(error)
        if is_end:
            return error  # nothing can be awaited in a coroutine that is closed
        if self.cancelling() and not self.is_cancelled:
            await self._receive_cancellation()
        return failure_of(error) or error


class _TrioWorker(_Worker):
    """A worker in a system task of trio, in which each effect has its own cancel scope."""

    def start(self) -> None:
        self._scopes: tuple[anyio.CancelScope, ...] = ()

        async def run() -> None:
            await self._work()
            self._group.ended(self)

        self.drive.trio.lowlevel.spawn_system_task(run, context=self.context)

    async def in_scope(self, effect: Awaitable[Any]) -> Any:
        """Await an effect in a cancel scope; return None if it was cancelled."""
        with anyio.CancelScope() as scope, anyio.CancelScope() as shelter:
            self._scopes = scope, shelter
            if self.is_cancelled:
                scope.cancel()
            return await effect

    def _cancel_effect(self) -> None:
        if self._scopes:
            self._scopes[0].cancel()

    def _keep(self) -> None:
        for scope in self._scopes[1:]:  # there are none if it has not begun
            scope.shield = True  # else every wait is cancelled at once: a busy loop


@functools.cache
def _abandoned_tasks() -> set[asyncio.Task[None]]:
    """The abandoned tasks that still run, referenced permanently.

    Python closes an unreferenced coroutine, and a coroutine that catches every exception would catch
    that of the closing too, and never return. When the interpreter exits, it collects everything
    except what a daemon thread references.
    """
    tasks: set[asyncio.Task[None]] = set()

    def hold(_: object) -> None:
        threading.Event().wait()

    holder = threading.Thread(target=hold, args=(tasks,), name="treadle-abandoned", daemon=True)
    with suppress(RuntimeError):  # the system cannot start another thread
        holder.start()
    return tasks


class _AsyncioEvent(asyncio.Future[None]):
    """An event for one task. If that is cancelled, a function is called at once, before other tasks run."""

    def __init__(self, on_cancel: Callable[[], object]) -> None:
        super().__init__()
        self.on_cancel = on_cancel

    def cancel(self, msg: Any = None) -> bool:
        # `asyncio.run` cancels tasks when its loop does not run: then the task cancels its workers later.
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - there is no public one that does not raise
            self.on_cancel()
        return super().cancel(msg)

    def set(self) -> None:
        if not self.done():
            self.set_result(None)

    async def wait(self) -> None:
        await self


class _TrioEvent:
    """An event for one task on trio; a cancellation of the task calls a function at once, too."""

    def __init__(self, on_cancel: Callable[[], object], trio: Any) -> None:
        self._lowlevel = trio.lowlevel
        self.on_cancel = on_cancel
        self._waiting: Any = None
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        if self._waiting is not None:
            self._lowlevel.reschedule(self._waiting)
            self._waiting = None

    async def wait(self) -> None:
        def abort(_: object) -> Any:
            self._waiting = None
            self.on_cancel()
            return self._lowlevel.Abort.SUCCEEDED

        if not self._is_set:
            self._waiting = self._lowlevel.current_task()
            await self._lowlevel.wait_task_rescheduled(abort)


class _Group:
    """The workers that run several steps at once, for another worker or for the task that called `drive`."""

    def __init__(
        self,
        shared: _Drive,
        steps: Sequence[Steps[Any]],
        new_context: Callable[[], Context],
        has_begun: bool = False,
    ) -> None:
        self.drive = shared
        self.waiting = deque(enumerate(steps))
        self.results: list[Any] = [None] * len(steps)
        self._contexts = (new_context() for _ in steps)
        self._has_begun = has_begun
        self._is_cancelled = False  # before the first worker has begun
        self._running: set[_Worker] = set()
        self._failure: BaseException | None = None
        self._is_ending = False
        self._renew_event()

    def _renew_event(self) -> None:
        trio, cancel = self.drive.trio, self._cancelled
        self._event: Any = _AsyncioEvent(cancel) if trio is None else _TrioEvent(cancel, trio)

    def _cancelled(self) -> None:
        if self._has_begun:
            self.cancel_running()
        else:
            self._is_cancelled = True

    def begun(self) -> bool:
        """Note that a worker has begun; return whether the task was cancelled before.

        A run reports its end, so it begins nevertheless.
        """
        self._has_begun = True
        if self._is_cancelled:
            self._event.set()
        return self._is_cancelled

    async def run(self, limit: int | None = None) -> list[Any]:
        """Run the steps; return their values, or raise the first exception when all workers have ended."""
        self._start_next(limit)
        try:
            if self.results:
                await self._wait()
        finally:  # the traceback of an exception in them may lead here
            results, self.results = self.results, []
        return results

    def _start_next(self, count: int | None) -> None:
        kind = _Worker if self.drive.trio is None else _TrioWorker
        for context in itertools.islice(self._contexts, count):
            self._start(kind(self, context))

    def _start(self, worker: _Worker) -> None:
        self._running.add(worker)
        worker.start()

    def replace(self, worker: _Worker, successor: _Worker) -> None:
        """Stop waiting for a worker, whose frames another one takes over to end them."""
        self._running.remove(worker)
        self._start(successor)

    def cancel_running(self) -> None:
        """Cancel the workers at once: until the waiting task resumes, one could start its next call."""
        if self._running and not self._is_ending:
            self._is_ending = True
            for worker in list(self._running):
                worker.cancel()

    def ended(self, worker: _Worker) -> None:
        if worker not in self._running:  # it was abandoned
            return
        self._running.remove(worker)
        worker.end_grace()  # of one that was cancelled before it began
        error, worker.error = worker.error, None  # its traceback refers to the worker
        if self._is_ending or self._failure is not None:
            self._drop(error)
        elif error is None:
            self._start_next(1)
        else:  # perhaps other code has cancelled it before it began
            self._failure = failure_of(error) or error
            self._event.set()
        if not self._running:
            self._event.set()

    def _drop(self, error: BaseException | None) -> None:
        """Log the exception of a cancelled worker; an interrupt takes precedence over everything."""
        if isinstance(error, Exception):
            if not isinstance(error, (Stopped, TimeLimitReached)):
                cleanup.log_suppressed(error)
        elif error is not None and not isinstance(
            error, (*self.drive.cancellations, GeneratorExit)
        ):
            self._failure = error

    async def _wait(self) -> None:
        end: BaseException | None = None
        try:
            while True:
                is_shielded = self._is_ending or self._is_cancelled
                shield = anyio.CancelScope(shield=True) if is_shielded else _UNSHIELDED
                try:
                    with shield:
                        await self._event.wait()
                except GeneratorExit:  # nothing can be awaited now
                    with suppress(RuntimeError):  # the event loop is closed
                        self.cancel_running()
                    raise
                except BaseException as error:  # noqa: BLE001 - raised below
                    end = error
                self._is_cancelled = end is not None and not self._has_begun
                if self._has_begun and (end is not None or self._failure is not None):
                    self.cancel_running()
                if not self._running:
                    break
                self._renew_event()
            # The event refers to this object, and the event loop to the event until this task waits again.
            self._event.on_cancel = self._event = None
            failure, self._failure = self._failure, None
            if end is not None and (failure is None or isinstance(failure, Exception)):
                self._drop(failure)
                failure = end
            if failure is not None:
                raise failure
        finally:
            end = failure = None  # their tracebacks refer to this frame
