"""The driver without an event loop: plain calls, and threads for parallel or time-limited work.

Steps are only ever advanced in the thread that called `drive_sync`. Worker threads run nothing but
the callables of `Call` effects, so no two steps of a run ever race, even if calls run in parallel.
Async callables run on one event loop in a background thread. It starts when it is first needed and is shared,
so that clients that are bound to a loop can be reused in a later run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from treadle.effects import cleanup
from treadle.effects.background import LOOK_UP_SECONDS, BackgroundCall
from treadle.effects.coroutines import same
from treadle.effects.effects import (
    NOW,
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
from treadle.effects.failures import failure_of

R = TypeVar("R")

Finish: TypeAlias = Callable[[cleanup.Outcome], object]
"""Receives the outcome of steps."""


@dataclass(eq=False)
class Task:
    """Steps in progress, and what they wait for.

    Attributes:
        finish: is called when the steps end without a cancellation.
        context: the context variables of the steps, as for a task on an event loop; None means the current ones.
        effect: the effect that they wait for, or that is performed.
        ticket: identifies this wait; None while they do not wait.
        awaited: what runs on a background loop for the effect.
        posted: calls to make for the effect, one after another, such as those of listeners to its events.
        on_end: is called when the wait ends; None calls nothing.
        is_alone: whether nothing runs concurrently with the steps and nothing ends them, so that their calls
            may block.
    """

    steps: Steps[Any]
    finish: Finish
    context: contextvars.Context | None
    effect: Effect = NOW
    ticket: object = None
    outcome: cleanup.Outcome = (None, None)
    children: list[Task] = field(default_factory=list["Task"])
    awaited: BackgroundCall | None = None
    posted: deque[Callable[[], Any]] = field(default_factory=deque[Callable[[], Any]])
    on_end: Callable[[], object] | None = None
    is_alone: bool = False
    is_over: bool = False

    def end(self, outcome: cleanup.Outcome) -> None:
        """End with an outcome; the traceback of an error may lead to this task, which keeps nothing."""
        finish = self.finish
        self.forget()
        finish(outcome)

    def forget(self) -> None:
        """Keep nothing of steps that are over: what finishes them, and their children, refer to this task."""
        self.is_over, self.effect, self.finish, self.awaited = True, NOW, _nothing, None
        self.children.clear()

    def within_context(self, act: Callable[..., R], *args: Any) -> R:
        """Call a function with the context variables of the steps."""
        return act(*args) if self.context is None else self.context.run(act, *args)


def _nothing(_: cleanup.Outcome) -> None:
    """Finish steps that are over already."""


class Scheduler:
    """Performs all effects of some steps, and of the steps within these effects; ``emit`` receives the events."""

    def __init__(self, emit: Callable[[Any], Any] | None = None, clock_origin: float = 0) -> None:
        self._emit = emit
        self._clock_origin = clock_origin or time.time() - time.perf_counter()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ready: deque[Task] = deque()
        # When to call which function, if the task still waits then.
        self._timers: dict[Task, tuple[float, Callable[[], None]]] = {}
        self._next_timer = math.inf  # no timer is due before

    def run(self, steps: Steps[R]) -> R:
        """Perform the effects of steps; return their value or raise their exception."""
        outcome: list[cleanup.Outcome] = []
        root = self.spawn(steps, outcome.append)
        root.is_alone = True
        try:
            while not outcome:
                self.turn()
        except BaseException as interrupt:
            self.cancel([root], interrupt)
            raise
        finally:
            self._inbox = queue.SimpleQueue()  # answers of cancelled steps
        # No local variable: the exception may refer to this frame.
        return cleanup.settle(outcome)

    def spawn(
        self, steps: Steps[Any], finish: Finish, context: contextvars.Context | None = None
    ) -> Task:
        """Queue steps to run; see `Task` for the arguments."""
        task = Task(steps, finish, context)
        self._ready.append(task)
        return task

    def turn(self) -> None:
        """Handle pending callbacks and due timers, and advance one task; wait if there are none."""
        if not self._ready and self._inbox.empty():
            seconds = min(max(0.0, self._next_timer - time.monotonic()), LOOK_UP_SECONDS)
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=seconds)()
        while not self._inbox.empty():
            self._inbox.get()()
        if time.monotonic() >= self._next_timer:
            self._fire_timers()
        if self._ready:
            task = self._ready.popleft()
            if not task.is_over:  # else it was cancelled while it was queued
                task.within_context(self._advance, task)

    def _later(self, task: Task, seconds: float, act: Callable[[], None]) -> None:
        """Call a function after some seconds, if the task still waits then."""
        due = time.monotonic() + seconds
        self._timers[task] = due, act
        self._next_timer = min(self._next_timer, due)

    def _fire_timers(self) -> None:
        now = time.monotonic()
        for task, (due, act) in sorted(self._timers.items(), key=lambda timer: timer[1][0]):
            # Its wait may just have ended.
            if due <= now and self._timers.pop(task, None) is not None:
                act()
        self._next_timer = min((due for due, _ in self._timers.values()), default=math.inf)

    def _stop_waiting(self, task: Task) -> None:
        task.ticket = None  # from here on every answer is stale
        self._timers.pop(task, None)
        end, task.on_end = task.on_end, None
        if end is not None:
            end()

    def _resume(self, task: Task, outcome: cleanup.Outcome = (None, None)) -> None:
        self._stop_waiting(task)
        task.children, task.posted, task.outcome = [], deque(), outcome
        self._ready.append(task)

    def _resume_soon(self, task: Task, outcome: cleanup.Outcome) -> None:
        """Resume a task when the events of its call have been delivered."""
        task.ticket = task.ticket or object()
        resume = functools.partial(self._resume, task, outcome)
        self._answer(task, lambda: task.posted.append(resume) if task.posted else resume())()

    def _advance(self, task: Task) -> None:  # noqa: C901, PLR0912 - the hot loop
        """Advance a task until it has to wait, or ends."""
        effect: Effect = NOW
        (value, error), task.outcome = task.outcome, (None, None)
        try:
            while True:
                effect = task.steps.send(value) if error is None else task.steps.throw(error)
                task.effect = effect
                if not isinstance(effect, (Call, Now, Emit)):
                    break
                if isinstance(effect, Call) and effect.mode is Mode.THREAD and not task.is_alone:
                    break
                value, error = None, None
                try:
                    if isinstance(effect, Emit):
                        value = self.notify(effect.event)
                    elif isinstance(effect, Now):
                        value = self.now()
                    elif effect.reporting:
                        task.ticket = object()
                        value = effect.fn(*effect.args, CallReporter(self, task))
                    else:
                        value = effect.fn(*effect.args)
                except BaseException as raised:  # noqa: BLE001 - raised in the steps
                    error = _failure(cleanup.without_frame(raised))
                if is_awaitable(value):
                    return self._outcome_of_awaitable(task, value)
                if not self._inbox.empty():  # an event, or a signal that ends the steps
                    return self._resume_soon(task, (value, error))
                task.ticket = None
        except StopIteration as stop:
            task.end((stop.value, None))
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - passed to the parent
            task.end((None, failure_of(raised) or raised))
        else:
            self._begin(task, effect)
        finally:
            del value, error, effect  # the traceback of an error may refer to this frame

    def _begin(self, task: Task, effect: Effect) -> None:
        task.ticket = object()
        match effect:
            case Call():
                self._call_in_thread(task, effect)
            case Parallel():
                self._parallel(task, effect)
            case Bounded():
                self._bounded(task, effect)
            case Sleep(seconds=seconds):
                self._later(task, seconds, lambda: self._resume(task))
            case Wait(signal=signal):
                self._subscribe(task, signal, lambda: self._resume(task))
            case _:
                wrong = TypeError(f"a stage yielded {effect!r}, which is not an effect")
                self._resume(task, (None, wrong))

    def _subscribe(self, task: Task, signal: Signal, act: Callable[[], None]) -> None:
        """Call a function when a signal is set, if the task still waits then."""
        ticket = signal.subscribe(self._answer(task, act))
        task.on_end = functools.partial(signal.unsubscribe, ticket)

    def _answer(
        self, task: Task, act: Callable[[], None], ticket: object = None
    ) -> Callable[[], None]:
        """Make a function for any thread, which calls another one here if the task still waits."""
        ticket = ticket or task.ticket

        def here() -> None:
            if task.ticket is ticket:
                act()

        def from_anywhere() -> None:
            # A stale answer would stay in the inbox, which refers to the scheduler.
            if task.ticket is ticket:
                self._inbox.put(here)

        return from_anywhere

    def post(self, task: Task, ticket: object, act: Callable[[], Awaitable[Any] | None]) -> None:
        """Call a function in the context of a task when those posted before are done, and await its result.

        This may be called in any thread. Nothing is called after the end of the wait that has the ticket.
        """

        def here() -> None:
            task.posted.append(act)
            if len(task.posted) == 1:
                child = Task(_making(task.posted), _nothing, task.context)
                task.children.append(child)
                task.within_context(self._advance, child)

        self._answer(task, here, ticket)()

    def _outcome_of_awaitable(self, task: Task, awaitable: Awaitable[Any]) -> None:
        """Await what a callable or a listener returned, on a background loop: it is the outcome of the effect."""
        ticket = task.ticket = task.ticket or object()
        call = task.awaited = BackgroundCall(awaitable)

        def done(call: Any) -> None:  # an argument, to which this must not refer: no cycles
            task.awaited = None
            error = call.exception()
            outcome = (call.result(), None) if error is None else (None, _failure(error))
            if outcome[1] is not None and isinstance(task.effect, Emit):
                cleanup.log_suppressed(outcome[1])
                outcome = None, None
            self._resume_soon(task, outcome)

        call.add_done_callback(lambda call: self._answer(task, lambda: done(call), ticket)())
        call.start()

    def _call_in_thread(self, task: Task, effect: Call) -> None:
        outcome: list[cleanup.Outcome] = []
        ticket = task.ticket
        args = (*effect.args, CallReporter(self, task)) if effect.reporting else effect.args

        def done() -> None:
            task.on_end = None
            value, error = outcome.pop()
            if is_awaitable(value):
                task.within_context(self._outcome_of_awaitable, task, value)
            else:
                self._resume_soon(task, (value, None if error is None else _failure(error)))

        answer = self._answer(task, done)

        def work() -> None:
            cleanup.call_into(outcome, effect.fn, *args)
            if task.ticket is not ticket:
                cleanup.discard(outcome)
            answer()

        task.on_end = functools.partial(cleanup.discard, outcome)
        # A daemon: a callable that never returns must not keep the interpreter from exiting.
        run = contextvars.copy_context().run
        worker = threading.Thread(target=run, args=(work,), name="treadle-worker", daemon=True)
        try:
            worker.start()
        except RuntimeError as error:  # the system has no more threads to give
            self._resume(task, (None, error))

    def _parallel(self, task: Task, effect: Parallel) -> None:
        results: list[Any] = [None] * len(effect.steps)
        waiting = deque(enumerate(effect.steps))
        context = contextvars.copy_context()

        def start_next() -> None:
            index, steps = waiting.popleft()

            def finish(outcome: cleanup.Outcome) -> None:
                task.children.remove(child)
                results[index] = outcome[0]
                if outcome[1] is not None:
                    self.cancel(task.children, Cancelled())
                    self._resume(task, outcome)
                elif waiting:
                    start_next()
                elif not task.children:
                    self._resume(task, (results, None))

            child = self.spawn(steps, finish, context.copy())
            task.children.append(child)

        for _ in results[: effect.limit]:
            start_next()
        if not results:
            self._resume(task, (results, None))

    def _bounded(self, task: Task, effect: Bounded) -> None:
        def end(reason: Exception) -> None:
            self.cancel(task.children, Cancelled())
            self._resume(task, (None, reason))

        if effect.until is not None and effect.until.is_set:
            cleanup.close_steps(effect.steps)
            return self._resume(task, (None, Stopped()))
        child = Task(effect.steps, functools.partial(self._resume, task), task.context)
        child.is_alone = task.is_alone and effect.seconds is None and effect.until is None
        task.children.append(child)
        if effect.seconds is not None:
            over = TimeLimitReached(f"it took longer than {effect.seconds:g} s")
            self._later(task, effect.seconds, lambda: end(over))
        if effect.until is not None:
            self._subscribe(task, effect.until, lambda: end(Stopped()))
        # Started at once, so that steps that do not wait end within any time limit.
        return self._advance(child)

    def cancel(self, tasks: Iterable[Task], end: BaseException) -> None:
        """Cancel tasks and everything they started, innermost first, by raising an exception in the steps.

        Async callables get a grace period to end in; those in threads are abandoned at once.
        """
        tasks = list(tasks)
        for task in tasks:
            self._interrupt(task)
        deadline = time.monotonic() + cleanup.GRACE_SECONDS
        for task in tasks:
            self._unwind(task, end, deadline)

    def _interrupt(self, task: Task) -> None:
        """Cancel what a task and everything it started wait for."""
        self._stop_waiting(task)
        for child in task.children:
            self._interrupt(child)
        if task.awaited is not None:
            task.awaited.cancel()

    def _unwind(self, task: Task, end: BaseException, deadline: float) -> None:
        for child in list(task.children):
            self._unwind(child, end, deadline)
        if task.awaited is not None and not task.awaited.wait_for_end(deadline):
            cleanup.log_abandoned(task.effect, cleanup.GRACE_SECONDS)
        task.forget()
        task.within_context(self._clean_up, task.steps, end)

    def _clean_up(self, steps: Steps[Any], end: BaseException) -> None:
        """Raise a cancellation in steps, and perform their cleanup."""
        with contextlib.suppress(TimeLimitReached):
            remaining = cleanup.remaining_steps(steps, end)
            within = Bounded(remaining, seconds=cleanup.CLEANUP_SECONDS)
            failure = Scheduler(self._emit, self._clock_origin).run(_only(within))
            if failure is not None:
                cleanup.log_suppressed(failure)

    def now(self) -> float:
        """The clock of the driver, in seconds since the epoch."""
        return self._clock_origin + time.perf_counter()

    def notify(
        self, event: Any, listener: Callable[[Any], Any] | None = None
    ) -> Awaitable[Any] | None:
        """Call the given listener, or those of the run; return what has to be awaited."""
        listener = listener or self._emit
        if listener is None:
            return None
        try:
            value = listener(event)
        except BaseException as error:  # noqa: BLE001 - a listener must not affect the run
            _failure(error)  # raises an interrupt
            cleanup.log_suppressed(error)
            return None
        return value if is_awaitable(value) else None


class CallReporter:
    """The reporter of a call. Events of other threads are delivered in that of the steps, before the outcome.

    They are delivered one after another. The next one waits until the async listeners of an event have returned.
    """

    def __init__(self, scheduler: Scheduler, task: Task) -> None:
        self.now = scheduler.now
        self._scheduler = scheduler
        self._task = task
        self._ticket = task.ticket
        self._home = threading.get_ident()

    def emit(self, event: Any, listener: Callable[[Any], Any] | None = None) -> None:
        """Hand an event to the given listener, or to those of the run."""
        notify = functools.partial(self._scheduler.notify, event, listener)
        if threading.get_ident() == self._home:  # which this blocks
            awaitable = notify()
            if awaitable is not None:
                try:
                    BackgroundCall(awaitable).start().wait()
                except BaseException as error:  # noqa: BLE001 - a listener must not affect the run
                    cleanup.log_suppressed(_failure(error))
        elif self._task.ticket is self._ticket:
            self._scheduler.post(self._task, self._ticket, notify)
        elif asyncio._get_running_loop() is None:  # noqa: SLF001 - a coroutine is cancelled anyway
            raise Cancelled("the call was abandoned")


def drive_sync(steps: Steps[R], emit: Callable[[Any], Any] | None = None) -> R:
    """Perform every effect of some steps in this thread; works within a running event loop too.

    Args:
        steps: a generator of effects that has not been started.
        emit: receives each event; may return an awaitable. Its exceptions are logged.

    Returns:
        The return value of the steps.

    Raises:
        Exception: an exception of the steps. An interrupt is raised in the steps first, and then re-raised.
    """
    return Scheduler(emit).run(steps)


def _failure(error: BaseException) -> Exception:
    """The exception of a callable that is raised in the steps; an interrupt is raised here."""
    failure = failure_of(error) or error
    if isinstance(failure, Exception):
        return failure
    try:
        raise failure
    finally:
        del error, failure  # the traceback refers to this frame


def _making(posted: deque[Callable[[], Any]]) -> Steps[None]:
    """Make posted calls, and those that are posted meanwhile; an exception is that of an async listener."""
    while posted:
        awaitable = posted[0]()
        if awaitable is not None:
            try:
                yield Call(same, awaitable)
            except Exception as error:  # noqa: BLE001 - it must not affect the run
                cleanup.log_suppressed(error)
        posted.popleft()


def _only(effect: Effect) -> Steps[Any]:
    return (yield effect)
