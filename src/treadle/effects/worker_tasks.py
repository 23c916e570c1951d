"""The tasks that run steps on an event loop, and the bounds that end the steps.

A task runs a stack of frames: generators, of which each waits for the `Bounded` that it has yielded, and the
innermost for a call. The root task, which called `drive`, belongs to the caller: it enters no bounds, but waits
for worker tasks. A bound that strikes cancels the call of its worker task, and the driver unwinds the frames.
A callable that ignores the cancellation for the grace period keeps its task; another task takes the frames over.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any

import anyio

from treadle.effects import cleanup
from treadle.effects.cleanup import log_abandoned, log_suppressed
from treadle.effects.effects import (
    Cancelled,
    Effect,
    Signal,
    Steps,
    Stopped,
    TimeLimitReached,
)
from treadle.effects.event_loop import (
    call_later,
    caller_on_loop,
    cancellations_of_task,
)
from treadle.effects.failures import failure_of

_CANCELLATIONS = (asyncio.CancelledError, concurrent.futures.CancelledError, Cancelled)


class Bound:
    """The bound of steps in progress. It may strike from the start, and interrupts the task of the steps.

    Args:
        task: runs the steps.
        seconds: see `Bounded`.
        until: see `Bounded`.
        is_cleanup: whether the steps perform the cleanup of others.
        inner: the bound of those others, if they have one.

    Attributes:
        reason: the exception with which the bound has struck; None until then.
    """

    __slots__ = (
        "_cancel_timer", "_seconds", "_task", "_ticket", "_until", "inner", "is_cleanup", "reason",
    )  # fmt: skip

    def __init__(
        self,
        task: RootTask,
        seconds: float | None,
        until: Signal | None = None,
        is_cleanup: bool = False,
        inner: Bound | None = None,
    ) -> None:
        self.is_cleanup = is_cleanup
        self.inner = inner
        self.reason: Exception | None = None
        self._seconds = seconds
        self._until = until
        self._task: RootTask | None = task
        self._cancel_timer: Callable[[], object] | None = None
        if seconds is not None:
            self._cancel_timer = call_later(seconds, self._time_is_up, task.trio)
        if until is not None:
            if task.call_on_loop is None:
                task.call_on_loop = caller_on_loop()
            self._ticket = until.subscribe(self._stop)

    def move(self, task: RootTask) -> None:
        """Interrupt another task, which takes the steps over."""
        self._task = task

    def disarm(self) -> None:
        """Let the bound strike no more."""
        self._task = None
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None  # it refers to this object
        if self._until is not None:
            self._until.unsubscribe(self._ticket)

    def _time_is_up(self) -> None:
        self._strike(TimeLimitReached(f"it took longer than {self._seconds:g} s"))

    def _stop(self) -> None:
        """Strike; called in the thread that sets the signal."""
        task = self._task
        if task is not None and task.call_on_loop is not None:
            task.call_on_loop(lambda: self._strike(Stopped()))

    def _strike(self, reason: Exception) -> None:
        if self._task is not None and self.reason is None:
            self.reason = reason
            self._task.interrupt(self)


class RootTask:
    """The task that called `drive`, which the driver never abandons.

    Attributes:
        frames: the steps in progress, innermost last, each with its bound.
        effect: the call or the event that it performs.
        is_cancelled: whether a bound has cancelled the effect, and the cancellation has not arrived yet.
        is_ending: whether all steps of the task have to end.
        is_scoped: whether each effect is awaited in a cancel scope.
        cancel_children: cancels the tasks that it waits for; None if it waits for none.
        call_on_loop: see `caller_on_loop`; None until a bound needs it.
        cancelling: the method of the asyncio task, if a callable that cancels the task must affect only itself.
        trio: see `running_trio`.
    """

    __slots__ = (
        "_cancellations", "_scopes", "call_on_loop", "cancel_children", "cancelling", "effect", "frames",
        "is_abandoned", "is_cancelled", "is_ending", "is_scoped", "trio",
    )  # fmt: skip

    enters_bounds = False

    def __init__(self, trio: Any) -> None:
        self.trio = trio
        self.frames: list[tuple[Steps[Any], Bound | None]] = []
        self.effect: Effect | None = None
        self.is_cancelled = self.is_abandoned = self.is_ending = self.is_scoped = False
        self.cancel_children: Callable[[], None] | None = None
        self.call_on_loop: Callable[[Callable[[], object]], object] | None = None
        self.cancelling: Callable[[], int] | None = None
        self._cancellations = 0
        self._scopes: tuple[anyio.CancelScope, ...] = ()

    def leave(self) -> tuple[Steps[Any], Bound | None]:
        """Remove the innermost steps."""
        frame = self.frames.pop()
        if frame[1] is not None:
            frame[1].disarm()
        return frame

    def interrupt(self, bound: Bound | None = None) -> None:
        """Cancel the effect in progress, unless it is part of a cleanup.

        Args:
            bound: the bound that has struck; None if all steps of the task have to end.
        """
        if self.is_cancelled:
            return
        for _, inner in reversed(self.frames):
            if inner is not None:
                if inner is bound:
                    break
                if inner.is_cleanup:  # the driver ends the steps around it afterwards
                    return
        self.is_cancelled = True
        self._cancel_effect()
        if self.cancel_children is not None:
            self.cancel_children()

    def _cancel_effect(self) -> None:
        if self._scopes:
            self._scopes[0].cancel()

    def shield(self) -> None:
        """Shield the following effects, which are those of a cleanup, from the scopes of the caller."""
        self.is_scoped = True

    async def in_scope(self, effect: Awaitable[Any]) -> Any:
        """Await an effect in a cancel scope; return None if it was cancelled."""
        with (
            anyio.CancelScope(shield=not self.enters_bounds) as scope,
            anyio.CancelScope() as shelter,
        ):
            self._scopes = scope, shelter
            if self.is_cancelled:
                scope.cancel()
            return await effect

    def was_asked_to_cancel(self) -> bool:
        """Whether a CancelledError in this task is a real cancellation, not one that a callable made."""
        return self.is_cancelled or cancellations_of_task() > self._cancellations

    def ignore_handled_cancellations(self) -> None:
        """Ignore the cancellations that the caller is handling, but not a pending one."""
        self._cancellations = cancellations_of_task()
        if self._cancellations and getattr(asyncio.current_task(), "_must_cancel", False):
            self._cancellations -= 1

    def is_cancellation(self, error: BaseException) -> bool:
        """Whether an exception is a cancellation, and no interrupt."""
        native = asyncio.CancelledError if self.trio is None else self.trio.Cancelled
        return isinstance(error, (native, *_CANCELLATIONS))

    async def absorb_cancellation(self) -> None:
        """Undo a cancellation that a callable made; in the caller's task, it remains in effect."""

    async def settle(self) -> None:
        """Note that a cancellation has arrived: from now on, only a later one counts."""
        self._cancellations = cancellations_of_task()
        self.is_cancelled = False


