"""A journal in memory, whose runs can be interrupted at any of its writes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from treadle.errors import JournalError, LeaseLostError
from treadle.messages import JSONDict
from treadle.recording.journaled import Journal
from treadle.recording.log import RESUMED, Entry, settled


class Interrupted(BaseException):
    """The process ends here, as far as the journal is concerned."""


class EndedError(JournalError):
    """The process has ended: what its cleanup writes is lost."""


ENDS = (Interrupted, EndedError)
"""What a process raises that ends: the second, if another call of a batch was written meanwhile."""


class MemoryJournal(Journal):
    """Keeps runs as JSON text.

    Args:
        at: the number of the write at which the process ends, from 1; None never ends it.
        is_stored: whether that write is stored.

    Attributes:
        writes: the number of writes so far.
        parts: what is stored of each run.
        decided: the decisions on the calls that wait, by run.
        sent: the messages that were sent to each run, with their numbers.
        counts: how many calls of a label and a key have an outcome.
        opened: the runs that were opened, the latest last.
    """

    def __init__(self, at: int | None = None, *, is_stored: bool = True) -> None:
        self.at = at
        self.is_stored = is_stored
        self.writes = 0
        self.parts: dict[str, list[dict[str, Any]]] = {}
        self.decided: dict[str, dict[str, Any]] = {}
        self.sent: dict[str, list[tuple[int, JSONDict]]] = {}
        self.numbers = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.opened: list[MemoryRun] = []

    def open(self, run_id: str, start: JSONDict | None) -> MemoryRun:
        """See `Journal.open`."""
        parts = self.parts.get(run_id)
        if parts is None and start is None:
            raise JournalError(f"there is no run {run_id!r}")
        if parts is None:
            parts = self.parts[run_id] = [{"start": json.dumps(start), "log": [], "outcome": None}]
        elif parts[-1]["outcome"] is None:
            log = [*settled(log_of(parts[-1])), Entry(kind=RESUMED, at=time.time())]
            parts[-1]["log"] = [json.dumps(entry.as_json()) for entry in log]
        run = MemoryRun(self, run_id, parts)
        self.opened.append(run)
        return run

    def interrupt(self, at: int, *, is_stored: bool = True) -> None:
        """End the process at a write, counted from now."""
        self.writes, self.at, self.is_stored = 0, at, is_stored

    def send(self, run_id: str, text: str) -> None:
        """Send a user message to a run."""
        self.numbers += 1
        message = {"role": "user", "content": text}
        self.sent.setdefault(run_id, []).append((self.numbers, message))

    def log(self, run_id: str) -> list[Entry]:
        """All entries of a run."""
        return [entry for part in self.parts.get(run_id, ()) for entry in log_of(part)]


def log_of(part: dict[str, Any]) -> list[Entry]:
    """The entries of a part."""
    return [Entry.from_json(json.loads(line)) for line in part["log"]]


class MemoryRun:
    """A run in memory."""

    def __init__(self, journal: MemoryJournal, run_id: str, parts: list[dict[str, Any]]) -> None:
        self._journal, self._parts, self._run_id = journal, parts, run_id
        self.decisions = journal.decided.get(run_id, {})
        part = parts[-1]
        self.start = json.loads(part["start"])
        self.log: Sequence[Entry] = log_of(part)
        self.outcome = part["outcome"] and json.loads(part["outcome"])
        self.is_closed = self.is_dead = self.is_lost = False
        self.stops: list[Callable[[], None]] = []

    def _write(self, store: Callable[[], None]) -> None:
        journal = self._journal
        if self.is_closed:
            raise JournalError("it is closed")
        if self.is_lost:
            raise LeaseLostError("another process has taken it over")
        if self.is_dead:
            raise EndedError("the process has ended")
        journal.writes += 1
        self.is_dead = journal.writes == journal.at
        if not self.is_dead or journal.is_stored:
            store()
        if self.is_dead:
            raise Interrupted

    def add(self, entries: Sequence[Entry], taken: Sequence[int] = ()) -> None:
        """See `JournaledRun.add`."""
        lines = [json.dumps(entry.as_json()) for entry in entries]

        def store() -> None:
            self._parts[-1]["log"] += lines
            done = [one for one in entries if one.kind == "call" and not one.is_cancelled]
            self._journal.counts.update((one.label, one.key) for one in done)
            sent = self._journal.sent.get(self._run_id, [])
            self._journal.sent[self._run_id] = [one for one in sent if one[0] not in taken]

        self._write(store)

    def messages(self) -> Sequence[tuple[int, JSONDict]]:
        """See `JournaledRun.messages`."""
        return list(self._journal.sent.get(self._run_id, []))

    def begin_part(self, start: JSONDict) -> None:
        """See `JournaledRun.begin_part`."""
        part = {"start": json.dumps(start), "log": [], "outcome": None}

        def store() -> None:
            self._parts.append(part)
            self._journal.decided.pop(self._run_id, None)

        self._write(store)
        self.start, self.log, self.outcome = json.loads(str(part["start"])), [], None

    def finish(self, outcome: JSONDict) -> None:
        """See `JournaledRun.finish`."""
        text = json.dumps(outcome)
        self._write(lambda: self._parts[-1].update(outcome=text))

    def on_stop(self, stop: Callable[[], None]) -> None:
        """See `JournaledRun.on_stop`."""
        self.stops.append(stop)

    def close(self) -> None:
        """See `JournaledRun.close`."""
        self.is_closed = True
