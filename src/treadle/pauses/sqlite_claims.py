"""Claims in an SQLite file, for several processes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

from treadle.databases.sqlite import opened, path_of_file
from treadle.errors import PausedStateError
from treadle.pauses.claims import Outcome, claimed
from treadle.pauses.resume_holder import ResumeHolder

if TYPE_CHECKING:
    import sqlite3

BUSY_SECONDS = 30.0
"""How long an operation waits for those of other processes, in seconds. Each takes milliseconds."""

_TABLE = """
CREATE TABLE IF NOT EXISTS treadle_claims (
    pause_id TEXT PRIMARY KEY, claimant TEXT NOT NULL, claimed_at REAL NOT NULL, status TEXT NOT NULL
)
"""


class SQLiteClaims:
    """A `ClaimStore` in an SQLite file: of all processes that use the file, one resumes a pause.

    The file system has to have file locks that work between these processes. An object may be shared by threads
    and inherited by forks. A row stays for each pause; it may be deleted once no copy of the state exists.

    Args:
        path: the file; it is created, readable by its owner only, when a pause is claimed for the first time.

    Raises:
        OptionError: the path is no path of a file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_of_file(path, "SQLiteClaims")

    def __repr__(self) -> str:
        return f"SQLiteClaims({self.path!r})"

    def claim(self, pause_id: str, claimant: str, *, take_over: bool) -> bool:
        """Claim a pause, in one atomic step."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT claimant, claimed_at, status FROM treadle_claims WHERE pause_id = ?",
                (pause_id,),
            ).fetchone()
            before, since, status = row or ("", 0.0, "undone")
            if status == "done":
                return False
            holder = ResumeHolder.parse(before) if status == "claimed" else None
            if status != "undone" and (not take_over or (holder and holder.is_running())):
                raise PausedStateError(claimed(pause_id, holder, since))
            db.execute(
                "INSERT OR REPLACE INTO treadle_claims VALUES (?, ?, ?, 'claimed')",
                (pause_id, claimant, time.time()),
            )
        return True

    def release(self, pause_id: str, claimant: str, outcome: Outcome) -> None:
        """End a claim."""
        with self._transaction() as db:
            db.execute(
                "UPDATE treadle_claims SET status = ? WHERE pause_id = ? AND claimant = ?",
                (outcome, pause_id, claimant),
            )

    @contextlib.contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with opened(self.path, BUSY_SECONDS) as db:
            # No write-ahead log: it needs memory that processes on several machines cannot share.
            db.execute("BEGIN IMMEDIATE")
            db.execute(_TABLE)
            yield db
            db.execute("COMMIT")
