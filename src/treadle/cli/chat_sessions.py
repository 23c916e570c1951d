"""The sessions of a chat: where they are stored, their names, and the copy that a conflict makes."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path

from treadle.cli.user_files import make_folder, place_of
from treadle.errors import SessionConflictError, SessionError
from treadle.messages import JSONDict
from treadle.pauses.sqlite_claims import SQLiteClaims
from treadle.sessions import RedisSessions, Session, SessionStore, SQLiteSessions, StoredTurn
from treadle.sessions.view import addition_of

VARIABLE = "TREADLE_SESSIONS"
"""The environment variable that has the place of the sessions."""
REDIS = ("redis://", "rediss://", "unix://")
"""The starts of the URLs of a Redis."""
_MAX_COPIED = 190
"""How much of the name of a session the name of its copy has, in characters: `Session` limits it to 200."""

Sessions = SQLiteSessions | RedisSessions


def open_sessions(given: str | None) -> Sessions:
    """Open the store of sessions.

    Args:
        given: an SQLite file, or the URL of a Redis; None takes that of the environment, or the file of the user.

    Raises:
        UsageError: the folder of the file cannot be created.
        TreadleError: the store cannot be used.
    """
    place = place_of(given, VARIABLE, "sessions.db")
    if place.startswith(REDIS):
        return RedisSessions(place)
    file = Path(place).expanduser()
    if not given:
        make_folder(file, "--sessions")
    return SQLiteSessions(file)


def claims_of(sessions: SessionStore) -> SQLiteClaims:
    """Where chats note that they continue a turn that waited for approval, so that one of them does.

    Raises:
        UsageError: the folder of the file cannot be created.
    """
    if isinstance(sessions, SQLiteSessions):
        return SQLiteClaims(f"{sessions.path}-claims")
    file = Path(place_of(None, "", "claims.db"))
    make_folder(file, "--sessions")
    return SQLiteClaims(file)


def fresh_name() -> str:
    """The name of a new session: the date and the time."""
    return time.strftime("%Y-%m-%d-%H%M%S")


class BufferedSession:
    """A session for the runs of a chat, of which no turn is lost.

    If another program has changed the session since a run loaded it, the turn is stored in a copy of what the run
    has loaded, and the chat continues there: it continues what the user sees. If the store cannot be used, the
    turn is kept in memory, and `settle` stores it.

    Args:
        session: the session.
        notify: takes a text for the user.
    """

    def __init__(self, session: Session, notify: Callable[[str], None]) -> None:
        self.current = session
        self._notify = notify
        self._incarnation: str | None = None
        self._unsaved: tuple[JSONDict, JSONDict] | None = None

    def load(self) -> JSONDict:
        """Read what a run needs: not the whole past, only the messages that its view shows."""
        info = self.current.info()
        self._incarnation = None if info is None else info.incarnation
        return self.current.load()

    def save(self, loaded: JSONDict, turn: JSONDict) -> None:
        """Store the turn of a run that has ended. If it changed nothing, nothing is stored. It does not fail."""
        self._unsaved = loaded, turn
        try:
            self.settle()
        except SessionError as error:
            self._notify(f"[not stored: {error}; it is tried again before the next message]")

    def settle(self) -> None:
        """Store the turn that could not be stored, if there is one.

        Raises:
            SessionError: it still cannot be stored.
        """
        if self._unsaved is None:
            return
        loaded, turn = self._unsaved
        try:
            self.current.save(loaded, turn)
        except SessionConflictError:
            before = self.current.id
            self.current = self._copied(loaded, turn)
            self._notify(
                f"[another program has changed session {before!r} meanwhile, so this turn is stored in a copy, "
                f"{self.current.id!r}, where the chat continues; /switch {before} goes back]"
            )
        self._unsaved = None

    def _copied(self, loaded: JSONDict, turn: JSONDict) -> Session:
        """Store a turn in a new session, after the turns that its run has loaded."""
        current, store, info = self.current, self.current.store, self.current.info()
        turns: list[StoredTurn] = []
        attachments: dict[str, JSONDict] = {}
        is_there = info is not None and info.incarnation == self._incarnation
        if is_there:
            turns = store.turns(current.id, before=loaded["version"])[::-1]
            attachments = store.attachments(current.id)
        for number in itertools.count(2):
            copy = Session(store, f"{current.id[:_MAX_COPIED]}-{number}")
            # If the session was deleted, the copy starts with all that the run has seen.
            addition = addition_of(loaded if is_there else copy.load(), turn)
            if addition is None:  # nothing is to be stored, so there is no conflict
                return current
            with contextlib.suppress(SessionConflictError):  # there is a session with this name
                parts = {**attachments, **addition.attachments}
                store.append(copy.id, 0, [*turns, addition.turn], parts)
                return copy
        raise AssertionError  # not reached