class WorkerTask(RootTask):
    """A task that runs steps for another one, which waits.

    Args:
        group: the tasks that the same effect waits for.
        context: the context variables of the steps.

    Attributes:
        deliver: takes the return value of the steps.
        has_value: whether they have returned.
        error: the exception that they raised.
    """

    __slots__ = ("_cancel_timer", "_group", "context", "deliver", "error", "has_value")

    enters_bounds = True

    def __init__(self, group: WorkerGroup, context: Context) -> None:
        super().__init__(group.trio)
        self._group = group
        self.context = context
        self.deliver: Callable[[Any], object] = lambda _: None
        self.has_value = False
        self.error: BaseException | None = None
        self._cancel_timer: Callable[[], object] | None = None

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Start the task; the work returns the value of the steps."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ask the task to end."""
        self.is_ending = True
        self.interrupt()

    def _cancel_effect(self) -> None:
        super()._cancel_effect()
        self._cancel_timer = call_later(cleanup.GRACE_SECONDS, self._check_grace, self.trio)

    def _check_grace(self) -> None:
        """Hand the frames to another task if the effect has ignored its cancellation; other tasks always end."""
        if self.is_cancelled and self.cancel_children is None:
            log_abandoned(self.effect)
            self.is_abandoned = True
            self._keep()
            self._group.replace(self)

    def _keep(self) -> None:
        """Let the abandoned effect run on."""
        raise NotImplementedError

    def was_asked_to_cancel(self) -> bool:
        """Whether a CancelledError in this task comes from the driver."""
        return self.is_cancelled

    def shield(self) -> None:
        """Do nothing: no scope of the caller reaches this task."""

    async def settle(self) -> None:
        """Receive a pending cancellation, which was not raised if the callable awaited nothing."""
        if self._cancel_timer is not None:  # first: the effect has ended
            self._cancel_timer()
            self._cancel_timer = None  # it refers to this object
        await self._receive_cancellation()
        self.is_cancelled = False

    async def _receive_cancellation(self) -> None:
        """Do nothing: a scope raises no cancellation after its end."""

    async def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Do the work, and keep its outcome out of the native task.

        asyncio logs an exception that is not retrieved from a task, and an interrupt in a task ends
        the event loop before the steps can be cleaned up.
        """
        if not self.frames and (self.is_cancelled or self._group.event.was_cancelled()):
            return
        try:
            value = await work()
            self.deliver(value)
            self.has_value = True
        except BaseException as error:  # noqa: BLE001 - raised in the task that waits
            self.error = error

    def failure(self) -> BaseException | None:
        """The exception of the steps, to be raised in the waiting task."""
        error, self.error = self.error, None  # its traceback refers to this object: avoid a cycle
        if error is None and self.has_value:
            return None
        return failure_of(error or asyncio.CancelledError()) or error


class _AsyncioWorker(WorkerTask):
    __slots__ = ("_is_started", "_task")

    _task: asyncio.Task[None]

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._is_started = False  # an eager task runs while it is being started
        loop = asyncio.get_running_loop()
        task = self._task = loop.create_task(self._run(work), context=self.context)
        # Otherwise `asyncio.run` would wait for the task at its end, even for an abandoned one.
        asyncio._unregister_task(task)  # noqa: SLF001 - documented, for such tasks
        task.add_done_callback(self._done)  # for a task that is cancelled before it begins
        self._is_started = True

    async def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        native = asyncio.current_task()
        if native is not None:
            self._task, self.cancelling = native, native.cancelling
        await super()._run(work)
        if self._is_started:
            self._task.remove_done_callback(self._done)  # it would take a turn of the event loop
            self._group.ended(self)

    def _done(self, _: object) -> None:
        self._group.ended(self)

    def _cancel_effect(self) -> None:
        self._task.cancel()
        super()._cancel_effect()

    def _keep(self) -> None:
        abandoned = _abandoned_tasks()
        abandoned.add(self._task)
        self._task.add_done_callback(abandoned.discard)

    async def absorb_cancellation(self) -> None:
        if self._task.cancelling() and not self.is_cancelled:
            await self._receive_cancellation()

    async def _receive_cancellation(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # a pending cancellation is raised here
        while self._task.uncancel():
            pass


class _TrioWorker(WorkerTask):
    __slots__ = ()

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.is_scoped = True

        async def run() -> None:
            await self._run(work)
            self._group.ended(self)

        self.trio.lowlevel.spawn_system_task(run, context=self.context)

    def _keep(self) -> None:
        self._scopes[1].shield = True  # else every wait is cancelled at once: a busy loop


@functools.cache
def _abandoned_tasks() -> set[asyncio.Task[None]]:
    """The abandoned tasks that still run, referenced permanently.

    Python closes an unreferenced coroutine, and a coroutine that catches every exception would catch
    that of the closing too, and never return. When the interpreter exits, it collects everything
    except what a daemon thread references.
    """
    tasks: set[asyncio.Task[None]] = set()
    holder = threading.Thread(target=_hold, args=(tasks,), name="treadle-abandoned", daemon=True)
    with contextlib.suppress(RuntimeError):  # the system cannot start another thread
        holder.start()
    return tasks


def _hold(_: object) -> None:
    threading.Event().wait()


class _AsyncioEvent:
    """An event for one waiting task."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def was_cancelled(self) -> bool:
        return self._future.cancelled()

    async def wait(self) -> None:
        await self._future


