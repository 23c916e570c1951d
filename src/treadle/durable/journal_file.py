"""The SQLite file of a journal: its tables, its connection and its errors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from treadle.databases.sqlite import (
    Schema,
    UnexpectedContentsError,
    log_ahead,
    opened,
    path_of_file,
)
from treadle.errors import JournalError
from treadle.forks import renew_after_fork

if TYPE_CHECKING:
    import sqlite3

BUSY_SECONDS = 30.0
"""How long an operation waits for those of other processes, in seconds. Each takes milliseconds."""

SCHEMA = Schema(
    "a journal",
    int.from_bytes(b"trjl"),
    1,
    (
        # `token` counts the owners of the lease. `files` is the random text in the names of the run's files.
        """
        CREATE TABLE runs (
            key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent_name TEXT NOT NULL, files TEXT NOT NULL,
            status TEXT NOT NULL, stop_reason TEXT NOT NULL, iterations INTEGER NOT NULL,
            part INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL, cancelled_at REAL,
            token INTEGER NOT NULL, owner TEXT, leased_at REAL NOT NULL, expires_at REAL NOT NULL,
            lease_seconds REAL NOT NULL
        )
        """,
        "CREATE INDEX runs_by_status ON runs (status)",
        """
        CREATE TABLE parts (
            run INTEGER NOT NULL, number INTEGER NOT NULL, start NOT NULL, outcome, waiting,
            PRIMARY KEY (run, number)
        )
        """,
        """
        CREATE TABLE entries (
            run INTEGER NOT NULL, part INTEGER NOT NULL, number INTEGER NOT NULL, body NOT NULL,
            PRIMARY KEY (run, part, number)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE messages (
            number INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, body NOT NULL
        )
        """,
        "CREATE INDEX messages_by_run ON messages (run)",
        """
        CREATE TABLE decisions (
            run INTEGER NOT NULL, part INTEGER NOT NULL, call TEXT NOT NULL, body NOT NULL,
            decided_at REAL NOT NULL, PRIMARY KEY (run, part, call)
        )
        """,
    ),
)
_ADVICE = {
    "SQLITE_FULL": "make room on the disk; what was stored before is not lost",
    "SQLITE_IOERR": "is the disk full? What was stored before is not lost",
    "SQLITE_READONLY": "the process must be able to write the file and its folder",
    "SQLITE_CANTOPEN": "the folder must exist, and the process must be able to write it",
    "SQLITE_BUSY": "another process keeps it locked; is it suspended in the middle of a write?",
    "SQLITE_NOTADB": "it is no journal; pass another path",
    "SQLITE_CORRUPT": (
        "it is damaged; restore a copy of the file, or move it away with its -wal file and save what can be "
        "read with the command `sqlite3 FILE .recover`"
    ),
}
"""What to do about errors of SQLite, by the start of their names."""
_inherited: list[Any] = []
"""Connections of the parent process. They must not be closed here: this would end its locks."""


class JournalFile:
    """The file of a journal. It may be shared by threads, and inherited by forks.

    The connection that writes stays open while a run is driven, since to open it takes longer than a write.

    Args:
        path: the file; it is created when the first run is stored.
        is_synced: have each write wait until the disk has it.
        busy_seconds: how long a write waits for those of others, in seconds.

    Raises:
        OptionError: the path is no path of a file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        is_synced: bool = True,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        # A run may outlast a change of the working folder.
        self.path = os.path.abspath(path_of_file(path, "SQLiteJournal"))  # noqa: PTH100 - a text
        self._synchronous = "FULL" if is_synced else "NORMAL"
        self._busy_seconds = busy_seconds
        self._forget()
        renew_after_fork(self, JournalFile._renew)

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._kept = contextlib.ExitStack()
        self._db: sqlite3.Connection | None = None
        self._id: tuple[int, int] | None = None

    def _renew(self) -> None:
        _inherited.append((self._kept, self._db))
        self._forget()

    # Reading

    @contextlib.contextmanager
    def reading(self, doing: str) -> Generator[sqlite3.Connection | None]:
        """Read the file as it is at one moment; None if there is none.

        Args:
            doing: what is done, for errors: ``could not {doing}``.

        Raises:
            JournalError: it cannot be read.
        """
        if not os.path.exists(self.path):  # noqa: PTH110 - a path may be a text
            yield None
            return
        with (
            self._reporting(doing),
            opened(self.path, self._busy_seconds, create=False) as db,
        ):
            if not SCHEMA.is_in(db):
                yield None
                return
            db.execute("BEGIN")
            yield db

    # Writing

    def keep_open(self) -> None:
        """Keep the connection that writes open until `let_close`.

        Raises:
            JournalError: the file cannot be opened, or is no journal.
        """
        with self._lock:
            if not self._users:
                with self._reporting("open it"):
                    self._open()
            self._users += 1

    def _open(self) -> None:
        with contextlib.ExitStack() as stack:
            opening = opened(self.path, self._busy_seconds, check_same_thread=False)
            db = stack.enter_context(opening)
            SCHEMA.create_in(db)
            log_ahead(db)
            db.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._db, self._id = db, self._id_of_file()
            self._kept = stack.pop_all()

    def _id_of_file(self) -> tuple[int, int]:
        found = os.stat(self.path)  # noqa: PTH116 - a path may be a text
        return found.st_dev, found.st_ino

    def let_close(self) -> None:
        """Close the connection, unless others keep it open."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._db = None
                self._kept.close()

    @contextlib.contextmanager
    def writing(self, doing: str) -> Generator[sqlite3.Connection]:
        """Write in one transaction, which is undone if an exception is raised. Other threads wait.

        Args:
            doing: what is done, for errors: ``could not {doing}``.

        Raises:
            JournalError: it cannot be written. Nothing of it is.
        """
        self.keep_open()
        try:
            with self._reporting(doing), self.connection() as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    _undo(db)
                    raise
        finally:
            self.let_close()

    @contextlib.contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """The connection that is kept open. Other threads wait.

        Raises:
            JournalError: the file is another one than when it was opened.
        """
        with self._lock:
            try:
                is_same = self._id_of_file() == self._id
            except FileNotFoundError:
                is_same = False
            if self._db is None or not is_same:
                raise JournalError(
                    f"{self.path}: the file was deleted or replaced while a run was stored in it"
                )
            yield self._db

    @contextlib.contextmanager
    def _reporting(self, doing: str) -> Generator[None]:
        """Raise errors of the file as `JournalError`."""
        import sqlite3  # noqa: PLC0415 - it is slow to import

        try:
            yield
        except UnexpectedContentsError as error:
            raise JournalError(
                f"{self.path}: {error}; pass another path, or install the version of treadle that wrote it"
            ) from error
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            advice = [text for start, text in _ADVICE.items() if name.startswith(start)]
            text = "; ".join([f"{self.path}: could not {doing}: {error}", *advice])
            raise JournalError(text) from error
        except OSError as error:
            raise JournalError(f"{self.path}: could not {doing}: {error}") from error


def _undo(db: sqlite3.Connection) -> None:
    import sqlite3  # noqa: PLC0415 - it is slow to import

    if db.in_transaction:  # SQLite has undone it after some errors
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
