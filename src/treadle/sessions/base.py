"""`BaseSessions`: what each store of sessions can do by means of the methods of `SessionStore`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from treadle.errors import OptionError, SessionConflictError, SessionError
from treadle.messages import JSONDict
from treadle.sessions.session import Session, check_id
from treadle.sessions.store import SessionInfo, SessionStore, StoredTurn


class BaseSessions:
    """The base of stores of sessions. A custom store derives from it and has the methods of `SessionStore`."""

    def session(self: SessionStore, session_id: str) -> Session:
        """A session of this store, which need not exist yet.

        Args:
            session_id: 1 to 200 characters, none of them a control character.

        Raises:
            SessionError: the id is invalid.
        """
        return Session(self, session_id)

    def prune(
        self: SessionStore,
        *,
        updated_before: float | None = None,
        max_sessions: int | None = None,
        prefix: str = "",
    ) -> list[str]:
        """Delete old sessions with all that is stored about them. One that gets a turn meanwhile is kept.

        Args:
            updated_before: delete those whose latest turn was stored before this time, in seconds since the epoch.
            max_sessions: keep this many, those that were updated last.
            prefix: consider only sessions whose id starts with this.

        Returns:
            The ids of the deleted sessions.

        Raises:
            OptionError: neither limit is given, or ``max_sessions`` is negative.
            SessionError: the store cannot be used; sessions may have been deleted before.
        """
        if updated_before is None and max_sessions is None:
            raise OptionError("prune: expected updated_before=, max_sessions= or both")
        if max_sessions is not None and max_sessions < 0:
            raise OptionError(f"prune: max_sessions: expected 0 or more, got {max_sessions!r}")
        found = self.sessions(prefix=prefix)
        return [one.id for one in _old(found, updated_before, max_sessions) if _delete(self, one)]


def _old(
    found: list[SessionInfo], updated_before: float | None, max_sessions: int | None
) -> Iterator[SessionInfo]:
    for place, info in enumerate(found):
        is_old = updated_before is not None and info.updated_at < updated_before
        if is_old or (max_sessions is not None and place >= max_sessions):
            yield info


def _delete(store: SessionStore, info: SessionInfo) -> bool:
    try:
        return store.delete(info.id, info.version)
    except SessionConflictError:  # it is in use
        return False


def to_append(
    session_id: str, turns: Sequence[StoredTurn], attachments: Mapping[str, JSONDict]
) -> tuple[list[str], dict[str, str]]:
    """Check the arguments of `SessionStore.append`, and format the turns and the attachments as JSON.

    Raises:
        SessionError: the id is invalid, there are no turns, or they are not JSON data.
    """
    check_id(session_id)
    if not turns:
        raise SessionError(f"session {session_id!r}: expected at least one turn to store")
    try:
        parts = {digest: json.dumps(part) for digest, part in attachments.items()}
        return [turn.as_json() for turn in turns], parts
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(f"session {session_id!r}: a turn is not JSON data: {error}") from error
