"""The driver without an event loop: plain calls; threads for what is parallel or limited in time.

Steps are only ever advanced in the thread that called `drive_sync`. Worker threads run nothing but
the callables of `Call` effects, so no two steps of a run ever race, whatever runs in parallel.
Something async is run on one event loop in a background thread, which starts when it is first
needed and is shared, so that clients which are bound to a loop can be used again in a later run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from treadle.pipeline.background import call
from treadle.pipeline.closing import WIND_UP_SECONDS, going_on, report
from treadle.pipeline.effects import (
    Call,
    Effect,
    Emit,
    Now,
    Parallel,
    Sleep,
    Steps,
    TimeLimitReached,
    Wait,
    Within,
)
from treadle.pipeline.scheduler import Scheduler

R = TypeVar("R")


def drive_sync(steps: Steps[R], emit: Callable[[Any], Any] | None = None) -> R:
    """Perform every effect of some steps in this thread; works within a running event loop too.

    Args:
        steps: a generator of effects that has not been started.
        emit: is handed the event of every `Emit`; may return an awaitable. What it raises is
            logged.

    Returns:
        What the steps return.

    Raises:
        Exception: what the steps raise. An interrupt is raised within the steps first, and then on.
    """
    return SyncDriver(emit).drive(steps)


class SyncDriver:
    """Performs effects for one run; see `drive_sync`."""

    __slots__ = ("_clock_origin", "_emit")

    def __init__(self, emit: Callable[[Any], Any] | None = None) -> None:
        self._emit = emit
        self._clock_origin = time.time() - time.perf_counter()

    def drive(self, steps: Steps[R]) -> R:
        """Perform every effect of the steps, one after another."""
        send, throw = steps.send, steps.throw
        try:
            effect = send(None)
            while True:
                try:
                    outcome = self._perform(effect)
                except Exception as error:  # noqa: BLE001 - a failure is the steps' to deal with
                    effect = throw(error)
                except BaseException as end:
                    self.wind_up(steps, end)
                    raise
                else:
                    effect = send(outcome)
        except StopIteration as stop:
            result: R = stop.value
            return result

    def wind_up(self, steps: Steps[Any], end: BaseException) -> None:
        """Raise a cancellation within steps, and perform what they do to leave things in order."""
        try:
            effect = steps.throw(end)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - the cancellation stands
            report(error)
            return
        except BaseException as raised:
            if raised is not end:
                raise
            return
        with contextlib.suppress(TimeLimitReached):
            bounded = Within(going_on(steps, effect, end), seconds=WIND_UP_SECONDS)
            failure = self._perform(bounded)
            if failure is not None:
                report(failure)

    def perform_at_once(self, effect: Call | Now | Emit) -> Any:
        """Perform an effect that keeps nobody waiting."""
        kind = type(effect)
        if kind is Now:
            return self._clock_origin + time.perf_counter()
        if isinstance(effect, Call):
            return call(effect)
        if isinstance(effect, Emit) and self._emit is not None:
            try:
                call(Call(self._emit, effect.event))
            except Exception as error:  # noqa: BLE001 - a watcher changes nothing
                report(error)
        return None

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Call() | Now() | Emit():
                return self.perform_at_once(effect)
            case Parallel(steps=[steps]):
                return [self.drive(steps)]
            case Within(steps=steps, seconds=None, until=None):
                return self.drive(steps)
            case Sleep(seconds=seconds):
                return time.sleep(min(max(0.0, seconds), threading.TIMEOUT_MAX))
            case Parallel() | Within() | Wait():
                return Scheduler(self).run(effect)
            case _:
                raise TypeError(f"a stage yielded {effect!r}, which is no effect")
