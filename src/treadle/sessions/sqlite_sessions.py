"""`SQLiteSessions`: sessions in an SQLite file, for several processes of one machine."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle.databases.sqlite import (
    Schema,
    UnexpectedContentsError,
    log_ahead,
    opened,
    path_of_file,
)
from treadle.errors import OptionError, SessionConflictError, SessionError
from treadle.messages import JSONDict
from treadle.sessions.base import BaseSessions, to_append
from treadle.sessions.store import SessionInfo, StoredTurn

if TYPE_CHECKING:
    import sqlite3

TIMEOUT = 30.0
"""How long an operation waits for those of others, in seconds. Each takes milliseconds."""

MAX_NUMBER = 2**63 - 1
"""SQLite's largest integer."""
_SCHEMA = Schema(
    "sessions",
    int.from_bytes(b"trds"),
    1,
    (
        """
        CREATE TABLE sessions (
            key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, incarnation TEXT NOT NULL,
            version INTEGER NOT NULL, messages INTEGER NOT NULL,
            created_at REAL NOT NULL, updated_at REAL NOT NULL
        )
        """,
        "CREATE INDEX sessions_by_time ON sessions (updated_at)",
        """
        CREATE TABLE turns (
            session INTEGER NOT NULL, number INTEGER NOT NULL, turn TEXT NOT NULL,
            PRIMARY KEY (session, number)
        )
        """,
        """
        CREATE TABLE attachments (
            key INTEGER PRIMARY KEY, session INTEGER NOT NULL, digest TEXT NOT NULL, part TEXT NOT NULL,
            UNIQUE (session, digest)
        )
        """,
    ),
)
_INFO = "SELECT id, version, messages, created_at, updated_at, incarnation FROM sessions"
_KEY = "(SELECT key FROM sessions WHERE id = ?)"


