"""A circuit breaker that several runs share: a tool that is out of order is left alone for a while."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from treadle.errors import OptionError


class BreakerState(StrEnum):
    """Where a breaker stands for one tool."""

    CLOSED = "closed"
    """Calls go through."""
    OPEN = "open"
    """No call goes through until the cool-down is over."""
    HALF_OPEN = "half_open"
    """One call goes through, to see whether the tool works again."""


@dataclass(slots=True)
class _Circuit:
    state: BreakerState = BreakerState.CLOSED
    error: str = ""
    failures: int = 0
    opened_at: float = 0.0
    probe: str | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """What a breaker says of a call.

    Args:
        before: where it stood.
        after: where it stands now.
        error: the error for which it is open; None where the call may go through.
        retry_in: seconds until it will let a call through again.
    """

    before: BreakerState
    after: BreakerState
    error: str | None = None
    retry_in: float = 0.0


class CircuitBreaker:
    """Counts, over all runs that share it, how often in a row a tool failed with the same error.

    At ``threshold`` it opens: calls of the tool are answered without being made. After ``cool_down`` seconds
    one call is let through as a probe. If that succeeds the breaker closes, and if it fails the cool-down
    starts anew. Threads may share it.

    Args:
        threshold: failures in a row, with one error.
        cool_down: seconds.

    Raises:
        OptionError: a threshold below 1, or a cool-down below 0.
    """

    def __init__(self, threshold: int = 3, cool_down: float = 30.0) -> None:
        if type(threshold) is not int or threshold < 1:
            raise OptionError(
                f"threshold: expected a whole number of at least 1, got {threshold!r}"
            )
        if not isinstance(cool_down, (int, float)) or not cool_down >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"cool_down: expected a number of seconds of at least 0, got {cool_down!r}"
            )
        self.threshold = threshold
        self.cool_down = cool_down
        self._circuits: dict[str, _Circuit] = {}
        self._mutex = threading.Lock()

    @property
    def states(self) -> Mapping[str, BreakerState]:
        """Where it stands, for each tool that has failed."""
        with self._mutex:
            return {tool: circuit.state for tool, circuit in self._circuits.items()}

    def admit(self, tool: str, call_id: str, now: float) -> Admission:
        """Ask whether a call may be made.

        Args:
            tool: the tool's name.
            call_id: names the call, and with it the probe; unique among the runs that share the breaker.
            now: seconds since the epoch.
        """
        with self._mutex:
            circuit = self._circuits.get(tool)
            if circuit is None or circuit.state is BreakerState.CLOSED:
                return _GO_ON
            before, waited = circuit.state, now - circuit.opened_at
            if waited >= self.cool_down:  # a probe that never came back is not waited for, either
                circuit.state, circuit.probe = BreakerState.HALF_OPEN, call_id
                circuit.opened_at = now
                return Admission(before, circuit.state)
            return Admission(before, before, circuit.error, self.cool_down - waited)

    def release(self, tool: str, call_id: str) -> bool:
        """Take back a probe that did not run, so that the next call may be one.

        Returns:
            Whether it was the probe.
        """
        with self._mutex:
            circuit = self._circuits.get(tool)
            if circuit is None or circuit.probe != call_id:
                return False
            circuit.state, circuit.probe = BreakerState.OPEN, None
            circuit.opened_at -= self.cool_down
            return True

    def record(
        self, tool: str, call_id: str, error: str | None, now: float
    ) -> tuple[BreakerState, BreakerState]:
        """Note how a call went.

        Args:
            tool: the tool's name.
            call_id: the call, as it was admitted.
            error: what the model was told; None where it succeeded.
            now: seconds since the epoch.

        Returns:
            Where the breaker stood, and where it stands now.
        """
        with self._mutex:
            circuit = self._circuits.get(tool)
            if circuit is None:
                if error is None:
                    return _CLOSED, _CLOSED
                circuit = self._circuits[tool] = _Circuit()
            before = circuit.state
            if before is _CLOSED:
                self._count(tool, circuit, error, now)
            elif (
                circuit.probe == call_id
            ):  # of others, which began before it opened, nothing follows
                if error is None:
                    circuit.state = _CLOSED
                    del self._circuits[tool]
                else:
                    circuit.state, circuit.error = BreakerState.OPEN, error
                    circuit.opened_at, circuit.probe = now, None
            return before, circuit.state

    def _count(self, tool: str, circuit: _Circuit, error: str | None, now: float) -> None:
        if error is None:
            del self._circuits[tool]
            return
        circuit.failures = circuit.failures + 1 if circuit.error == error else 1
        circuit.error = error
        if circuit.failures >= self.threshold:
            circuit.state, circuit.opened_at = BreakerState.OPEN, now


_CLOSED = BreakerState.CLOSED
_GO_ON = Admission(_CLOSED, _CLOSED)
