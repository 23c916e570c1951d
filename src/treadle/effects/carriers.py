"""Carriers: the tasks in which bounded and parallel steps run on an event loop.

The task that performs a `Bounded` or a `Parallel` waits while one carrier per generator drives it.
A cancelled carrier has a grace period. If it does not end, because a callable ignores the
cancellation, it is abandoned, and another carrier performs the cleanup of its generators. A waiting task
can always be cancelled, so a stuck carrier is inside a callable, and has started no other carriers:
nested generators are therefore cleaned up innermost first.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from treadle.effects import cleanup
from treadle.effects.cleanup import log_abandoned, log_suppressed
from treadle.effects.effects import Cancelled, Effect, Steps, failure_of
from treadle.effects.signal_bridge import running_trio

if TYPE_CHECKING:
    from treadle.effects.regions import Region


def cancellations_of_task() -> int:
    """How often the current task was asked to cancel; always 0 on trio, which has its own exception."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


class CallersTask:
    """The task that called `drive`, which the driver neither cancels nor abandons."""

    __slots__ = (
        "_cancellations", "cancelling", "effect", "generators", "is_abandoned", "is_cancelled",
        "is_unwinding", "scope", "waits_for",
    )  # fmt: skip

    def __init__(self) -> None:
        self._cancellations = 0
        self.effect: Effect | None = None  # the call or the event that it performs
        self.generators: list[Steps[Any]] = []  # in progress in this task, innermost last
        self.scope: anyio.CancelScope | None = None
        self.waits_for: CarrierGroup | None = None
        self.is_cancelled = False  # and the cancellation has not arrived yet
        self.is_unwinding = False  # the cancellation has arrived, and ends the generators
        self.is_abandoned = False
        # The asyncio task's ``cancelling``, if a callable that cancels the task must affect only itself.
        self.cancelling: Callable[[], int] | None = None

    def was_asked_to_cancel(self) -> bool:
        """Whether a CancelledError in this task is a real cancellation, not one that a callable made."""
        return cancellations_of_task() > self._cancellations

    def ignore_handled_cancellations(self) -> None:
        """Ignore the cancellations that the caller is handling, but not a pending one."""
        self._cancellations = cancellations_of_task()
        if self._cancellations and getattr(asyncio.current_task(), "_must_cancel", False):
            self._cancellations -= 1

    def notice_cancellation(self) -> None:
        """Note that the cancellation has arrived: from now on, only a later one counts."""
        self._cancellations = cancellations_of_task()

    async def absorb_cancellation(self) -> None:
        """Undo a cancellation that a callable made; in the caller's task, it remains in effect."""

    async def settle_cancellation(self) -> None:
        """Receive a pending cancellation, which was not raised because the callable awaited nothing."""

    def extend_deadline(self, seconds: float | None = None) -> None:
        """Do nothing: the caller's task has no deadline."""


