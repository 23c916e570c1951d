"""Several steps at once without an event loop: a small scheduler over worker threads.

One thread advances all the steps; what they wait for (a worker, a timer, a signal) posts to one inbox.
A post carries the ticket of the wait it answers, so that an answer which comes too late, after a time limit
or a cancellation, is recognised as stale and dropped.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import heapq
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from treadle.pipeline.background import call, holds_up
from treadle.pipeline.effects import (
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
    Within,
)

if TYPE_CHECKING:
    from treadle.pipeline.sync_driver import SyncDriver


class Task:
    """Steps under way, and what they wait for."""

    __slots__ = ("children", "finish", "give_up", "over", "steps", "ticket")

    def __init__(
        self, steps: Steps[Any], finish: Callable[[Any, BaseException | None], None]
    ) -> None:
        self.steps = steps
        self.finish = finish
        self.ticket: object = None
        self.children: list[Task] = []
        self.give_up: Callable[[], object] | None = None
        self.over = False


class Scheduler:
    """Runs one composite effect, and all that its steps ask for in turn.

    Args:
        driver: performs what keeps nobody waiting.
    """

    def __init__(self, driver: SyncDriver) -> None:
        self._driver = driver
        self._inbox: queue.SimpleQueue[tuple[Task, object, Any, BaseException | None]] = (
            queue.SimpleQueue()
        )
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()
        self._ready: deque[tuple[Task, Any, BaseException | None]] = deque()

    def run(self, effect: Effect) -> Any:
        """Perform the effect; return its outcome or raise its failure."""
        outcome: list[tuple[Any, BaseException | None]] = []

        def steps() -> Steps[Any]:
            return (yield effect)

        root = self.spawn(steps(), lambda value, error: outcome.append((value, error)))
        try:
            while not outcome:
                self.turn()
        except BaseException as interrupt:
            self.cancel(root, interrupt)
            raise
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    def spawn(
        self, steps: Steps[Any], finish: Callable[[Any, BaseException | None], None]
    ) -> Task:
        """Put steps in line to run.

        Args:
            steps: a generator of effects that has not been started.
            finish: is called with what they return and None, or with None and what they raise.
        """
        task = Task(steps, finish)
        self._ready.append((task, None, None))
        return task

    def turn(self) -> None:
        """Advance one task: one that is ready, or the first that becomes so."""
        if self._ready:
            self._advance(*self._ready.popleft())
            return
        wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        try:
            task, ticket, value, error = self._inbox.get(timeout=wait)
        except queue.Empty:
            heapq.heappop(self._timers)[2]()
            return
        if task.ticket is ticket:
            self._resume(task, value, error)

    def _resume(self, task: Task, value: Any, error: BaseException | None = None) -> None:
        task.ticket = task.give_up = None
        task.children = []
        self._ready.append((task, value, error))

    def _advance(self, task: Task, value: Any, error: BaseException | None) -> None:
        """Step a task on until it has to wait, or ends."""
        if task.over:  # it was cancelled while it stood in line
            return
        try:
            while True:
                effect = task.steps.send(value) if error is None else task.steps.throw(error)
                if not isinstance(effect, (Call, Now, Emit)) or holds_up(effect):
                    break
                value, error = None, None
                try:
                    value = self._driver.perform_at_once(effect)
                except Exception as raised:  # noqa: BLE001 - a failure is the steps' to deal with
                    error = raised
        except StopIteration as stop:
            task.over = True
            task.finish(stop.value, None)
        except Exception as raised:  # noqa: BLE001 - the parent's to deal with
            task.over = True
            task.finish(None, raised)
        else:
            self._begin(task, effect)

    def _begin(self, task: Task, effect: Effect) -> None:
        """Start what a task waits for."""
        task.ticket = object()
        match effect:
            case Call():
                self._call(task, effect)
            case Parallel():
                self._parallel(task, effect)
            case Within():
                self._within(task, effect)
            case Sleep(seconds=seconds):
                self._at(task, seconds, lambda: self._resume(task, None))
            case Wait(signal=signal):
                task.give_up = self._on(task, signal)
            case _:
                wrong = TypeError(f"a stage yielded {effect!r}, which is no effect")
                self._resume(task, None, wrong)

    def _call(self, task: Task, effect: Call) -> None:
        ticket = task.ticket
        futures: list[concurrent.futures.Future[Any]] = []

        def awaiting(future: concurrent.futures.Future[Any]) -> None:
            futures.append(future)
            if task.ticket is not ticket:  # given up while the call was being made
                future.cancel()

        def work() -> None:
            value: Any = None
            error: BaseException | None = None
            try:
                value = call(effect, awaiting)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the steps wait
                error = raised
            self._inbox.put((task, ticket, value, error))

        task.give_up = lambda: [future.cancel() for future in futures]
        context = contextvars.copy_context()
        # A daemon: a callable that never returns must not keep the interpreter from leaving.
        threading.Thread(
            target=context.run, args=(work,), name="treadle-worker", daemon=True
        ).start()

    def _parallel(self, task: Task, effect: Parallel) -> None:
        results: list[Any] = [None] * len(effect.steps)
        waiting = deque(enumerate(effect.steps))
        ticket = task.ticket
        left = len(results)

        def start_next() -> None:
            index, steps = waiting.popleft()

            def finish(value: Any, error: BaseException | None) -> None:
                nonlocal left
                task.children.remove(child)
                if task.ticket is not ticket:
                    return
                results[index], left = value, left - 1
                if error is not None:
                    task.ticket = None  # from here on its siblings' ends are no news
                    self._cancel_children(task)
                    self._resume(task, None, error)
                elif waiting:
                    start_next()
                elif left == 0:
                    self._resume(task, results)

            child = self.spawn(steps, finish)
            task.children.append(child)

        for _ in range(min(effect.limit or left, left)):
            start_next()
        if not results:
            self._resume(task, results)

    def _within(self, task: Task, effect: Within) -> None:
        ticket = task.ticket
        unsubscribe: Callable[[], object] = lambda: None  # noqa: E731 - nothing to take back yet

        def finish(value: Any, error: BaseException | None) -> None:
            unsubscribe()
            self._resume(task, value, error)

        def end(reason: Exception) -> None:
            if task.ticket is not ticket:  # the steps came first
                return
            unsubscribe()
            self._cancel_children(task)
            self._resume(task, None, reason)

        if effect.until is not None and effect.until.is_set:
            effect.steps.close()
            self._resume(task, None, Stopped())
            return
        task.children.append(self.spawn(effect.steps, finish))
        if effect.seconds is not None:
            over = TimeLimitReached(f"it took longer than {effect.seconds:g} s")
            self._at(task, effect.seconds, lambda: end(over))
        if effect.until is not None:
            watcher = Task(_nothing(), lambda _value, _error: end(Stopped()))
            watcher.ticket = object()
            unsubscribe = task.give_up = self._on(watcher, effect.until)

    def _at(self, task: Task, seconds: float, act: Callable[[], None]) -> None:
        """Do something later, unless the task no longer waits for it by then."""
        ticket = task.ticket
        due = time.monotonic() + seconds
        timer = (
            due,
            next(self._timer_numbers),
            lambda: act() if task.ticket is ticket else None,
        )
        heapq.heappush(self._timers, timer)

    def _on(self, task: Task, signal: Signal) -> Callable[[], object]:
        """Have a signal, set in whatever thread, posted to the inbox."""
        ticket = task.ticket
        return signal.subscribe(lambda: self._inbox.put((task, ticket, None, None)))

    def _cancel_children(self, task: Task) -> None:
        for child in list(task.children):
            self.cancel(child, Cancelled())

    def cancel(self, task: Task, end: BaseException) -> None:
        """End a task and all it started: innermost first, each told by the exception in its steps."""
        for child in list(task.children):
            self.cancel(child, end)
        task.ticket, task.over = None, True
        if task.give_up is not None:
            task.give_up()
        with contextlib.suppress(ValueError):  # it is just running: the interrupt passes through it
            self._driver.wind_up(task.steps, end)


def _nothing() -> Steps[None]:
    return
    yield  # what makes it a generator
