"""SQLite files: readable by their owner only, and opened for each operation.

So an object that uses one may be shared by threads and inherited by forks: SQLite's connections may not.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from treadle.errors import OptionError, TreadleError

if TYPE_CHECKING:
    import sqlite3


def path_of_file(path: object, what: str) -> str:
    """The path of an SQLite file, as text.

    Raises:
        OptionError: it is no path of a file; the text begins with ``what``.
    """
    if not isinstance(path, (str, os.PathLike)) or os.fspath(path) in {"", ":memory:"}:
        raise OptionError(f"{what}: expected the path of a file, got {path!r}")
    return os.fspath(path)


@contextlib.contextmanager
def opened(
    path: str, busy_seconds: float, *, create: bool = True, check_same_thread: bool = True
) -> Generator[sqlite3.Connection]:
    """Open a file for one operation, without implicit transactions.

    Args:
        path: the file.
        busy_seconds: how long to wait for the operations of others, in seconds.
        create: create a missing file.
        check_same_thread: refuse to be used in another thread.

    Raises:
        OSError, sqlite3.Error: the file cannot be opened.
    """
    import sqlite3  # noqa: PLC0415 - it is slow to import

    from treadle.files import PRIVATE  # noqa: PLC0415 - it imports pathlib

    if create:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
    db = sqlite3.connect(
        path,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=check_same_thread,
    )
    try:
        yield db
    finally:
        db.close()  # which rolls an open transaction back


def log_ahead(db: sqlite3.Connection) -> None:
    """Have a file use a write-ahead log, which it keeps. It stays as it is while others use it."""
    import sqlite3  # noqa: PLC0415 - it is slow to import

    with contextlib.suppress(sqlite3.OperationalError):  # locked; a later operation tries it again
        db.execute("PRAGMA journal_mode = WAL")


class UnexpectedContentsError(TreadleError):
    """A file is of another version, or of another program; the text says what was expected and what was found."""


class Schema(NamedTuple):
    """The tables of a file.

    Args:
        what: what is in them, for errors.
        application: the ``application_id`` of the file.
        version: its ``user_version``.
        statements: create the tables and indexes.
    """

    what: str
    application: int
    version: int
    statements: tuple[str, ...]

    def is_in(self, db: sqlite3.Connection) -> bool:
        """Whether a file has the tables; False for an empty one.

        Raises:
            UnexpectedContentsError: it has others.
        """
        # At one moment: another program may be creating its tables.
        application, version, tables = db.execute(
            "SELECT (SELECT application_id FROM pragma_application_id), "
            "(SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_master)"
        ).fetchone()
        if (application, version) == (self.application, self.version):
            return True
        if not (application or version or tables):
            return False
        whose = (
            f"{self.what} of" if application == self.application else "another program's file of"
        )
        raise UnexpectedContentsError(
            f"expected {self.what} of version {self.version}, found {whose} version {version} with {tables} "
            "tables and indexes"
        )

    def create_in(self, db: sqlite3.Connection) -> None:
        """Create the tables in an empty file, unless another program has been faster.

        Raises:
            UnexpectedContentsError: it has others.
        """
        if self.is_in(db):
            return
        db.execute("BEGIN IMMEDIATE")
        if not self.is_in(db):
            for statement in self.statements:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {self.application}")
            db.execute(f"PRAGMA user_version = {self.version}")
        db.execute("COMMIT")
