"""`SQLiteJournal`: runs in an SQLite file, for several processes of one machine."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from treadle.codec import decode
from treadle.durable.driven_run import DrivenRun
from treadle.durable.journal_file import JournalFile
from treadle.durable.lease import (
    LEASE,
    POLL_SECONDS,
    Driver,
    Keeper,
    Lease,
    StoredLease,
    check_seconds,
    new_owner,
)
from treadle.durable.payloads import MAX_INLINE, MAX_PAYLOAD, Codec, Payloads
from treadle.durable.stored_part import Place, StoredPart, part_of, rows_of
from treadle.errors import (
    MAX_KNOWN,
    JournalError,
    OptionError,
    RunBusyError,
    closest,
    did_you_mean,
    one_of,
)
from treadle.fast_dataclass import fast_dataclass
from treadle.forks import renew_after_fork
from treadle.loop.handle import as_user_message
from treadle.messages import JSONDict
from treadle.recording.journaled import Journal
from treadle.recording.log import Entry
from treadle.results import PendingCall
from treadle.tools import Approval

if TYPE_CHECKING:
    import sqlite3

LEASE_SECONDS = 30.0
"""The default of ``lease_seconds``."""
Status: TypeAlias = Literal["running", "paused", "ok", "error"]
_STATUSES = get_args(Status)
_ENDED = frozenset({"ok", "error"})
_FACTS = (
    "id",
    "agent_name",
    "status",
    "stop_reason",
    "created_at",
    "updated_at",
    "iterations",
    "part",
)
_INFO = f"""
    SELECT {", ".join(_FACTS)}, cancelled_at IS NOT NULL, waiting, {LEASE}
    FROM runs JOIN parts ON parts.run = runs.key AND parts.number = runs.part