class SQLiteSessions(BaseSessions):
    """A `SessionStore` in an SQLite file, which several processes of a machine may use at the same time.

    The file has the conversations in plain text, and is readable by its owner only. What is stored outlives a
    crash of the program and a power failure.

    Each operation opens the file, so that an object may be shared by threads and inherited by forks. Readers do
    not wait for writers: the file has a write-ahead log. The log needs memory that the processes share, so the
    file must not be on a network file system.

    Args:
        path: the file; it is created when the first turn is stored.
        timeout: how long an operation waits for those of others, in seconds.

    Raises:
        OptionError: the path is no path of a file, or the time is negative.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        self.path = path_of_file(path, "SQLiteSessions")
        if timeout < 0:
            raise OptionError(f"SQLiteSessions: timeout: expected 0 or more, got {timeout!r}")
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"SQLiteSessions({self.path!r})"

    def append(
        self,
        session_id: str,
        version: int,
        turns: Sequence[StoredTurn],
        attachments: Mapping[str, JSONDict],
    ) -> None:
        """Append turns to a session, all of them or none."""
        lines, parts = to_append(session_id, turns, attachments)
        with self._writing(f"store a turn of session {session_id!r}") as db:
            _check_version(db, session_id, version)
            key = _updated(db, session_id, version + len(lines), turns[-1].end)
            numbered = enumerate(lines, version)
            db.executemany(
                "INSERT INTO turns VALUES (?, ?, ?)",
                [(key, number, line) for number, line in numbered],
            )
            db.executemany(
                "INSERT OR IGNORE INTO attachments (session, digest, part) VALUES (?, ?, ?)",
                [(key, digest, part) for digest, part in parts.items()],
            )

    def info(self, session_id: str) -> SessionInfo | None:
        """The facts about a session; None if it does not exist."""
        rows = self._read(f"read session {session_id!r}", f"{_INFO} WHERE id = ?", session_id)
        return SessionInfo(*rows[0]) if rows else None

    def turns(
        self, session_id: str, *, before: int | None = None, limit: int | None = None
    ) -> list[StoredTurn]:
        """Some turns of a session, the latest first; none if it does not exist."""
        rows = self._read(
            f"read turns of session {session_id!r}",
            f"SELECT turn FROM turns WHERE session = {_KEY} AND number < ? "  # noqa: S608
            "ORDER BY number DESC LIMIT ?",
            session_id,
            MAX_NUMBER if before is None else before,
            -1 if limit is None else limit,
        )
        return [StoredTurn.from_json(line) for (line,) in rows]

    def attachments(
        self, session_id: str, digests: Sequence[str] | None = None
    ) -> dict[str, JSONDict]:
        """The attachments of a session by digest, in the order in which they were stored."""
        wanted = "" if digests is None else f"AND digest IN ({', '.join('?' * len(digests))}) "
        rows = self._read(
            f"read attachments of session {session_id!r}",
            f"SELECT digest, part FROM attachments WHERE session = {_KEY} {wanted}ORDER BY key",  # noqa: S608
            session_id,
            *(digests or ()),
        )
        return {digest: json.loads(part) for digest, part in rows}

    def sessions(
        self, *, prefix: str = "", updated_after: float | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        """The sessions, the one that was updated last first."""
        rows = self._read(
            "list the sessions",
            f"{_INFO} WHERE updated_at > ? AND substr(id, 1, ?) = ? "
            "ORDER BY updated_at DESC, key DESC LIMIT ?",
            float("-inf") if updated_after is None else updated_after,
            len(prefix),
            prefix,
            -1 if limit is None else limit,
        )
        return [SessionInfo(*row) for row in rows]

    def delete(self, session_id: str, version: int | None = None) -> bool:
        """Delete a session with all that is stored about it, in one atomic step.

        The deleted data are overwritten in the file.
        """
        if not self._has_file():
            if version:
                raise SessionConflictError(session_id, version, 0)
            return False
        with self._writing(f"delete session {session_id!r}") as db:
            if version is not None:
                _check_version(db, session_id, version)
            db.execute("PRAGMA secure_delete = ON")
            for table in ("turns", "attachments"):
                db.execute(f"DELETE FROM {table} WHERE session = {_KEY}", (session_id,))  # noqa: S608
            return db.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0

    # Access to the file

    def _has_file(self) -> bool:
        return os.path.exists(self.path)  # noqa: PTH110 - a path may be a text

    def _read(self, doing: str, query: str, *values: Any) -> list[Any]:
        """The rows of one query; none if there is no file."""
        if not self._has_file():
            return []
        with self._reporting(doing), opened(self.path, self._timeout, create=False) as db:
            return db.execute(query, values).fetchall() if _SCHEMA.is_in(db) else []

    @contextlib.contextmanager
    def _writing(self, doing: str) -> Generator[sqlite3.Connection]:
        """A transaction, in a file that has the tables."""
        with self._reporting(doing), opened(self.path, self._timeout) as db:
            _SCHEMA.create_in(db)
            log_ahead(db)
            # In a write-ahead log, NORMAL does not wait until the disk has a commit: after a power failure, the
            # latest turns would be missing, although their runs have ended.
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    @contextlib.contextmanager
    def _reporting(self, doing: str) -> Generator[None]:
        """Raise errors of the file as `SessionError`."""
        import sqlite3  # noqa: PLC0415 - it is slow to import

        try:
            yield
        except UnexpectedContentsError as error:
            raise SessionError(f"{self.path}: {error}") from error
        except (sqlite3.Error, OSError) as error:
            raise SessionError(f"{self.path}: could not {doing}: {error}") from error


def _check_version(db: sqlite3.Connection, session_id: str, version: int) -> None:
    row = db.execute("SELECT version FROM sessions WHERE id = ?", (session_id,)).fetchone()
    found = 0 if row is None else row[0]
    if found != version:
        raise SessionConflictError(session_id, version, found)


def _updated(db: sqlite3.Connection, session_id: str, version: int, messages: int) -> int:
    """Create or update the row of a session; return its key."""
    now = time.time()
    (key,) = db.execute(
        "INSERT INTO sessions (id, incarnation, version, messages, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET version = excluded.version, "
        "messages = excluded.messages, updated_at = excluded.updated_at RETURNING key",
        (session_id, os.urandom(8).hex(), version, messages, now, now),
    ).fetchone()
    return int(key)