class Carrier(CallersTask):
    """A task that runs steps for another one, which waits.

    Args:
        group: the carriers that the same effect waits for.
        context: the context variables of the steps.
    """

    __slots__ = (
        "context", "deadline", "deliver", "error", "group", "has_value", "is_ending", "must_begin",
    )  # fmt: skip

    def __init__(self, group: CarrierGroup, context: Context) -> None:
        super().__init__()
        self.group = group
        self.context = context
        self.deadline = 0.0
        self.is_ending = False
        self.must_begin = False  # it has generators to end, even if it is cancelled at once
        self.deliver: Callable[[Any], object] = lambda _: None  # takes the steps' return value
        self.has_value = False
        self.error: BaseException | None = None

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Start the task."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ask the task to end within the grace period."""
        self.is_ending = True
        self.interrupt()

    def interrupt(self) -> None:
        """Cancel what the task waits for, and start its grace period, unless it is ending already."""
        if not self.is_cancelled and not self.is_unwinding:
            self.is_cancelled = True
            self.deadline = time.monotonic() + cleanup.GRACE_SECONDS
            self._cancel_native()
            if self.waits_for is not None:
                self.waits_for.cancel_running()

    def _cancel_native(self) -> None:
        raise NotImplementedError

    def abandon(self) -> None:
        """Stop waiting for the task, which continues to run; its outcome is dropped."""
        self.is_abandoned = self.is_cancelled = True
        log_abandoned(self.effect)

    def was_asked_to_cancel(self) -> bool:
        """Whether a CancelledError in this task comes from the driver."""
        return self.is_cancelled or (self.scope is not None and self.scope.cancel_called)

    def notice_cancellation(self) -> None:
        """Note that the cancellation has arrived, and allow time for the cleanup."""
        self.is_cancelled = False
        self.extend_deadline()

    def extend_deadline(self, seconds: float | None = None) -> None:
        """Give this task time for a cleanup, and more time to the tasks that wait for it, which end later.

        Args:
            seconds: from now; None means the time of a cleanup.
        """
        if seconds is None:
            seconds = cleanup.CLEANUP_SECONDS + cleanup.GRACE_SECONDS
        self.deadline = max(self.deadline, time.monotonic() + seconds)
        self.group.parent.extend_deadline(seconds + cleanup.GRACE_SECONDS)

    async def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Do the work, and keep its outcome out of the native task.

        asyncio logs an exception that is not retrieved from a task, and an interrupt in a task ends
        the event loop before the steps can be cleaned up.
        """
        if not self.must_begin and (self.is_cancelled or self.group.event.was_cancelled()):
            return
        try:
            value = await work()
            self.deliver(value)  # which the work has set
            self.has_value = True
        except BaseException as error:  # noqa: BLE001 - raised in the task that waits
            self.error = error

    def failure(self) -> BaseException | None:
        """The exception of the steps, to be raised in the waiting task."""
        error, self.error = self.error, None  # its traceback refers to this object: avoid a cycle
        if error is None and self.has_value:
            return None
        return failure_of(error or asyncio.CancelledError()) or error


_CANCELLATIONS = (asyncio.CancelledError, concurrent.futures.CancelledError)


class AsyncioCarrier(Carrier):
    """A carrier on asyncio.

    Attributes:
        regions: the bounded steps that it runs itself, innermost last.
        idle_region: a region that it has left, kept for the next steps that the same signal bounds; None if there
            is none.
        loop: its event loop.
        home: the thread of that loop.
    """

    __slots__ = ("_has_begun", "_is_started", "_task", "home", "idle_region", "loop", "regions")

    _task: asyncio.Task[None]

    def __init__(self, group: CarrierGroup, context: Context) -> None:
        super().__init__(group, context)
        self._has_begun = False
        self._is_started = False  # an eager task runs while it is being started
        self.regions: list[Region] = []
        self.idle_region: Region | None = None
        self.loop = asyncio.get_running_loop()
        self.home = threading.get_ident()

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """See `Carrier`."""
        task = self._task = self.loop.create_task(self._run(work), context=self.context)
        # Otherwise `asyncio.run` would wait for the task at its end, even for an abandoned one.
        asyncio._unregister_task(task)  # noqa: SLF001 - documented, for such tasks
        task.add_done_callback(self._done)  # for a task that is cancelled before it begins
        self._is_started = True

    async def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        native = asyncio.current_task()
        if native is not None:
            self._task, self.cancelling = native, native.cancelling
        self._has_begun = True
        await super()._run(work)
        self._disarm()
        if self._is_started:
            self._task.remove_done_callback(self._done)  # it would take a turn of the event loop
            self.group.ended(self)

    def _done(self, _: object) -> None:
        self.group.ended(self)

    def _cancel_native(self) -> None:
        if self._has_begun or not self.must_begin:  # a task cancelled before it begins never runs
            self._task.cancel()

    def _disarm(self) -> None:
        """Disarm all regions."""
        for region in self.regions:
            region.disarm()
        if self.idle_region is not None:
            self.idle_region.disarm()
            self.idle_region = None  # avoid a cycle

    def abandon(self) -> None:
        """See `Carrier`."""
        super().abandon()
        self._disarm()
        abandoned = _abandoned_tasks()
        abandoned.add(self._task)
        self._task.add_done_callback(abandoned.discard)

    def notice_cancellation(self) -> None:
        """See `Carrier`."""
        super().notice_cancellation()
        _uncancel()

    async def absorb_cancellation(self) -> None:
        """See `Carrier`."""
        if self.cancelling is not None and self.cancelling() and not self.was_asked_to_cancel():
            await self.settle_cancellation()

    async def settle_cancellation(self) -> None:
        """See `Carrier`."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # a pending cancellation is raised here
        _uncancel()