"""  # noqa: S608 - a constant


@fast_dataclass
class StoredRun:
    """What a journal knows about a run.

    Args:
        id: its id.
        agent_name: the name of its loop.
        status: ``running``, ``paused``, or when it has ended ``ok`` or ``error``. A run that is ``running``
            and has no driver was interrupted: the next process that runs it continues it.
        stop_reason: why it ended or paused; empty while it runs.
        created_at: when it was stored, in seconds since the epoch.
        updated_at: when the latest outcome was stored.
        iterations: the number of model calls.
        part: the number of its part: 1, and one more each time it was resumed after a pause.
        is_cancelled: whether someone has asked to cancel it.
        driver: the process that drives it; None if none does.
        waiting: the calls that wait for a decision, if it is paused.
    """

    id: str
    agent_name: str
    status: str
    stop_reason: str
    created_at: float
    updated_at: float
    iterations: int
    part: int
    is_cancelled: bool
    driver: Driver | None
    waiting: tuple[PendingCall, ...]


class SQLiteJournal(Journal):
    """A `Journal` in an SQLite file, which several processes of a machine may use at the same time.

    Each outcome of a run is stored when it happens, so that a run which was interrupted continues where it was, in
    this process or another. Pass it as ``journal=`` of a run, with a ``run_id``.

    The file is readable by its owner only, and has the conversations in plain text, unless a codec encrypts them.
    Large contents are in separate files, in the folder ``{path}-files``. The file has a write-ahead log, which
    needs memory that the processes share, so it must not be on a network file system.

    A journal object may be shared by threads and inherited by forks, but a forked process does not drive the runs
    of its parent.

    Args:
        path: the file; it is created when the first run is stored.
        lease_seconds: how long after its last sign of life a process is still taken to drive its runs, if it
            cannot be known to have ended. Then another process may take them over.
        fsync: have each write wait until the disk has it, so that it outlives a power failure. Without this, it
            outlives a crash of the process, but not always one of the machine.
        codec: encodes the contents of runs, such as `EncryptedPayloads`; None stores JSON.
        max_inline: the size from which a content is stored in a separate file, in bytes.
        max_payload: the largest content, such as a tool result, in bytes. A run with a larger one ends with
            `JournalError`.
        clock: returns the time, in seconds since the epoch.

    Raises:
        OptionError: an option is invalid, or the path is no path of a file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lease_seconds: float = LEASE_SECONDS,
        fsync: bool = True,
        codec: Codec | None = None,
        max_inline: int = MAX_INLINE,
        max_payload: int = MAX_PAYLOAD,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_seconds(lease_seconds)
        self._file = JournalFile(path, is_synced=fsync)
        self.path = self._file.path
        self._payloads = Payloads(self.path, codec, max_inline, max_payload, is_synced=fsync)
        self._seconds = float(lease_seconds)
        self._clock = clock
        self._keeper = Keeper(self._beat, min(POLL_SECONDS, lease_seconds / 6))
        self._forget_all()
        renew_after_fork(self, SQLiteJournal._forget_all)

    def __repr__(self) -> str:
        return f"SQLiteJournal({self.path!r})"

    # Driving

    def open(self, run_id: str, start: JSONDict | None) -> DrivenRun:
        """Open a run for this process; see `treadle.recording.journaled.Journal.open`.

        Args:
            run_id: the id of the run.
            start: what a new run starts from; None opens only a run that exists.

        Raises:
            RunBusyError: another process drives the run.
            JournalError: the journal cannot be read or written, or there is no such run.
        """
        _check_id(run_id)
        self._file.keep_open()
        try:
            place, lease, part = self._take(run_id, start)
        except BaseException:
            self._file.let_close()
            raise
        opened = DrivenRun(
            file=self._file,
            payloads=self._payloads,
            clock=self._clock,
            place=place,
            lease=lease,
            part=part,
            on_close=self._forget,
        )
        try:
            opened.load()
        except BaseException:
            opened.close()
            raise
        if lease is not None:
            with self._lock:
                self._driven.append(opened)
            self._keeper.start()
        return opened

    def _take(self, run_id: str, start: JSONDict | None) -> tuple[Place, Lease | None, int]:
        """Take the lease of a run, and create the run if there is none; a run that has ended needs no lease."""
        query = f"SELECT key, files, part, status, token, {LEASE} FROM runs WHERE id = ?"  # noqa: S608
        with self._file.writing(f"open run {run_id!r}") as db:
            now = self._clock()
            row = db.execute(query, (run_id,)).fetchone()
            if row is None:
                if start is None:
                    raise self._unknown(db, run_id)
                self._create(db, run_id, start, now)
                row = db.execute(query, (run_id,)).fetchone()
            key, files, part, status, token, *leased = row
            place = Place(run_id, key, files)
            if status in _ENDED:
                return place, None, part
            _check_free(run_id, StoredLease(*leased).driver(now))
            lease = Lease(new_owner(), token + 1, self._seconds)
            db.execute(
                "UPDATE runs SET token = ?, owner = ?, leased_at = ?, expires_at = ?, lease_seconds = ? "
                "WHERE key = ?",
                (lease.token, lease.owner, now, now + lease.seconds, lease.seconds, key),
            )
        return place, lease, part

    def _create(self, db: sqlite3.Connection, run_id: str, start: JSONDict, now: float) -> None:
        files = os.urandom(8).hex()
        stored = self._payloads.put(start, files, f"run {run_id!r}: what it starts from")
        made = db.execute(
            "INSERT INTO runs VALUES (NULL, ?, ?, ?, 'running', '', 0, 1, ?, ?, NULL, 0, NULL, 0, 0, 0)",
            (run_id, str(start.get("name") or ""), files, now, now),
        )
        db.execute(
            "INSERT INTO parts (run, number, start) VALUES (?, 1, ?)", (made.lastrowid, stored)
        )

    def _forget(self, opened: DrivenRun) -> None:
        with self._lock:
            if opened in self._driven:
                self._driven.remove(opened)
            if not self._driven:
                self._keeper.stop()

    def _forget_all(self) -> None:
        self._lock = threading.Lock()
        self._driven: list[DrivenRun] = []

    def _beat(self) -> None:
        """Renew the leases of the driven runs, and stop those that were cancelled or lost."""
        with self._lock:
            driven = list(self._driven)
            if not driven:
                return
            self._file.keep_open()  # it is open: a run is closed before its file is
        try:
            due = [run for run in driven if run.is_due()]
            if due:
                with self._file.writing("renew the leases of runs") as db:
                    found = [(run, run.renew(db)) for run in due]
            else:
                with self._file.connection() as db:
                    found = [(run, run.look(db)) for run in driven]
        finally:
            self._file.let_close()
        for run, is_cancelled in found:
            run.learn(is_cancelled)

    # Reading

    def runs(self, status: Status | None = None, *, limit: int | None = None) -> list[StoredRun]:
        """List the runs, the newest first.

        Args:
            status: only those with this status.
            limit: at most so many.

        Raises:
            OptionError: there is no such status, or the limit is negative.
            JournalError: the journal cannot be read.
        """
        if status is not None and status not in _STATUSES:
            raise OptionError(f"runs: status: expected {one_of(_STATUSES)}, got {status!r}")
        if limit is not None and limit < 0:
            raise OptionError(f"runs: limit: expected 0 or more, got {limit!r}")
        where = "WHERE (? IS NULL OR status = ?) ORDER BY runs.key DESC LIMIT ?"
        most = -1 if limit is None else limit
        with self._file.reading("list the runs") as db:
            if db is None:
                return []
            rows = db.execute(f"{_INFO} {where}", (status, status, most)).fetchall()
        return [self._stored_run(row) for row in rows]

    def run(self, run_id: str) -> StoredRun:
        """Read what is known about one run.

        Raises:
            JournalError: there is no such run, or the journal cannot be read.
        """
        with self._file.reading(f"read run {run_id!r}") as db:
            row = db and db.execute(f"{_INFO} WHERE id = ?", (run_id,)).fetchone()
            if not row:
                raise self._unknown(db, run_id)
        return self._stored_run(row)

    def _stored_run(self, row: Sequence[Any]) -> StoredRun:
        facts = dict(zip(_FACTS, row, strict=False))
        is_cancelled, waiting, *leased = row[len(_FACTS) :]
        calls: list[Any] = []
        if waiting is not None:
            calls = self._payloads.get(waiting, f"run {row[0]!r}: its waiting calls")
        return StoredRun(
            **facts,
            is_cancelled=bool(is_cancelled),
            driver=StoredLease(*leased).driver(self._clock()),
            waiting=tuple(decode(calls)),
        )

    def part(self, run_id: str, number: int | None = None) -> StoredPart:
        """Read one part of a run.

        Args:
            run_id: the id of the run.
            number: the number of the part, from 1; None reads the latest.

        Raises:
            JournalError: there is no such run or part, or it cannot be read.
        """
        with self._file.reading(f"read run {run_id!r}") as db:
            query = "SELECT key, files, part FROM runs WHERE id = ?"
            row = db and db.execute(query, (run_id,)).fetchone()
            if db is None or not row:
                raise self._unknown(db, run_id)
            key, files, latest = row
            place = Place(run_id, key, files)
            number = int(latest) if number is None else number
            if not 1 <= number <= latest:
                raise JournalError(f"run {run_id!r} has the parts 1 to {latest}, not {number}")
            rows = rows_of(db, place, number)
        return part_of(self._payloads, place, rows)[0]

    def entries(self, run_id: str) -> list[Entry]:
        """Read the log of the latest part of a run.

        Raises:
            JournalError: there is no such run, or it cannot be read.
        """
        return self.part(run_id).log

    def export(self, run_id: str, path: str | os.PathLike[str]) -> None:
        """Write a run to a file as a recording, as JSON lines, which `treadle.testing.replay` replays.

        It has the outcomes, and the start and the end of each part; a replay makes the other events again.

        Args:
            run_id: the id of the run.
            path: the file; a recording that exists is replaced.

        Raises:
            JournalError: there is no such run, or it cannot be read.
            OSError: the file cannot be written.
            ValueError: the file exists and is not a recording.
        """
        from treadle.durable.export import export_run  # noqa: PLC0415 - few programs need it

        latest = self.part(run_id)
        parts = [self.part(run_id, number) for number in range(1, latest.number)]
        export_run(path, run_id, [*parts, latest])

    def messages(self, run_id: str) -> list[JSONDict]:
        """Read the user messages that were sent to a run, and that it has not taken yet.

        Raises:
            JournalError: there is no such run, or they cannot be read.
        """
        with self._file.reading(f"read run {run_id!r}") as db:
            row = db and db.execute("SELECT key FROM runs WHERE id = ?", (run_id,)).fetchone()
            if db is None or not row:
                raise self._unknown(db, run_id)
            query = "SELECT body FROM messages WHERE run = ? ORDER BY number"
            bodies = db.execute(query, row).fetchall()
        return [self._payloads.get(body, f"run {run_id!r}: a message") for (body,) in bodies]

    def _unknown(self, db: sqlite3.Connection | None, run_id: str) -> JournalError:
        query = "SELECT id FROM runs ORDER BY key DESC LIMIT ?"
        known = [] if db is None else [one for (one,) in db.execute(query, (MAX_KNOWN,))]
        similar = closest(run_id, known)
        hint = f"; did you mean {similar!r}?" if similar else ""
        if not known:
            hint = "; there are none"
        return JournalError(f"{self.path}: there is no run {run_id!r}{hint}")

    # Changing, also from other processes than the one that drives the run

    def decide(self, run_id: str, decisions: Mapping[str, Approval]) -> None:
        """Store decisions on calls of a paused run; the run takes them when it is run again.

        Until then, a later decision on the same call replaces an earlier one.

        Args:
            run_id: the id of the run.
            decisions: `approve`, `deny` or `edit`, by the id of the pending call.

        Raises:
            OptionError: a call does not wait, or a decision is none.
            RunBusyError: a process is resuming the run at this moment.
            JournalError: there is no such run, or the journal cannot be written.
        """
        with self._changing(run_id, "store decisions") as (db, place, found):
            number, status, *leased = found
            query = "SELECT waiting FROM parts WHERE run = ? AND number = ?"
            (stored,) = db.execute(query, (place.key, number)).fetchone()
            if status != "paused" or stored is None:
                raise OptionError(f"decide: run {run_id!r} does not wait: it is {status!r}")
            _check_free(run_id, StoredLease(*leased).driver(self._clock()))
            waiting = [call["id"] for call in self._payloads.get(stored, place.named("its calls"))]
            rows: list[tuple[Any, ...]] = []
            for call_id, decision in decisions.items():
                if call_id not in waiting:
                    hint = did_you_mean(call_id, waiting)
                    raise OptionError(f"decide: no call {call_id!r} of run {run_id!r} waits{hint}")
                if not isinstance(decision, Approval):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise OptionError(
                        f"decide: {call_id!r}: expected approve, deny(reason) or edit(arguments), "
                        f"got {type(decision).__name__}"
                    )
                what = place.named(f"the decision on {call_id!r}")
                body = self._payloads.put(decision.as_json(), place.files, what)
                rows.append((place.key, number, call_id, body, self._clock()))
            db.executemany("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?)", rows)

    def steer(self, run_id: str, message: str | Mapping[str, Any]) -> bool:
        """Add a user message before the next model call of a run.

        Args:
            run_id: the id of the run.
            message: a text, or a message with the role ``user``.

        Returns:
            Whether the run may receive it; False if it has ended.

        Raises:
            OptionError: it is not a user message.
            JournalError: there is no such run, or the journal cannot be written.
        """
        given = as_user_message(message)
        with self._changing(run_id, "store a message") as (db, place, (_, status, *_)):
            if status in _ENDED:
                return False
            body = self._payloads.put(given, place.files, place.named("a message"))
            db.execute("INSERT INTO messages (run, body) VALUES (?, ?)", (place.key, body))
        return True

    def cancel(self, run_id: str) -> bool:
        """Ask the process that drives a run to end it with ``RunCancelled``; it does so within about a second.

        If no process drives it, it ends when it is run again.

        Returns:
            Whether the run will end; False if it has ended.

        Raises:
            JournalError: there is no such run, or the journal cannot be written.
        """
        with self._changing(run_id, "cancel it") as (db, place, (_, status, *_)):
            if status in _ENDED:
                return False
            query = "UPDATE runs SET cancelled_at = coalesce(cancelled_at, ?) WHERE key = ?"
            db.execute(query, (self._clock(), place.key))
        return True

    def delete(self, run_id: str) -> None:
        """Delete a run and its files. What is deleted is overwritten in the journal.

        Raises:
            RunBusyError: a process drives it.
            JournalError: there is no such run, or the journal cannot be written.
        """
        with self._changing(run_id, "delete it") as (db, place, (_, _, *leased)):
            _check_free(run_id, StoredLease(*leased).driver(self._clock()))
            db.execute("PRAGMA secure_delete = ON")
            for table in ("parts", "entries", "messages", "decisions"):
                db.execute(f"DELETE FROM {table} WHERE run = ?", (place.key,))  # noqa: S608
            db.execute("DELETE FROM runs WHERE key = ?", (place.key,))
            self._payloads.delete(
                place.files
            )  # before the rows, which name them, are gone for good

    @contextlib.contextmanager
    def _changing(
        self, run_id: str, doing: str
    ) -> Generator[tuple[sqlite3.Connection, Place, tuple[Any, ...]]]:
        """Change an existing run in one transaction, which has its place, part, status and lease."""
        if not os.path.exists(self.path):  # noqa: PTH110 - a path may be a text
            raise self._unknown(None, run_id)
        with self._file.writing(f"{doing}: run {run_id!r}") as db:
            query = f"SELECT key, files, part, status, {LEASE} FROM runs WHERE id = ?"  # noqa: S608
            row = db.execute(query, (run_id,)).fetchone()
            if row is None:
                raise self._unknown(db, run_id)
            key, files, *facts = row
            yield db, Place(run_id, key, files), tuple(facts)


def _check_id(run_id: object) -> None:
    if not isinstance(run_id, str) or not run_id or not run_id.isprintable():
        raise OptionError(f"run_id: expected a text of printable characters, got {run_id!r}")


def _check_free(run_id: str, driver: Driver | None) -> None:
    if driver is not None:
        error = RunBusyError(f"run {run_id!r} is driven by {driver}")
        error.run_id = run_id
        raise error
