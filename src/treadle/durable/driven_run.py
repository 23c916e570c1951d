"""A run of an `SQLiteJournal` that this process drives."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle import labels
from treadle.codec import NotDataError
from treadle.durable.journal_file import JournalFile
from treadle.durable.lease import LEASE, Lease, StoredLease, forget_owner, log
from treadle.durable.payloads import Payloads, Stored
from treadle.durable.stored_part import Place, part_of, rows_of
from treadle.errors import JournalError, LeaseLostError
from treadle.messages import JSONDict
from treadle.recording.log import RESUMED, Entry

if TYPE_CHECKING:
    import sqlite3


class Stop:
    """Calls functions when a run has to stop. They may be added in any thread, and later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: list[Callable[[], None]] = []
        self._is_set = False

    def add(self, function: Callable[[], None]) -> None:
        """Call a function when the run has to stop, or at once."""
        with self._lock:
            self._functions.append(function)
            is_set = self._is_set
        if is_set:
            function()

    def set(self) -> None:
        """Call the functions, if it is the first time."""
        with self._lock:
            functions = [] if self._is_set else list(self._functions)
            self._is_set = True
        for function in functions:
            function()


class DrivenRun:
    """A run that this process drives; see `treadle.recording.journaled_run.JournaledRun`.

    Args:
        file: the file of the journal, which is kept open for this run.
        payloads: encodes contents.
        clock: returns the time, in seconds since the epoch.
        place: where the run is in the file.
        lease: the lease of this process; None if the run has ended and is only read.
        part: the number of its latest part, from 1.
        on_close: called when the run is closed.
    """

    def __init__(
        self,
        *,
        file: JournalFile,
        payloads: Payloads,
        clock: Callable[[], float],
        place: Place,
        lease: Lease | None,
        part: int,
        on_close: Callable[[DrivenRun], None],
    ) -> None:
        self._file, self._payloads, self._clock = file, payloads, clock
        self.place = place
        self.lease = lease
        self.start: JSONDict = {}
        self.log: Sequence[Entry] = ()
        self.outcome: JSONDict | None = None
        self.decisions: Mapping[str, JSONDict] = {}
        self._part = part
        self._entries = 0
        self._on_close = on_close
        self._pid = os.getpid()
        self._is_closed = False
        self._is_lost = False
        self._expires_at = 0.0 if lease is None else clock() + lease.seconds
        self._stop = Stop()
        self._depth = sys.maxsize
        self._iterations: int | None = None

    def __repr__(self) -> str:
        return f"<run {self.place.id!r} in {self._file.path!r}>"

    def load(self) -> None:
        """Read the part, and note in its log that this process goes on with it.

        Entries of an interruption are deleted: the log goes on as if they had not been.

        Raises:
            JournalError: it cannot be read.
        """
        with self._file.connection() as db:
            rows = rows_of(db, self.place, self._part)
            is_cancelled = self.look(db)
        self.learn(is_cancelled)
        part, interrupted = part_of(self._payloads, self.place, rows)
        self.start, self.log, self.outcome = part.start, part.log, part.outcome
        self.decisions = part.decisions
        self._note_iterations(part.log)
        if rows.entries:
            self._entries = rows.entries[-1][0] + 1
        if self.lease is not None and self.lease.token > 1 and self.outcome is None:
            self._resume(interrupted)

    def _resume(self, interrupted: list[int]) -> None:
        mark = Entry(kind=RESUMED, at=self._clock())
        body = self._body_of(mark)
        with self._writing("go on with the log") as db:
            db.executemany(
                "DELETE FROM entries WHERE run = ? AND part = ? AND number = ?",
                [(self.place.key, self._part, number) for number in interrupted],
            )
            self._insert(db, [body])
        self.log = [*self.log, mark]

    # JournaledRun

    def add(self, entries: Sequence[Entry], taken: Sequence[int] = ()) -> None:
        """See `JournaledRun.add`."""
        self._note_iterations(entries)
        bodies = [self._body_of(entry) for entry in entries]
        with self._writing("store outcomes") as db:
            self._insert(db, bodies)
            if taken:
                db.executemany(
                    "DELETE FROM messages WHERE number = ? AND run = ?",
                    [(number, self.place.key) for number in taken],
                )

    def _insert(self, db: sqlite3.Connection, bodies: Sequence[Stored]) -> None:
        first = self._entries
        self._entries += len(bodies)
        rows = [
            (self.place.key, self._part, number, body) for number, body in enumerate(bodies, first)
        ]
        db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)

    def messages(self) -> list[tuple[int, JSONDict]]:
        """See `JournaledRun.messages`."""
        with self._file.connection() as db:
            rows = db.execute(
                "SELECT number, body FROM messages WHERE run = ? ORDER BY number", (self.place.key,)
            ).fetchall()
        what = self.place.named("a message")
        return [(number, self._payloads.get(body, what)) for number, body in rows]

    def begin_part(self, start: JSONDict) -> None:
        """See `JournaledRun.begin_part`."""
        stored = self._put(start, "what it starts from")
        with self._writing("begin the next part") as db:
            part = self._part + 1
            db.execute(
                "INSERT INTO parts (run, number, start) VALUES (?, ?, ?)",
                (self.place.key, part, stored),
            )
            db.execute(
                "UPDATE runs SET part = ?, status = 'running', stop_reason = '' WHERE key = ?",
                (part, self.place.key),
            )
        self._part, self._entries = part, 0
        self.start, self.log, self.outcome, self.decisions = start, [], None, {}

    def finish(self, outcome: JSONDict) -> None:
        """See `JournaledRun.finish`. The run is given up in the same step, so that decisions on it may follow."""
        stored = self._put(outcome, "its result")
        pending = outcome.get("pending")
        waiting = self._put(pending, "its waiting calls") if pending else None
        with self._writing("store the result") as db:
            db.execute(
                "UPDATE parts SET outcome = ?, waiting = ? WHERE run = ? AND number = ?",
                (stored, waiting, self.place.key, self._part),
            )
            ended = (outcome["status"], outcome["stop_reason"], outcome["iterations"])
            db.execute(
                "UPDATE runs SET status = ?, stop_reason = ?, iterations = ?, owner = NULL WHERE key = ?",
                (*ended, self.place.key),
            )
        self.outcome = outcome
        self._end()

    def on_stop(self, stop: Callable[[], None]) -> None:
        """See `JournaledRun.on_stop`."""
        self._stop.add(stop)

    def close(self) -> None:
        """See `JournaledRun.close`. If the end of the lease cannot be stored, the lease expires."""
        if self._is_closed or os.getpid() != self._pid:
            return
        try:
            if self.lease is not None and not self._is_lost:
                with self._file.writing(f"give up run {self.place.id!r}") as db:
                    db.execute(
                        "UPDATE runs SET owner = NULL WHERE key = ? AND token = ?",
                        (self.place.key, self.lease.token),
                    )
        except JournalError:
            log.warning("the lease of run %r could not be given up", self.place.id, exc_info=True)
        finally:
            self._end()

    def _end(self) -> None:
        self._is_closed = True
        if self.lease is not None:
            forget_owner(self.lease.owner)
        self._on_close(self)
        self._file.let_close()

    # The lease

    def is_due(self) -> bool:
        """Whether the lease has to be renewed: a third of it is over, or the clock has jumped."""
        if self.lease is None:
            return False
        seconds = self.lease.seconds
        return not 2 / 3 * seconds < self._expires_at - self._clock() <= seconds

    def look(self, db: sqlite3.Connection) -> bool | None:
        """Look whether someone has cancelled the run.

        Returns:
            Whether it is cancelled; None if another process has taken it over, or it was deleted.
        """
        if self.lease is None:
            return False
        query = "SELECT cancelled_at FROM runs WHERE key = ? AND token = ?"
        return _is_cancelled(db.execute(query, (self.place.key, self.lease.token)))

    def renew(self, db: sqlite3.Connection, updated_at: float | None = None) -> bool | None:
        """Renew the lease.

        Args:
            db: in a transaction.
            updated_at: when something of the run is stored, in seconds since the epoch; None if nothing is.

        Returns:
            See `look`.
        """
        if self.lease is None:
            return False
        self._expires_at = self._clock() + self.lease.seconds
        cursor = db.execute(
            "UPDATE runs SET expires_at = ?, updated_at = coalesce(?, updated_at), "
            "iterations = coalesce(?, iterations) WHERE key = ? AND token = ? RETURNING cancelled_at",
            (self._expires_at, updated_at, self._iterations, self.place.key, self.lease.token),
        )
        return _is_cancelled(cursor)

    def learn(self, is_cancelled: bool | None) -> None:
        """Stop the run if it is cancelled or lost; see `look`. Call this without a lock."""
        self._is_lost = self._is_lost or is_cancelled is None
        if (is_cancelled or is_cancelled is None) and not self._is_closed:
            self._stop.set()

    @contextlib.contextmanager
    def _writing(self, doing: str) -> Generator[sqlite3.Connection]:
        """A transaction that renews the lease.

        Raises:
            LeaseLostError: another process has taken the run over, or it was deleted.
            JournalError: the file cannot be written.
        """
        is_cancelled: bool | None = False
        try:
            with self._file.writing(f"{doing} of run {self.place.id!r}") as db:
                self._check_driven()
                is_cancelled = self.renew(db, self._clock())
                if is_cancelled is None:
                    raise LeaseLostError(self.place.named(self._why_lost(db)))
                yield db
        except JournalError as error:
            error.run_id = self.place.id
            raise
        finally:
            self.learn(is_cancelled)

    def _check_driven(self) -> None:
        if os.getpid() != self._pid:
            raise LeaseLostError(self.place.named("the process that drives it has been forked"))
        if self._is_closed or self.lease is None:
            raise JournalError(self.place.named("it is closed"))

    def _why_lost(self, db: sqlite3.Connection) -> str:
        row = db.execute(f"SELECT {LEASE} FROM runs WHERE key = ?", (self.place.key,)).fetchone()  # noqa: S608
        if row is None:
            return "it was deleted, since this process had not renewed its lease"
        driver = StoredLease(*row).driver(self._clock())
        by = f" by {driver}" if driver is not None else ""
        return f"it was taken over{by}; this process had not renewed its lease, and writes no more"

    # Contents

    def _put(self, data: Any, what: str) -> Stored:
        return self._payloads.put(data, self.place.files, self.place.named(what))

    def _body_of(self, entry: Entry) -> Stored:
        try:
            data = entry.as_json()
        except NotDataError as error:
            raise JournalError(self.place.named(str(error))) from error
        return self._put(data, f"the outcome of {entry}")

    def _note_iterations(self, entries: Iterable[Entry]) -> None:
        """Note the number of the iteration. The paths of the requests of subagents are longer."""
        for entry in entries:
            if (
                entry.label == labels.CHAT
                and len(entry.path) <= self._depth
                and entry.key.isdecimal()
            ):
                self._depth, self._iterations = len(entry.path), int(entry.key)


def _is_cancelled(cursor: sqlite3.Cursor) -> bool | None:
    rows = cursor.fetchall()
    return rows[0][0] is not None if rows else None
