"""`SQLiteCache`: responses in an SQLite file, for several processes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from treadle.errors import OptionError, TreadleError
from treadle.sqlite_files import contents_of, opened, path_of_file

if TYPE_CHECKING:
    import sqlite3

MAX_ENTRIES = 10_000
BUSY_SECONDS = 5.0
"""How long an operation waits for those of other processes, in seconds. Each takes milliseconds."""

VERSION = 1
"""The version of the tables, in the file as its ``user_version``; a file without tables has 0."""

_TABLE = """
CREATE TABLE IF NOT EXISTS treadle_responses (
    key TEXT PRIMARY KEY, response TEXT NOT NULL, stored_at REAL NOT NULL
)
"""


class CacheVersionError(TreadleError):
    """The file of a cache was written by another version of treadle, or is that of another program."""


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
        """See `CacheStore.get`.

        Raises:
            sqlite3.Error: the file cannot be used.
            CacheVersionError: it is of another version.
        """
        if not os.path.exists(self.path):  # noqa: PTH110 - a path may be a text
            return None
        oldest = 0.0 if self._max_age is None else time.time() - self._max_age
        with opened(self.path, BUSY_SECONDS, create=False) as db:
            if not _is_current(db, self.path):
                return None
            row = db.execute(
                "SELECT response FROM treadle_responses WHERE key = ? AND stored_at >= ?",
                (key, oldest),
            ).fetchone()
        return None if row is None else row[0]

    def put(self, key: str, text: str, /) -> None:
        """See `CacheStore.put`.

        Raises:
            OSError, sqlite3.Error: the file cannot be used.
            CacheVersionError: it is of another version.
        """
        with opened(self.path, BUSY_SECONDS) as db:
            db.execute("BEGIN IMMEDIATE")
            if not _is_current(db, self.path):
                db.execute(_TABLE)
                db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute(
                "INSERT OR REPLACE INTO treadle_responses VALUES (?, ?, ?)",
                (key, text, time.time()),
            )
            db.execute(
                "DELETE FROM treadle_responses WHERE key IN ("
                "SELECT key FROM treadle_responses ORDER BY stored_at DESC, rowid DESC "
                "LIMIT -1 OFFSET ?)",
                (self._most,),
            )
            db.execute("COMMIT")


def _is_current(db: sqlite3.Connection, path: str) -> bool:
    """Whether the file has the tables; False for an empty one.

    Raises:
        CacheVersionError: it is of another version, or has other tables.
    """
    found = contents_of(db)
    if (found.application, found.version) == (0, VERSION):
        return True
    if any(found):
        raise CacheVersionError(
            f"{path}: expected a cache of version {VERSION}, found {found}; delete the file, or give "
            "the cache another path"
        )
    return False
