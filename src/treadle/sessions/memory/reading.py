"""What of a session was not read yet."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.fast_dataclass import light_dataclass
from treadle.messages import JSONDict
from treadle.sessions.memory.facts import Cursor
from treadle.sessions.memory.store import MemoryStore
from treadle.sessions.store import SessionInfo, SessionStore, StoredTurn


@light_dataclass(frozen=True)
class Unread:
    """What of a session was not read yet.

    Args:
        expected: where the cursor of the session is; None if it has none.
        cursor: where it has to be before the messages are read. If it is not there, it is moved, and what was
            learned from the messages after it is retracted.
        messages: the messages from the cursor on.
    """

    expected: Cursor | None
    cursor: Cursor
    messages: Sequence[JSONDict]

    @property
    def retract_from(self) -> int | None:
        """The index of the message from which on facts are retracted; None if none are."""
        known, cursor = self.expected, self.cursor
        if known is None:
            return None
        is_same = known.incarnation == cursor.incarnation and known.turns <= cursor.turns
        return cursor.messages if not is_same or cursor.messages < known.messages else None


def is_read(info: SessionInfo, cursor: Cursor | None) -> bool:
    """Whether a session was read to its end."""
    return cursor == Cursor(info.incarnation, info.version, info.messages)


def unread(sessions: SessionStore, memories: MemoryStore, session_id: str) -> Unread | None:
    """What of a session was not read yet; None if it was read to its end, or does not exist.

    Turns that are added meanwhile are not in it. If the session is deleted meanwhile, the messages may be others:
    what follows from them must not be stored unless the session has the incarnation of the cursor.
    """
    info = sessions.info(session_id)
    if info is None:
        return None
    known = memories.cursors([session_id]).get(session_id)
    return None if is_read(info, known) else _unread(sessions, memories, info, known)


def _unread(
    sessions: SessionStore, memories: MemoryStore, info: SessionInfo, known: Cursor | None
) -> Unread:
    is_new = known is None or known.incarnation != info.incarnation or known.turns > info.version
    start, turns = 0, 0
    if known is not None and not is_new:
        start, turns = known.messages, known.turns
    newest = _Newest(sessions, info)
    newest.read(info.version - turns)
    if newest.start < start:
        # The facts of a piece are those of all its messages, so the whole piece is read again.
        pieces = (one for one in memories.sources(info.id) if one.stop > newest.start)
        start = min((newest.start, *(one.start for one in pieces)))
    while newest.start > start:
        newest.read(MORE_TURNS)
    cursor = Cursor(info.incarnation, info.version, start)
    return Unread(known, cursor, newest.messages[start - newest.start :])


MORE_TURNS = 16
"""The number of turns that are read at once to find older messages."""


class _Newest:
    """The newest messages of a session, which grow towards the oldest.

    Args:
        sessions: where the session is.
        info: its state. Turns that are added later are not read.

    Attributes:
        first_turn: the number of the oldest turn that was read.
        start: the index of the first message.
        messages: the messages from there on.
    """

    def __init__(self, sessions: SessionStore, info: SessionInfo) -> None:
        self._sessions, self._id = sessions, info.id
        self.first_turn = info.version
        self.start = info.messages
        self.messages: list[JSONDict] = []

    def read(self, count: int) -> None:
        """Read so many turns before the first one."""
        if count == 0:
            return
        turns = self._sessions.turns(self._id, before=self.first_turn, limit=count)
        added: list[Sequence[JSONDict]] = []
        for turn in turns:
            added.append(self._kept(turn))
            self.start = min(self.start, turn.start)
        self.messages = [message for part in reversed(added) for message in part] + self.messages
        # A session that was deleted meanwhile has fewer turns.
        self.first_turn = self.first_turn - len(turns) if len(turns) == count else 0
        if self.first_turn == 0:
            self.start = 0

    def _kept(self, turn: StoredTurn) -> Sequence[JSONDict]:
        """The messages of a turn that no later turn has replaced."""
        return turn.messages[: max(0, self.start - turn.start)]
