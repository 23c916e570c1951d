"""A circuit breaker that several runs share: a tool that keeps failing is not called for a while."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from treadle.checks import number
from treadle.fast_dataclass import fast_dataclass
from treadle.forks import renew_after_fork


class BreakerState(StrEnum):
    """The state of a breaker for one tool."""

    CLOSED = "closed"
    """Calls are made."""
    OPEN = "open"
    """No call is made until the cool-down is over."""
    HALF_OPEN = "half_open"
    """One call is made as a probe, to find out whether the tool works again."""


@dataclass(slots=True, eq=False)
class _Circuit:
    state: BreakerState = BreakerState.CLOSED
    error: str = ""
    failures: int = 0
    opened_at: float = 0.0
    probe: str | None = None


@fast_dataclass
class BreakerAnswer:
    """The states of a breaker for one tool; the error that opened it, if a call of the tool may not be made."""

    before: BreakerState
    after: BreakerState
    error: str | None = None


class CircuitBreaker:
    """Counts consecutive failures of a tool with the same error, over all runs that share the breaker.

    At ``threshold`` it opens: calls of the tool are answered without being made. After ``cool_down`` seconds
    one call is made as a probe. If it succeeds the breaker closes; if it fails the cool-down starts again. The
    breaker is thread-safe.

    Args:
        threshold: the number of consecutive failures with the same error.
        cool_down: seconds.

    Raises:
        OptionError: a threshold below 1, or a cool-down below 0.
    """

    def __init__(self, threshold: int = 3, cool_down: float = 30.0) -> None:
        number(1).check("threshold", threshold)
        number(0, "seconds").check("cool_down", cool_down)
        self.threshold = threshold
        self.cool_down = cool_down
        self._circuits: dict[str, _Circuit] = {}
        self._mutex = threading.Lock()
        renew_after_fork(self, CircuitBreaker._renew)

    def _renew(self) -> None:
        """Keep the states; a probe that another thread makes ends in the parent process only."""
        self._mutex = threading.Lock()

    @property
    def states(self) -> Mapping[str, BreakerState]:
        """The state of each tool that has failed."""
        with self._mutex:
            return {tool: circuit.state for tool, circuit in self._circuits.items()}

    def admit(self, tool: str, call_id: str, now: float) -> BreakerAnswer:
        """Decide whether a call may be made now, in seconds since the epoch; its id is unique among all runs."""
        with self._mutex:
            circuit = self._circuits.get(tool) or _Circuit()
            before = circuit.state
            if before is not BreakerState.CLOSED:
                if now - circuit.opened_at < self.cool_down:
                    return BreakerAnswer(before, before, circuit.error)
                # Even if the last probe never ended.
                circuit.state, circuit.probe = BreakerState.HALF_OPEN, call_id
                circuit.opened_at = now
            return BreakerAnswer(before, circuit.state)

    def release(self, tool: str, call_id: str) -> BreakerAnswer:
        """Withdraw a call that did not run; if it was the probe, the next call becomes the probe."""
        with self._mutex:
            circuit = self._circuits.get(tool) or _Circuit()
            before = circuit.state
            if circuit.probe == call_id:
                circuit.state, circuit.probe = BreakerState.OPEN, None
                circuit.opened_at -= self.cool_down
            return BreakerAnswer(before, circuit.state)

    def record(self, tool: str, call_id: str, error: str | None, now: float) -> BreakerAnswer:
        """Record the outcome of an admitted call: the text of its error, or None."""
        with self._mutex:
            circuit = self._circuits.get(tool) or _Circuit()
            before = circuit.state
            is_open = before is not BreakerState.CLOSED
            if is_open and circuit.probe != call_id:  # it started before, and does not count
                return BreakerAnswer(before, before)
            if error is None:
                self._circuits.pop(tool, None)
                return BreakerAnswer(before, BreakerState.CLOSED)
            self._circuits[tool] = circuit
            circuit.failures = circuit.failures + 1 if circuit.error == error else 1
            circuit.error = error
            if is_open or circuit.failures >= self.threshold:
                circuit.state, circuit.opened_at, circuit.probe = BreakerState.OPEN, now, None
            return BreakerAnswer(before, circuit.state)
