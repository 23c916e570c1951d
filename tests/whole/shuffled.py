"""A driver whose order is that of a die: of all steps that could continue, any may be the next.

It performs effects as the other drivers do, one at a time, in one thread and without an event loop. What
it calls may be async; it then waits with `pause`, and any other steps may run in the meantime. Where nothing
can continue, that is a deadlock.
"""

from __future__ import annotations

import contextlib
import random
import types
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any

from treadle.effects import (
    Bounded,
    Call,
    Cancelled,
    Effect,
    Emit,
    Now,
    Parallel,
    Sleep,
    Steps,
    Stopped,
    TimeLimitReached,
    Wait,
)


class DeadlockError(AssertionError):
    """Every strand waits for something that will not happen."""


@types.coroutine
def pause() -> Iterator[None]:
    """Let others run, in what this driver calls."""
    yield


class Strand:
    """Steps under way, and what they do next.

    Args:
        steps: a generator of effects that has not been started.
        end: is called with what they return, or with what they raise.
    """

    def __init__(self, steps: Steps[Any], end: Callable[[Any, Exception | None], None]) -> None:
        self.steps = steps
        self.end = end
        self.children: list[Strand] = []
        self.awaited: Generator[Any, Any, Any] | None = None
        self.may_go_on: Callable[[], bool] = lambda: True
        self.go_on: Callable[[], None] = lambda: None


class Shuffled:
    """Performs effects in an order that a seed decides.

    Args:
        seed: decides.
        emit: is handed the events.
        haste: the share of the moments at which a time limit strikes, where there is one.
    """

    def __init__(
        self, seed: object, emit: Callable[[Any], Any] | None = None, haste: float = 0.0
    ) -> None:
        self._die = random.Random(str(seed))
        self._emit = emit
        self._haste = haste
        self._clock = 1_000.0
        self._strands: list[Strand] = []

    def drive(self, steps: Steps[Any]) -> Any:
        """Perform every effect of the steps; return what they return, or raise what they raise."""
        ended: list[tuple[Any, Exception | None]] = []
        self._spawn(None, steps, lambda value, error: ended.append((value, error)))
        while not ended:
            ready = [strand for strand in self._strands if strand.may_go_on()]
            if not ready:
                raise DeadlockError(f"{len(self._strands)} strands wait, and none can continue")
            self._die.choice(ready).go_on()
        [(value, error)] = ended
        if error is not None:
            raise error
        return value

    def _spawn(
        self,
        parent: Strand | None,
        steps: Steps[Any],
        end: Callable[[Any, Exception | None], None],
    ) -> Strand:
        strand = Strand(steps, end)
        strand.go_on = lambda: self._advance(strand, None, None)
        self._strands.append(strand)
        if parent is not None:
            parent.children.append(strand)
        return strand

    def _next(self, strand: Strand, value: Any = None, error: Exception | None = None) -> None:
        """Have steps continue with an outcome, some time."""
        strand.children, strand.awaited = [], None
        strand.may_go_on = lambda: True
        strand.go_on = lambda: self._advance(strand, value, error)

    def _advance(self, strand: Strand, value: Any, error: Exception | None) -> None:
        try:
            effect = strand.steps.send(value) if error is None else strand.steps.throw(error)
        except StopIteration as stop:
            self._strands.remove(strand)
            strand.end(stop.value, None)
        except Exception as raised:
            self._strands.remove(strand)
            strand.end(None, raised)
        else:
            self._begin(strand, effect)

    def _begin(self, strand: Strand, effect: Effect) -> None:
        match effect:
            case Parallel():
                self._parallel(strand, effect)
            case Bounded():
                self._within(strand, effect)
            case Wait(signal=signal):
                strand.may_go_on = lambda: signal.is_set
                strand.go_on = lambda: self._advance(strand, None, None)
            case _:
                self._call(strand, effect)

    def _call(self, strand: Strand, effect: Effect) -> None:
        try:
            value = self._outcome(effect)
        except Exception as error:
            self._next(strand, error=error)
            return
        if not hasattr(type(value), "__await__"):
            self._next(strand, value)
            return
        strand.awaited = value.__await__()
        strand.go_on = lambda: self._await(strand)
        self._await(strand)  # as on an event loop, it is on its way before it can be cancelled

    # It is the reporter of each call.

    def now(self) -> float:
        self._clock += 0.001
        return self._clock

    def emit(self, event: Any, listener: Any = None) -> Any:
        receive = self._emit if listener is None else listener
        return None if receive is None else receive(event)

    def _outcome(self, effect: Effect) -> Any:
        match effect:
            case Call():
                return effect.fn(*effect.args, *([self] if effect.reporting else ()))
            case Now():
                return self.now()
            case Emit():
                return self.emit(effect.event)
            case Sleep():
                return None
        raise TypeError(f"{effect!r} is no effect")

    def _await(self, strand: Strand) -> None:
        assert strand.awaited is not None
        try:
            strand.awaited.send(None)
        except StopIteration as stop:
            self._next(strand, stop.value)
        except Exception as error:
            self._next(strand, error=error)

    def _parallel(self, strand: Strand, effect: Parallel) -> None:
        results: list[Any] = [None] * len(effect.steps)
        waiting = deque(enumerate(effect.steps))
        left = len(results)
        strand.may_go_on = lambda: False

        def start() -> None:
            place, steps = waiting.popleft()

            def end(value: Any, error: Exception | None) -> None:
                nonlocal left
                strand.children.remove(child)
                results[place], left = value, left - 1
                if error is not None:
                    self._cancel_children(strand)
                    self._next(strand, error=error)
                elif waiting:
                    start()
                elif left == 0:
                    self._next(strand, results)

            child = self._spawn(strand, steps, end)

        for _ in range(min(effect.limit or left, left)):
            start()
        if not results:
            self._next(strand, results)

    def _within(self, strand: Strand, effect: Bounded) -> None:
        def end(value: Any, error: Exception | None) -> None:
            self._next(strand, value, error)

        def struck() -> bool:
            if effect.until is not None and effect.until.is_set:
                return True
            return effect.seconds is not None and self._die.random() < self._haste

        def strike() -> None:
            self._cancel_children(strand)
            is_stopped = effect.until is not None and effect.until.is_set
            self._next(strand, error=Stopped() if is_stopped else TimeLimitReached("so soon"))

        self._spawn(strand, effect.steps, end)
        strand.may_go_on, strand.go_on = struck, strike

    def _cancel_children(self, strand: Strand) -> None:
        for child in list(strand.children):
            self._cancel(child)
        strand.children.clear()

    def _cancel(self, strand: Strand) -> None:
        """End a strand and all it started: innermost first, and each puts its things in order."""
        self._strands.remove(strand)
        self._cancel_children(strand)
        if strand.awaited is not None:
            with contextlib.suppress(Cancelled, StopIteration):
                strand.awaited.throw(Cancelled())
        resume, value = strand.steps.throw, Cancelled()
        with contextlib.suppress(Cancelled, StopIteration):
            while True:
                effect = resume(value)
                resume, value = strand.steps.send, self._outcome(effect)
