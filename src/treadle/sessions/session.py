"""`Session`: one stored conversation."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator

from treadle.errors import SessionConflictError, SessionError
from treadle.messages import JSONDict
from treadle.sessions.jsonl import from_lines, to_lines
from treadle.sessions.store import SessionInfo, SessionStore, StoredTurn
from treadle.sessions.view import addition_of, digests_of, memo_of, shown, through_of

MAX_ID = 200
"""The maximum length of the id of a session."""
PAGE = 100
"""The number of turns that are read at a time, where all of them are."""
_NOT_IN_AN_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Session:
    """A conversation in a store. It exists from its first turn until it is deleted.

    The object has no data itself: each method reads the store, and several threads and processes may use the same
    session. All methods raise `SessionError` if the store cannot be used.

    Args:
        store: the store.
        session_id: 1 to 200 characters, none of them a control character.

    Raises:
        SessionError: the id is invalid.
    """

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self.store = store
        self.id = check_id(session_id)

    def __repr__(self) -> str:
        return f"Session({self.store!r}, {self.id!r})"

    # Reading

    def info(self) -> SessionInfo | None:
        """The facts about the session; None if it does not exist."""
        return self.store.info(self.id)

    @property
    def exists(self) -> bool:
        """Whether the session exists."""
        return self.info() is not None

    def messages(self, start: int = 0, stop: int | None = None) -> list[JSONDict]:
        """The messages, as the turns have left them. Only the turns that have them are read.

        Args:
            start: the index of the first one; a negative index counts from the end.
            stop: the index after the last one; None means the end.
        """
        info = self.info()
        if info is None:
            return []
        start, stop, _ = slice(start, stop).indices(info.messages)
        if start >= stop:
            return []
        turns = self._latest(info, lambda turn: turn.start <= start)
        return _messages(turns, start)[: stop - start]

    def turns(self) -> list[StoredTurn]:
        """All turns, the oldest first."""
        info = self.info()
        return [] if info is None else list(self._oldest(info))

    def pause(self) -> JSONDict | None:
        """The state of the pause with which the latest turn ended, for `Loop.resume`; None if it did not."""
        return _pause_of(self.store.turns(self.id, limit=1))

    def attachments(self) -> list[JSONDict]:
        """All files, images and sounds of the conversation: their content parts, the first one first.

        What was removed by `truncate` is still in the store, and so is here.
        """
        return list(self.store.attachments(self.id).values())

    # Changing

    def truncate(self, messages: int) -> None:
        """Remove messages at the end. Earlier turns stay in the store; a pause is not resumed any more.

        Args:
            messages: the number of messages that remain.

        Raises:
            SessionError: the session does not exist or has fewer messages, or a call would be separated from its
                result.
            SessionConflictError: the session was changed meanwhile.
        """
        info = self._existing()
        if messages != info.messages:
            self.store.append(self.id, info.version, [self._edit(info, messages)], {})

    def fork(self, new_id: str, messages: int | None = None) -> Session:
        """Copy the session, with all turns.

        Args:
            new_id: the id of the copy.
            messages: the number of messages that the copy has; None means all. Then a pause is copied as well; one
                of the two sessions can resume it.

        Raises:
            SessionError: this session does not exist, one with the new id does, or see `truncate`.
        """
        info = self._existing()
        turns = list(self._oldest(info))
        if messages is not None and messages != info.messages:
            turns.append(self._edit(info, messages))
        return _create(self.store, new_id, turns, self.store.attachments(self.id))

    def delete(self) -> bool:
        """Delete the session with all that is stored about it.

        Returns:
            Whether it existed.
        """
        return self.store.delete(self.id)

    # Moving to another store

    def export(self) -> Iterator[str]:
        """The session as lines of JSON, for `import_session` or a file: each ends with a line feed.

        Raises:
            SessionError: the session does not exist.
            SessionConflictError: it was deleted meanwhile.
        """
        info = self._existing()
        attachments = self.store.attachments(self.id)
        yield from to_lines(self.id, info.version, self._oldest(info), attachments)

    # For runs

    def load(self) -> JSONDict:
        """Read what a run needs: not the whole past, only the messages that its view shows.

        Returns:
            JSON data: ``version``, the number of turns; ``messages``, those that the run sees; ``through``, the
            index in the session of the first of them, after ``pinned`` messages that come from before: system
            messages, and the summary of the others; ``memo``, what stages have kept; ``pause_id``, that of the
            pause with which the latest turn ended.
        """
        info = self.info()
        if info is None:
            return {
                "version": 0,
                "messages": [],
                "memo": {},
                "through": 0,
                "pinned": 0,
                "pause_id": None,
            }
        turns = self._latest(info, _is_view_covered())
        view = turns[0].view
        through, digests, pause = through_of(view), digests_of(view), _pause_of(turns)
        memo = memo_of(view, self.store.attachments(self.id, digests) if digests else {})
        return {
            "version": info.version,
            **shown(view, _messages(turns, through), memo),
            "memo": memo,
            "through": through,
            "pause_id": None if pause is None else pause.get("pause_id"),
        }

    def save(self, loaded: JSONDict, turn: JSONDict) -> None:
        """Store the turn of a run that has ended. If it changed nothing, nothing is stored.

        A turn that is stored already is not stored again: a run that was interrupted in between repeats this.

        Args:
            loaded: what `load` returned before the run.
            turn: ``messages`` and ``memo``, the history and the memo at the end of the run; ``at``, when it ended,
                in seconds since the epoch; and the fields of `StoredTurn` of the same names.

        Raises:
            SessionConflictError: the session was changed since it was loaded.
        """
        addition, version = addition_of(loaded, turn), loaded["version"]
        if addition is None:
            return
        try:
            self.store.append(self.id, version, [addition.turn], addition.attachments)
        except SessionConflictError:
            stored = self.store.turns(self.id, before=version + 1, limit=1)
            if [one.as_json() for one in stored] != [addition.turn.as_json()]:
                raise

    # Inside

    def _existing(self) -> SessionInfo:
        info = self.info()
        if info is None:
            raise SessionError(f"there is no session {self.id!r}")
        return info

    def _latest(
        self, info: SessionInfo, is_enough: Callable[[StoredTurn], bool]
    ) -> list[StoredTurn]:
        """The latest turns of a version, the latest first, up to the first one that is enough, or all."""
        found: list[StoredTurn] = []
        while len(found) < info.version:
            left = info.version - len(found)
            batch = self.store.turns(self.id, before=left, limit=max(len(found), 1))
            for turn in batch:
                found.append(turn)
                if is_enough(turn):
                    self._check_unchanged(info)
                    return found
            self._check_read(info, batch)
        self._check_unchanged(info)
        return found

    def _oldest(self, info: SessionInfo) -> Iterator[StoredTurn]:
        """All turns of a version, the oldest first."""
        for first in range(0, info.version, PAGE):
            stop = min(first + PAGE, info.version)
            batch = self.store.turns(self.id, before=stop, limit=stop - first)
            self._check_read(info, batch)
            yield from reversed(batch)
        self._check_unchanged(info)

    def _check_read(self, info: SessionInfo, batch: list[StoredTurn]) -> None:
        if not batch:
            self._check_unchanged(info)
            raise SessionError(f"session {self.id!r}: turns are missing from the store")

    def _check_unchanged(self, info: SessionInfo) -> None:
        """Check that the turns that were read are those of one session: it may have been deleted meanwhile."""
        found = self.info()
        if found is None or found.incarnation != info.incarnation:
            raise SessionConflictError(self.id, info.version, 0 if found is None else found.version)

    def _edit(self, info: SessionInfo, messages: int) -> StoredTurn:
        """The turn that removes all messages from an index on."""
        if not 0 <= messages <= info.messages:
            raise SessionError(
                f"session {self.id!r}: expected 0 to {info.messages:,} messages to remain, got {messages:,}"
            )
        removed = self.messages(messages, messages + 1)
        if removed and removed[0]["role"] == "tool":
            raise SessionError(
                f"session {self.id!r}: {messages:,} messages would separate a call from its result; "
                f"the nearest number that does not is {self._nearest(messages):,}"
            )
        view = self._view_of_start(info, messages)
        return StoredTurn(messages, [], "edit", created_at=time.time(), view=view)

    def _view_of_start(self, info: SessionInfo, messages: int) -> JSONDict | None:
        """The latest view whose summary covers none but the first messages.

        These messages are still as they were: no turn starts before what the view of the turn before it covers.
        """
        turn = self._latest(info, lambda turn: through_of(turn.view) <= messages)[-1]
        if turn.view is None or through_of(turn.view) > messages:
            return None
        return {**turn.view, "tokens": None}

    def _nearest(self, index: int) -> int:
        """The index nearest to one inside an exchange at which no exchange is split."""
        messages = self.messages()
        is_tool = [message["role"] == "tool" for message in messages]
        before, after = index - 1, index
        while is_tool[before]:
            before -= 1
        while after < len(messages) and is_tool[after]:
            after += 1
        return before if index - before <= after - index else after


def import_session(
    store: SessionStore, lines: Iterable[str], session_id: str | None = None
) -> Session:
    """Store a session that `Session.export` returned. All of it is stored, or nothing.

    Args:
        store: the store.
        lines: the lines.
        session_id: the id that it gets; None means the one that it had.

    Raises:
        SessionError: a line is malformed or missing, or there is a session with this id.
    """
    exported = from_lines(lines)
    new_id = exported.id if session_id is None else session_id
    return _create(store, new_id, exported.turns, exported.attachments)


def _create(
    store: SessionStore, session_id: str, turns: list[StoredTurn], attachments: dict[str, JSONDict]
) -> Session:
    session = Session(store, session_id)
    try:
        store.append(session_id, 0, turns, attachments)
    except SessionConflictError as error:
        raise SessionError(f"there is a session {session_id!r} already") from error
    return session


def check_id(session_id: str) -> str:
    """Check the id of a session, and return it.

    Raises:
        SessionError: it is invalid.
    """
    is_text: bool = isinstance(session_id, str)  # pyright: ignore[reportUnnecessaryIsInstance]
    if is_text and 0 < len(session_id) <= MAX_ID and not _NOT_IN_AN_ID.search(session_id):
        return session_id
    raise SessionError(
        f"the id of a session: expected 1 to {MAX_ID} characters without control characters, "
        f"got {repr(session_id)[:MAX_ID]}"
    )


def _messages(turns: list[StoredTurn], start: int) -> list[JSONDict]:
    """The messages from an index on.

    Args:
        turns: the latest turns, the latest first, up to one that starts there or before.
        start: the index.
    """
    pieces: list[list[JSONDict]] = []
    end = turns[0].end
    for turn in turns:
        if turn.start < end:
            pieces.append(list(turn.messages[max(start - turn.start, 0) : end - turn.start]))
            end = turn.start
    return [message for piece in reversed(pieces) for message in piece]


def _is_view_covered() -> Callable[[StoredTurn], bool]:
    """Whether the turns so far have all messages that the view of the latest one shows."""
    through: int | None = None

    def is_covered(turn: StoredTurn) -> bool:
        nonlocal through
        if through is None:
            through = through_of(turn.view)
        return turn.start <= through

    return is_covered


def _pause_of(latest: list[StoredTurn]) -> JSONDict | None:
    return latest[0].pause if latest and latest[0].status == "paused" else None
