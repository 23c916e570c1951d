"""The sessions of a chat: where they are stored, their names, and the copy that a conflict makes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from treadle.cli.exits import UsageError
from treadle.errors import SessionConflictError, SessionError
from treadle.files import PRIVATE
from treadle.sessions import RedisSessions, Session, SQLiteSessions

VARIABLE = "TREADLE_SESSIONS"
"""The environment variable that has the place of the sessions."""
_REDIS = ("redis://", "rediss://", "unix://")
_PRIVATE_FOLDER = 0o700

Sessions = SQLiteSessions | RedisSessions


def open_sessions(given: str | None) -> Sessions:
    """Open the store of sessions.

    Args:
        given: an SQLite file, or the URL of a Redis; None takes that of the environment, or the file of the user.

    Raises:
        UsageError: the folder of the file cannot be created.
        TreadleError: the store cannot be used.
    """
    place = given or os.environ.get(VARIABLE) or str(_default_file())
    if place.startswith(_REDIS):
        return RedisSessions(place)
    file = Path(place).expanduser()
    if not given:
        try:
            file.parent.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--sessions: cannot create {file.parent}: {error.strerror}") from error
    return SQLiteSessions(file)


def _default_file() -> Path:
    """The file of the user, as the XDG Base Directory Specification places it: a relative folder is ignored."""
    folder = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not folder.is_absolute():
        folder = Path.home() / ".local" / "share"
    return folder / "treadle" / "sessions.db"


def fresh_name() -> str:
    """The name of a new session: the date and the time."""
    return time.strftime("%Y-%m-%d-%H%M%S")