class _TrioEvent:
    __slots__ = ("_trio", "_wait", "set")

    def __init__(self, trio: Any) -> None:
        self._trio, event = trio, trio.Event()
        self.set, self._wait = event.set, event.wait

    def was_cancelled(self) -> bool:
        return False

    async def wait(self) -> None:
        await self._wait()
        # A task that was cancelled after it was woken would only notice at its next wait.
        await self._trio.lowlevel.checkpoint_if_cancelled()


class WorkerGroup:
    """The worker tasks that one effect waits for.

    Args:
        parent: the task that waits.
        run: runs the frames of a task, within it.
        on_value: is called whenever a task has returned a value.
    """

    __slots__ = ("_on_value", "_run", "event", "failure", "is_ending", "parent", "running", "trio")

    def __init__(
        self,
        parent: RootTask,
        run: Callable[[WorkerTask], Coroutine[Any, Any, Any]],
        on_value: Callable[[], object] | None = None,
    ) -> None:
        self.trio = parent.trio
        self._run = run
        self._on_value = on_value
        self.is_ending = False
        self.parent = parent
        self.running: set[WorkerTask] = set()
        self.failure: BaseException | None = None
        self._renew_event()

    def _renew_event(self) -> None:
        self.event: Any = _AsyncioEvent() if self.trio is None else _TrioEvent(self.trio)

    async def checkpoint(self) -> None:
        """Start no tasks if the waiting task is already cancelled."""
        if self.trio is not None:  # on asyncio, the tasks check the event
            await self.trio.lowlevel.checkpoint_if_cancelled()

    def start(self, context: Context, begin: Callable[[WorkerTask], None]) -> None:
        """Start a task.

        Args:
            context: the context variables of its steps.
            begin: enters the first steps, within the task: trio begins tasks in any order.
        """
        worker = self._worker(context)

        def work() -> Coroutine[Any, Any, Any]:
            begin(worker)
            return self._run(worker)

        worker.start(work)

    def replace(self, worker: WorkerTask) -> None:
        """Stop waiting for a task, whose frames another one takes over to end them."""
        self.running.remove(worker)
        following = self._worker(worker.context)
        following.deliver, following.frames = worker.deliver, worker.frames
        following.is_ending, following.is_cancelled = worker.is_ending, True
        following.call_on_loop = worker.call_on_loop
        for _, bound in following.frames:
            if bound is not None:
                bound.move(following)
        following.start(lambda: self._run(following))

    def _worker(self, context: Context) -> WorkerTask:
        worker = (_AsyncioWorker if self.trio is None else _TrioWorker)(self, context)
        self.running.add(worker)
        return worker

    def cancel_running(self) -> None:
        """Cancel the tasks that still run.

        They are cancelled at once, not when the waiting task resumes: until then one could start
        its next call, and trio resumes tasks in any order.
        """
        if self.running and not self.is_ending:
            self.is_ending = True
            for worker in list(self.running):
                worker.cancel()

    def ended(self, worker: WorkerTask) -> None:
        """Handle the end of a task."""
        if worker not in self.running:  # it was abandoned, or its end was handled already
            return
        self.running.remove(worker)
        if self.is_ending or self.event.was_cancelled():
            self._drop(worker.error)
            worker.error = None
        else:
            failure = worker.failure()
            if failure is not None:
                self._fail(failure)
            elif self._on_value is not None and self.failure is None:
                self._on_value()
        if not self.running:
            self.event.set()

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self.event.set()
        else:
            self._drop(error)

    def _drop(self, error: BaseException | None) -> None:
        """Log the exception of a cancelled task; an interrupt takes precedence over everything."""
        if isinstance(error, Exception):
            if not isinstance(error, (Stopped, TimeLimitReached)):
                log_suppressed(error)
        elif error is not None and not (
            self.parent.is_cancellation(error) or isinstance(error, GeneratorExit)
        ):
            self.failure = error

    async def wait(self) -> None:
        """Wait until all tasks have returned, or one has failed.

        Tasks that still run then, or when the waiting task is cancelled, are cancelled.

        Raises:
            BaseException: the exception of the first task to fail, or the cancellation.
        """
        end: BaseException | None = None
        self.parent.cancel_children = self.cancel_running
        try:
            try:
                await self.event.wait()
            except GeneratorExit:  # nothing can be awaited now
                for worker in list(self.running):
                    with contextlib.suppress(RuntimeError):  # the event loop is closed
                        worker.cancel()
                raise
            except BaseException as error:  # noqa: BLE001 - raised below
                end = error
            self.cancel_running()
            while self.running:
                self._renew_event()
                try:
                    with anyio.CancelScope(shield=True):
                        await self.event.wait()
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - raised below
                    end = error
            failure, self.failure = self.failure, None
            if end is not None and (failure is None or isinstance(failure, Exception)):
                raise end from failure
            if failure is not None:
                raise failure
        finally:
            self.parent.cancel_children = self._on_value = None  # avoid cycles
            end = failure = None  # their tracebacks refer to this frame


_MISSING = object()


def copy_back(context: Context) -> None:
    """Set the context variables that were changed in a copy of this task's context."""
    for variable, value in context.items():
        if variable.get(_MISSING) is not value:
            variable.set(value)
