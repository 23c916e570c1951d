"""The runs that a live view shows: those that go on, and the last of those that are over."""

from __future__ import annotations

import threading
from collections import deque

from treadle.events import Event, RunStarted, SubagentEvent
from treadle.reports.live.state import Clock, RunProgress, innermost
from treadle.run_state import RunState

KEPT = 200
"""Runs that are over and still known one by one."""


class Board:
    """Takes the events of any number of runs, from any thread.

    Args:
        clock: tells the time.

    Attributes:
        lock: to hold while one looks.
        active: the runs that go on, the oldest first.
        finished: the last runs that ended, the newest last.
        forgotten: how many ended before those.
        tokens: of the runs that ended.
        cost: US dollars of the runs that ended, as far as they are known.
        changes: rises with every event.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = (
            threading.RLock()
        )  # a handler of signals may come in between, and tell something
        self.active: dict[int, RunProgress] = {}
        self.finished: deque[RunProgress] = deque()
        self.forgotten = 0
        self.tokens = 0
        self.cost: float | None = None
        self.changes = 0

    @property
    def count(self) -> int:
        """How many runs there were and are."""
        return len(self.active) + len(self.finished) + self.forgotten

    def begin(self, started: RunStarted) -> RunProgress:
        """Begin to follow a run; one that goes on after a pause is no longer one that ended."""
        run = RunProgress(self.clock)
        self.active[id(run)] = run
        if started.resumed:
            self._take_back(started.run_id)
        return run

    def take(self, run: RunProgress, event: Event) -> None:
        """Take in an event of a run that is followed."""
        self.changes += 1
        run.take(event)
        if isinstance(event, SubagentEvent):
            inner = innermost(event)
            if isinstance(inner, RunStarted):
                self._is_within(inner.state)
        elif run.ending is not None and self.active.pop(id(run), None) is not None:
            self._end(run)

    def _is_within(self, state: RunState | None) -> None:
        """Drop a run that is shown within another; it told of itself too."""
        for key, run in self.active.items():
            if run.state is state is not None:
                del self.active[key]
                return

    def _end(self, run: RunProgress) -> None:
        self.finished.append(run)
        self._add(run, 1)
        if len(self.finished) > KEPT:
            self.finished.popleft()
            self.forgotten += 1

    def _take_back(self, run_id: str) -> None:
        for run in reversed(self.finished):
            if run.run_id == run_id:
                self.finished.remove(run)
                self._add(run, -1)
                return

    def _add(self, run: RunProgress, sign: int) -> None:
        self.tokens += sign * run.usage.total_tokens
        if run.usage.cost is not None:
            self.cost = (self.cost or 0.0) + sign * run.usage.cost


class Watcher:
    """An observer of one run, or of several one after another.

    Args:
        board: where it is shown.
    """

    __slots__ = ("_board", "_run")

    def __init__(self, board: Board) -> None:
        self._board = board
        self._run: RunProgress | None = None

    def __call__(self, event: Event) -> None:
        """Take in an event; without the start of its run there is nothing to show it on."""
        board = self._board
        with board.lock:
            if isinstance(event, RunStarted):
                self._run = board.begin(event)
            run = self._run
            if run is not None:
                board.take(run, event)


def ignore(_event: Event) -> None:
    """Observe a run of which nothing is shown."""
