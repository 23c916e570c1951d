"""A journal in memory, whose runs can be interrupted at any of its writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from treadle.errors import JournalError
from treadle.messages import JSONDict
from treadle.recording.log import RESUMED, Entry, settled


class Interrupted(BaseException):
    """The process ends here, as far as the journal is concerned."""


class MemoryJournal:
    """Keeps runs as JSON text.

    Args:
        writes: the number of writes after which a run is interrupted; None never interrupts.
        before: whether the interruption comes before that write, so that it is lost.
    """

    def __init__(self, writes: int | None = None, *, before: bool = False) -> None:
        self.writes = writes
        self.before = before
        self.parts: dict[str, list[dict[str, Any]]] = {}
        self.decided: dict[str, dict[str, Any]] = {}
        self.sent: dict[str, list[tuple[int, JSONDict]]] = {}
        self.opened: list[MemoryRun] = []

    def open(self, run_id: str, start: JSONDict | None) -> MemoryRun:
        parts = self.parts.get(run_id)
        if parts is None and start is None:
            raise JournalError(f"there is no run {run_id!r}")
        if parts is None:
            parts = self.parts[run_id] = [{"start": json.dumps(start), "log": [], "outcome": None}]
        else:
            parts[-1]["log"].append(json.dumps(Entry(kind=RESUMED).as_json()))
        run = MemoryRun(self, run_id, parts)
        self.opened.append(run)
        return run


class MemoryRun:
    """A run in memory."""

    def __init__(self, journal: MemoryJournal, run_id: str, parts: list[dict[str, Any]]) -> None:
        self._journal, self._parts, self._run_id = journal, parts, run_id
        self.decisions = journal.decided.pop(run_id, {})
        part = parts[-1]
        self.start = json.loads(part["start"])
        self.log = settled(Entry.from_json(json.loads(line)) for line in part["log"])
        self.outcome = part["outcome"] and json.loads(part["outcome"])
        self.is_closed = False
        self.stops: list[Callable[[], None]] = []

    def _count(self) -> bool:
        """Count a write; return whether the run is interrupted at it."""
        if self._journal.writes is None:
            return False
        self._journal.writes -= 1
        return self._journal.writes <= 0

    def add(self, entries: Sequence[Entry], taken: Sequence[int] = ()) -> None:
        if self.is_closed:
            raise JournalError("it is closed")
        lines = [json.dumps(entry.as_json()) for entry in entries]
        is_end = self._count()
        if not (is_end and self._journal.before):
            self._parts[-1]["log"] += lines
            self._journal.sent[self._run_id] = [
                one for one in self._journal.sent.get(self._run_id, []) if one[0] not in taken
            ]
        if is_end:
            self._journal.writes = None
            raise Interrupted

    def messages(self) -> Sequence[tuple[int, JSONDict]]:
        return self._journal.sent.get(self._run_id, [])

    def begin_part(self, start: JSONDict) -> None:
        self._parts.append({"start": json.dumps(start), "log": [], "outcome": None})
        self.start, self.log, self.outcome = start, [], None

    def finish(self, outcome: JSONDict) -> None:
        self._parts[-1]["outcome"] = json.dumps(outcome)

    def on_stop(self, stop: Callable[[], None]) -> None:
        self.stops.append(stop)

    def close(self) -> None:
        self.is_closed = True
