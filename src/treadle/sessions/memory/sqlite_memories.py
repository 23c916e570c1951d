"""`SQLiteMemories`: facts in an SQLite file, for several processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Collection, Generator, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from treadle.databases.sqlite import Schema, UnexpectedContentsError, opened, path_of_file
from treadle.sessions.memory.facts import Cursor, Fact, Source, by_age
from treadle.sessions.memory.store import MemoryStoreError

if TYPE_CHECKING:
    import sqlite3

BUSY_SECONDS = 30.0
"""How long an operation waits for those of other processes, in seconds. Each takes milliseconds."""
MAX_PARAMETERS = 500
"""The number of ids in one query; SQLite allows 999 in old versions."""

_SCHEMA = Schema(
    "memories",
    int.from_bytes(b"trdm"),
    1,
    (
        "CREATE TABLE facts (scope TEXT, id TEXT, text TEXT NOT NULL, PRIMARY KEY (scope, id))",
        """
        CREATE TABLE sources (
            scope TEXT, id TEXT, session_id TEXT, start INTEGER, stop INTEGER, created_at REAL,
            PRIMARY KEY (scope, id, session_id, start)
        )
        """,
        "CREATE INDEX sources_by_session ON sources (session_id, stop)",
        "CREATE INDEX sources_by_age ON sources (scope, id, created_at)",
        """
        CREATE TABLE cursors (
            session_id TEXT PRIMARY KEY, incarnation TEXT NOT NULL,
            turns INTEGER NOT NULL, messages INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE leases (
            session_id TEXT PRIMARY KEY, token TEXT NOT NULL, ends_at REAL NOT NULL
        )
        """,
    ),
)


class SQLiteMemories:
    """A `MemoryStore` in an SQLite file, which several processes of one machine may use at the same time.

    The file has the facts in plain text, and is readable by its owner only. Facts that are removed are
    overwritten. Each operation opens the file, so that an object may be shared by threads and inherited by forks.

    Args:
        path: the file; it is created when it is first used.

    Raises:
        OptionError: the path is no path of a file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_of_file(path, "SQLiteMemories")

    def __repr__(self) -> str:
        return f"SQLiteMemories({self.path!r})"

    def facts(self, scope: str, *, limit: int | None = None) -> list[Fact]:
        """The facts of a scope, the oldest first."""
        with self._transaction() as db:
            rows = db.execute(
                "WITH latest AS (SELECT id FROM sources WHERE scope = ?1 GROUP BY id "
                "ORDER BY min(created_at) DESC, id LIMIT ?2) "
                "SELECT id, text, session_id, start, stop, created_at FROM latest "
                "JOIN facts USING (id) JOIN sources USING (scope, id) WHERE scope = ?1 "
                "ORDER BY id, created_at, session_id, start",
                (scope, -1 if limit is None else limit),
            ).fetchall()
        return by_age(
            Fact(scope, text, tuple(Source(*row[2:]) for row in group))
            for (_, text), group in groupby(rows, key=lambda row: row[:2])
        )

    def sources(self, session_id: str) -> list[Source]:
        """The sources of facts in a session, each once."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT DISTINCT session_id, start, stop, created_at FROM sources "
                "WHERE session_id = ? ORDER BY start",
                (session_id,),
            ).fetchall()
        return [Source(*row) for row in rows]

    def cursors(self, session_ids: Collection[str]) -> dict[str, Cursor]:
        """How far each of some sessions was read; those that were never read are missing."""
        with self._transaction() as db:
            rows = _select(db, "SELECT * FROM cursors WHERE session_id", session_ids)
        return {session_id: Cursor(*values) for session_id, *values in rows}

    def commit(
        self,
        session_id: str,
        expected: Cursor | None,
        cursor: Cursor,
        *,
        retract_from: int | None = None,
        facts: Sequence[Fact] = (),
    ) -> bool:
        """Move the cursor of a session, together with the facts that follow from this, in one atomic step."""
        with self._transaction(writes=True) as db:
            query = "SELECT * FROM cursors WHERE session_id"
            found = {row[0]: Cursor(*row[1:]) for row in _select(db, query, [session_id])}
            if found.get(session_id) != expected:
                return False
            if retract_from is not None:
                _retract(db, session_id, retract_from)
            for fact in facts:
                _add(db, fact)
            db.execute(
                "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, ?)",
                (session_id, cursor.incarnation, cursor.turns, cursor.messages),
            )
        return True

    def lease(self, session_id: str, seconds: float) -> str | None:
        """Reserve a session for one worker, so that two do not do the same work."""
        token, now = secrets.token_hex(16), time.time()
        with self._transaction(writes=True) as db:
            done = db.execute(
                "INSERT INTO leases VALUES (?, ?, ?) ON CONFLICT (session_id) "
                "DO UPDATE SET token = excluded.token, ends_at = excluded.ends_at WHERE ends_at <= ?",
                (session_id, token, now + seconds, now),
            )
            return token if done.rowcount else None

    def renew(self, session_id: str, token: str, seconds: float) -> bool:
        """Let a lease end in so many seconds from now; False if it has ended."""
        now = time.time()
        with self._transaction(writes=True) as db:
            done = db.execute(
                "UPDATE leases SET ends_at = ? WHERE session_id = ? AND token = ? AND ends_at > ?",
                (now + seconds, session_id, token, now),
            )
            return bool(done.rowcount)

    def release(self, session_id: str, token: str) -> None:
        """End a lease; one that has ended is ignored."""
        with self._transaction(writes=True) as db:
            db.execute(
                "DELETE FROM leases WHERE session_id = ? AND token = ?",
                (session_id, token),
            )

    def forget(self, scope: str, fact_ids: Collection[str] | None = None) -> int:
        """Remove facts. Their sessions are not read again because of it."""
        with self._transaction(writes=True) as db:
            if fact_ids is None:
                rows = db.execute("SELECT id FROM facts WHERE scope = ?", (scope,))
                fact_ids = [row[0] for row in rows.fetchall()]
            keys = [(scope, fact_id) for fact_id in set(fact_ids)]
            db.executemany("DELETE FROM sources WHERE scope = ? AND id = ?", keys)
            done = db.executemany("DELETE FROM facts WHERE scope = ? AND id = ?", keys)
            return max(0, done.rowcount)

    def forget_session(self, session_id: str) -> None:
        """Remove a session from the sources of all facts, and its cursor."""
        with self._transaction(writes=True) as db:
            _retract(db, session_id, 0)
            db.execute("DELETE FROM cursors WHERE session_id = ?", (session_id,))

    @contextlib.contextmanager
    def _transaction(self, *, writes: bool = False) -> Generator[sqlite3.Connection]:
        import sqlite3  # noqa: PLC0415 - it is slow to import

        try:
            with opened(self.path, BUSY_SECONDS) as db:
                _SCHEMA.create_in(db)
                db.execute("PRAGMA secure_delete = ON")
                db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                yield db
                db.execute("COMMIT")
        except UnexpectedContentsError as error:
            raise MemoryStoreError(f"{self.path}: {error}") from error
        except (OSError, sqlite3.Error) as error:
            raise MemoryStoreError(f"{self.path}: the memories cannot be used: {error}") from error


def _select(db: sqlite3.Connection, query: str, ids: Collection[str]) -> Iterable[Any]:
    """The rows of a query that ends with the name of a column, for some values of that column."""
    values, rows = [*ids], list[Any]()
    for start in range(0, len(values), MAX_PARAMETERS):
        some = values[start : start + MAX_PARAMETERS]
        rows += db.execute(f"{query} IN ({', '.join('?' * len(some))})", some).fetchall()
    return rows


def _retract(db: sqlite3.Connection, session_id: str, start: int) -> None:
    """Remove the sources of a session that end after a message, and the facts that have no others."""
    which = "FROM sources WHERE session_id = ? AND stop > ?"
    keys = db.execute(f"SELECT DISTINCT scope, id {which}", (session_id, start)).fetchall()
    db.execute(f"DELETE {which}", (session_id, start))
    db.executemany(
        "DELETE FROM facts WHERE scope = ?1 AND id = ?2 AND NOT EXISTS "
        "(SELECT 1 FROM sources WHERE scope = ?1 AND id = ?2)",
        keys,
    )


def _add(db: sqlite3.Connection, fact: Fact) -> None:
    """Add a fact, or its sources to the same fact."""
    key = fact.scope, fact.id
    db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?, ?)", (*key, fact.text))
    db.executemany(
        "INSERT OR IGNORE INTO sources VALUES (?, ?, ?, ?, ?, ?)",
        [(*key, one.session_id, one.start, one.stop, one.created_at) for one in fact.sources],
    )