def _uncancel() -> None:
    task = asyncio.current_task()
    while task is not None and task.uncancel():
        pass


class _TrioCarrier(Carrier):
    __slots__ = ("_shelter", "_stop")

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        trio = self.group.trio
        self._stop, self._shelter = trio.CancelScope(), trio.CancelScope()

        async def run() -> None:
            with self._stop, self._shelter:
                await self._run(work)
            self.group.ended(self)

        trio.lowlevel.spawn_system_task(run, context=self.context)

    def _cancel_native(self) -> None:
        self._stop.cancel()

    def abandon(self) -> None:
        super().abandon()
        self._shelter.shield = True  # else every wait is cancelled at once: a busy loop


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
    """An event for one waiting task: a single future, which is cheaper than `asyncio.Event`."""

    __slots__ = ("_future", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def was_cancelled(self) -> bool:
        return self._future.cancelled()

    async def wait(self, seconds: float | None) -> None:
        if seconds is None:
            return await self._future
        timer = self._loop.call_later(max(0.0, seconds), self.set)
        try:
            await self._future
        finally:
            timer.cancel()
        return None


class _TrioEvent:
    __slots__ = ("_event", "_trio")

    def __init__(self, trio: Any) -> None:
        self._trio = trio
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    def was_cancelled(self) -> bool:
        return False

    async def wait(self, seconds: float | None) -> None:
        trio = self._trio
        if seconds is None:
            await self._event.wait()
        else:
            if seconds <= 0:  # a carrier that needs no time must run once
                await trio.lowlevel.cancel_shielded_checkpoint()
                await trio.lowlevel.cancel_shielded_checkpoint()
            with trio.CancelScope(deadline=trio.current_time() + max(0.0, seconds)):
                await self._event.wait()
        # A task that was cancelled after it was woken would only notice at its next wait.
        await trio.lowlevel.checkpoint_if_cancelled()


class CarrierGroup:
    """The carriers that one effect waits for.

    Args:
        parent: the task that waits.
        clean_up: performs the cleanup of generators, the innermost last, in the task of a carrier.
        on_value: is called whenever a carrier has returned a value.
    """

    __slots__ = (
        "_clean_up", "_on_value", "event", "failure", "is_ending", "parent", "running", "trio",
    )  # fmt: skip

    def __init__(
        self,
        parent: CallersTask,
        clean_up: Callable[[Carrier, list[Steps[Any]]], Coroutine[Any, Any, None]],
        on_value: Callable[[], object] | None = None,
    ) -> None:
        self.trio = running_trio()
        self._clean_up = clean_up
        self._on_value = on_value
        self.is_ending = False
        self.parent = parent
        self.running: set[Carrier] = set()
        self.failure: BaseException | None = None
        self._renew_event()

    def _renew_event(self) -> None:
        self.event: Any = _AsyncioEvent() if self.trio is None else _TrioEvent(self.trio)

    def carrier(self, context: Context) -> Carrier:
        """Make a carrier, which has to be started; see `Carrier`."""
        carrier = (AsyncioCarrier if self.trio is None else _TrioCarrier)(self, context)
        self.running.add(carrier)
        return carrier

    def replaced(self, carrier: Carrier) -> Carrier:
        """Abandon a carrier, and make one that continues in its place."""
        self.running.remove(carrier)
        carrier.abandon()
        following = self.carrier(carrier.context)
        following.must_begin, following.deliver = True, carrier.deliver
        return following

    async def checkpoint(self) -> None:
        """Start no carriers if the waiting task is already cancelled."""
        if self.trio is not None:  # on asyncio, carriers check the event
            await self.trio.lowlevel.checkpoint_if_cancelled()

    def stop(self) -> None:
        """End the wait, and cancel the carriers that still run."""
        self.cancel_running()
        self.event.set()

    def cancel_running(self) -> None:
        """Cancel the carriers that still run.

        They are cancelled at once, not when the waiting task resumes: until then a carrier could start
        its next call, and trio resumes tasks in any order.
        """
        if self.running and not self.is_ending:
            self.is_ending = True
            for carrier in list(self.running):
                carrier.cancel()

    def ended(self, carrier: Carrier) -> None:
        """Handle the end of a carrier."""
        if carrier not in self.running:  # it was abandoned, or its end was handled already
            return
        self.running.remove(carrier)
        if self.is_ending or self.event.was_cancelled():
            self._drop(carrier.error)
            carrier.error = None
        else:
            failure = carrier.failure()
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
        """Log the exception of a cancelled carrier; an interrupt takes precedence over everything."""
        if isinstance(error, BaseExceptionGroup):  # a trio nursery adds the cancellation to it
            group = cast("BaseExceptionGroup[BaseException]", error)
            error = group.split(self._cancellations())[1]
        if isinstance(error, Exception):
            log_suppressed(error)
        elif error is not None and not isinstance(error, self._cancellations()):
            self.failure = error

    def _cancellations(self) -> tuple[type[BaseException], ...]:
        native = asyncio.CancelledError if self.trio is None else self.trio.Cancelled
        return (native, *_CANCELLATIONS, Cancelled, GeneratorExit)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until all carriers have returned, one has failed, or the time is up.

        Carriers that still run then, or when the waiting task is cancelled, are cancelled.

        Raises:
            BaseException: the exception of the first carrier to fail, or the cancellation.
        """
        end: BaseException | None = None
        self.parent.waits_for = self
        try:
            await self.event.wait(seconds)
        except GeneratorExit:  # nothing can be awaited now
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                for carrier in self.running:
                    carrier.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - raised below
            end = error
        finally:
            self.parent.waits_for = None
        if self.running:
            end = await self._end() or end
        failure, self.failure = self.failure, None
        self._on_value = None  # it may refer to this object: avoid a cycle
        try:
            if end is not None and (failure is None or isinstance(failure, Exception)):
                raise end from failure
            if failure is not None:
                raise failure
        finally:
            del end, failure  # their tracebacks refer to this frame: avoid a cycle

    async def _end(self) -> BaseException | None:
        """Cancel the carriers, wait for them, and take over from those that do not end.

        Returns:
            A cancellation of this task that arrived meanwhile.
        """
        end: BaseException | None = None
        self.cancel_running()
        self.parent.notice_cancellation()
        while self.running:
            self._renew_event()
            seconds = min(carrier.deadline for carrier in self.running) - time.monotonic()
            if seconds > 0:
                try:
                    with anyio.CancelScope(shield=True):
                        await self.event.wait(seconds)
                        # After a pause of the event loop, each carrier gets to run before it counts as late.
                        await anyio.lowlevel.cancel_shielded_checkpoint()
                        await anyio.lowlevel.cancel_shielded_checkpoint()
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - returned
                    self.parent.notice_cancellation()
                    end = error
            else:
                self._take_over()
        return end

    def _take_over(self) -> None:
        """Abandon the stuck carriers, and let new ones clean up their generators."""
        now = time.monotonic()
        for carrier in [each for each in self.running if each.deadline <= now]:
            following = self.replaced(carrier)
            following.is_ending = following.is_unwinding = True
            following.extend_deadline()
            following.start(functools.partial(self._clean_up, following, carrier.generators[:]))


_MISSING = object()


def copy_back(context: Context) -> None:
    """Set the context variables that were changed in a copy of this task's context."""
    for variable, value in context.items():
        if variable.get(_MISSING) is not value:
            variable.set(value)


@contextlib.asynccontextmanager
async def task_group() -> AsyncGenerator[TaskGroup]:
    """A task group that raises the first exception of its tasks and its body, without a group around it."""
    cancellations = cancellations_of_task()
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            yield group
    except BaseExceptionGroup as errors:
        failure = errors.exceptions[0]
        if isinstance(failure, Exception) and cancellations_of_task() > cancellations:
            # The group has lost a cancellation of this task to the exception; it takes precedence.
            cancelled = asyncio.CancelledError()
            cancelled.__cause__ = failure
            failure = cancelled
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # its traceback refers to this frame
