"""The runs that a live view shows: the active runs and the most recent finished ones."""

from __future__ import annotations

import threading
from collections import deque

from treadle.events import Event, RunStarted, SubagentEvent
from treadle.reports.live.progress import Clock, RunProgress

KEPT = 200
"""Maximum number of finished runs that are kept one by one."""


class Board:
    """Follows any number of runs, from any thread.

    Attributes:
        lock: hold it while reading.
        active: the active runs, the oldest first.
        finished: the most recent finished runs, the newest last.
        forgotten: the number of runs that finished before those.
        tokens: the tokens of all finished runs.
        cost: US dollars of all finished runs; None if no cost is known.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        # Reentrant, because a signal handler may emit an event at any time.
        self.lock = threading.RLock()
        self.active: dict[int, RunProgress] = {}
        self.finished: deque[RunProgress] = deque()
        self.forgotten = 0
        self.tokens = 0
        self.cost: float | None = None

    @property
    def count(self) -> int:
        """The number of all runs, active and finished."""
        return len(self.active) + len(self.finished) + self.forgotten

    def begin(self, started: RunStarted) -> RunProgress:
        """Start to follow a run. A run that was resumed is removed from the finished runs."""
        run = RunProgress(self.clock)
        self.active[id(run)] = run
        paused = [one for one in self.finished if started.resumed and one.run_id == started.run_id]
        if paused:
            self.finished.remove(paused[-1])
            self._add(paused[-1], -1)
        return run

    def update(self, run: RunProgress, event: Event) -> None:
        """Update a run with an event."""
        run.update(event)
        if isinstance(event, SubagentEvent):
            inner = event.innermost
            if isinstance(inner, RunStarted) and inner.state is not None:
                # If it reports its events here as well, it is shown inside its parent only.
                self.active = {
                    key: one for key, one in self.active.items() if one.state is not inner.state
                }
        elif run.ending is not None and self.active.pop(id(run), None) is not None:
            self.finished.append(run)
            self._add(run, 1)
            if len(self.finished) > KEPT:
                self.finished.popleft()
                self.forgotten += 1

    def _add(self, run: RunProgress, sign: int) -> None:
        self.tokens += sign * run.usage.total_tokens
        if run.usage.cost is not None:
            self.cost = (self.cost or 0.0) + sign * run.usage.cost


class RunObserver:
    """Updates a board with the events of one run, or of several runs one after another."""

    __slots__ = ("_board", "_run")

    def __init__(self, board: Board) -> None:
        self._board = board
        self._run: RunProgress | None = None

    def __call__(self, event: Event) -> None:
        """Handle an event. Events before the start of a run are ignored."""
        board = self._board
        with board.lock:
            if isinstance(event, RunStarted):
                self._run = board.begin(event)
            run = self._run
            if run is not None:
                board.update(run, event)
