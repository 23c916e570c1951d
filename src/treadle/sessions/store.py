"""`SessionStore`: where sessions are kept, as turns that are only ever appended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol, TypeAlias

from treadle.errors import SessionError
from treadle.fast_dataclass import light_dataclass
from treadle.messages import JSONDict

TurnStatus: TypeAlias = Literal["ok", "error", "paused", "edit"]
"""How a turn ended; ``edit`` is a change of the messages that no run made, such as `Session.truncate`."""


@light_dataclass(frozen=True)
class StoredTurn:
    """One turn of a session: the messages that it put in place of all messages from ``start`` on.

    Turns are never changed. A turn that continues a paused one, or that removes messages, starts at an earlier
    message than the last one, so that the messages of a session are those of its turns, in order, each after the
    messages from its ``start`` on were removed.

    Args:
        start: the index of its first message among the messages of the session, from 0.
        messages: its messages.
        status: how it ended.
        stop_reason: that of the result of its run; empty for an edit.
        created_at: when it was stored, in seconds since the epoch.
        run_id: the id of its run.
        iterations: those of its run.
        tool_calls_count: the number of tool calls that its run made.
        usage: the usage of its run, as a dict.
        error: why the run failed; None if it did not.
        view: how the messages up to here are shown to the model, see `Session.load`; None shows all of them.
        pause: the state of the pause with which the run ended, for `Loop.resume`; None if it did not pause.
    """

    start: int
    messages: Sequence[JSONDict]
    status: TurnStatus = "ok"
    stop_reason: str = ""
    created_at: float = 0.0
    run_id: str = ""
    iterations: int = 0
    tool_calls_count: int = 0
    usage: JSONDict = field(default_factory=dict[str, Any])
    error: str | None = None
    view: JSONDict | None = None
    pause: JSONDict | None = None

    @property
    def end(self) -> int:
        """The number of messages of the session after this turn."""
        return self.start + len(self.messages)

    def as_json(self) -> str:
        """All fields, as JSON on one line, in ASCII."""
        return json.dumps({**vars(self), "messages": list(self.messages)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> StoredTurn:
        """The turn that `as_json` returned.

        Raises:
            SessionError: the text is something else.
        """
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError, RecursionError) as error:
            raise SessionError(f"a stored turn cannot be read: {error}") from error


@light_dataclass(frozen=True)
class SessionInfo:
    """The facts about a session.

    Args:
        id: its id.
        version: the number of its turns. Each turn is appended to a certain version.
        messages: the number of its messages.
        created_at: when its first turn was stored, in seconds since the epoch.
        updated_at: when its latest turn was stored, in seconds since the epoch.
        incarnation: a random text that another session of the same id, made after this one was deleted, does not
            have.
    """

    id: str
    version: int
    messages: int
    created_at: float
    updated_at: float
    incarnation: str


class SessionStore(Protocol):
    """Stores the turns of sessions. It may be used by several threads and processes at the same time.

    A session exists from its first turn until it is deleted. All methods raise `SessionError` if the store cannot
    be used, and then have changed nothing.
    """

    def append(
        self,
        session_id: str,
        version: int,
        turns: Sequence[StoredTurn],
        attachments: Mapping[str, JSONDict],
    ) -> None:
        """Append turns to a session, all of them or none, in one atomic step.

        Args:
            session_id: the session; it is created if ``version`` is 0.
            version: the number of turns that the session has to have.
            turns: the turns.
            attachments: the content parts of attachments that the session may not have yet, by digest. One that it
                has stays as it is.

        Raises:
            SessionConflictError: it has another number of turns.
        """
        ...

    def info(self, session_id: str) -> SessionInfo | None:
        """The facts about a session; None if it does not exist."""
        ...

    def turns(
        self, session_id: str, *, before: int | None = None, limit: int | None = None
    ) -> list[StoredTurn]:
        """Some turns of a session, the latest first; none if it does not exist.

        Args:
            session_id: the session.
            before: only turns whose number, from 0, is below this; None starts with the latest.
            limit: the number of turns; None returns all.
        """
        ...

    def attachments(
        self, session_id: str, digests: Sequence[str] | None = None
    ) -> dict[str, JSONDict]:
        """The attachments of a session by digest, in the order in which they were stored.

        Args:
            session_id: the session.
            digests: those that are needed; None returns all.
        """
        ...

    def sessions(
        self, *, prefix: str = "", updated_after: float | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        """The sessions, the one that was updated last first.

        Args:
            prefix: the start of the ids.
            updated_after: only those updated after this time, in seconds since the epoch.
            limit: the number of sessions; None returns all.
        """
        ...

    def delete(self, session_id: str, version: int | None = None) -> bool:
        """Delete a session with all that is stored about it, in one atomic step.

        Args:
            session_id: the session.
            version: the number of turns that it has to have; None deletes it in any case.

        Returns:
            Whether it existed.

        Raises:
            SessionConflictError: it has another number of turns.
        """
        ...
