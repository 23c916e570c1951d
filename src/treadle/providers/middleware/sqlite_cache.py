"""`SQLiteCache`: responses in an SQLite file, for several processes."""

from __future__ import annotations

import os
import time

from treadle.databases.sqlite import Schema, opened, path_of_file
from treadle.errors import OptionError

MAX_ENTRIES = 10_000
BUSY_SECONDS = 5.0
"""How long an operation waits for those of other processes, in seconds. Each takes milliseconds."""

_SCHEMA = Schema(
    "a response cache",
    int.from_bytes(b"trrc"),
    1,
    (
        "CREATE TABLE responses (key TEXT PRIMARY KEY, response TEXT NOT NULL, stored_at REAL NOT NULL)",
    ),
)


class SQLiteCache:
    """A `CacheStore` in an SQLite file, which several processes may use at the same time.

    It has the responses in plain text, and is readable by its owner only. Each operation opens the file, so that
    an object may be shared by threads and inherited by forks. A file that cannot be used is logged by
    `ResponseCache`, and the model is asked.

    Args:
        path: the file; it is created when the first response is stored.
        max_entries: the number of responses; the oldest are removed.
        max_age: seconds after which a response is not used any more; None means never.

    Raises:
        OptionError: the path is no path of a file, or a number is too small.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_entries: int = MAX_ENTRIES,
        max_age: float | None = None,
    ) -> None:
        self.path = path_of_file(path, "SQLiteCache")
        if max_entries < 1:
            raise OptionError(f"SQLiteCache: max_entries: expected at least 1, got {max_entries!r}")
        if max_age is not None and max_age <= 0:
            raise OptionError(f"SQLiteCache: max_age: expected seconds above 0, got {max_age!r}")
        self._most = max_entries
        self._max_age = max_age

    def __repr__(self) -> str:
        return f"SQLiteCache({self.path!r})"

    def get(self, key: str, /) -> str | None:
        """The text under a key; None if there is none.

        Raises:
            sqlite3.Error, UnexpectedContentsError: the file cannot be used.
        """
        if not os.path.exists(self.path):  # noqa: PTH110 - a path may be a text
            return None
        oldest = 0.0 if self._max_age is None else time.time() - self._max_age
        with opened(self.path, BUSY_SECONDS, create=False) as db:
            if not _SCHEMA.is_in(db):
                return None
            row = db.execute(
                "SELECT response FROM responses WHERE key = ? AND stored_at >= ?", (key, oldest)
            ).fetchone()
        return None if row is None else row[0]

    def put(self, key: str, text: str, /) -> None:
        """Keep a text under a key.

        Raises:
            OSError, sqlite3.Error, UnexpectedContentsError: the file cannot be used.
        """
        with opened(self.path, BUSY_SECONDS) as db:
            _SCHEMA.create_in(db)
            db.execute("BEGIN IMMEDIATE")
            db.execute(
                "INSERT OR REPLACE INTO responses VALUES (?, ?, ?)", (key, text, time.time())
            )
            db.execute(
                "DELETE FROM responses WHERE key IN (SELECT key FROM responses "
                "ORDER BY stored_at DESC, rowid DESC LIMIT -1 OFFSET ?)",
                (self._most,),
            )
            db.execute("COMMIT")
