"""`MemoryStore`: where facts are kept, with how far each session was read and which worker reads it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from treadle.errors import TreadleError
from treadle.sessions.memory.facts import Cursor, Fact, Source


class MemoryStoreError(TreadleError):
    """A store of memories cannot be read or written."""


class MemoryStore(Protocol):
    """Stores facts. It may be used by several threads and processes at the same time.

    All methods raise `MemoryStoreError` if the store cannot be used, and then have changed nothing.
    """

    def facts(self, scope: str, *, limit: int | None = None) -> list[Fact]:
        """The facts of a scope, the oldest first.

        Args:
            scope: the scope.
            limit: the number of facts, those that were learned last; None means all. The others are not read.
        """
        ...

    def sources(self, session_id: str) -> list[Source]:
        """The sources of facts in a session, each once."""
        ...

    def cursors(self, session_ids: Collection[str]) -> dict[str, Cursor]:
        """How far each of some sessions was read; those that were never read are missing."""
        ...

    def commit(
        self,
        session_id: str,
        expected: Cursor | None,
        cursor: Cursor,
        *,
        retract_from: int | None = None,
        facts: Sequence[Fact] = (),
    ) -> bool:
        """Move the cursor of a session, together with the facts that follow from this, in one atomic step.

        Args:
            session_id: the session.
            expected: where its cursor has to be; None if the session has to have none.
            cursor: where its cursor is then.
            retract_from: the index of a message of the session: sources that end after it are removed, and with
                them the facts that have no other source. None removes nothing.
            facts: what was learned. The sources of a fact that its scope has are added to that fact.

        Returns:
            False if the cursor is elsewhere, since another worker was faster; then nothing was changed.
        """
        ...

    def lease(self, session_id: str, seconds: float) -> str | None:
        """Reserve a session for one worker, so that two do not do the same work.

        Args:
            session_id: the session.
            seconds: when the lease ends, unless it is renewed.

        Returns:
            A token for the other methods; None if another worker has the lease.
        """
        ...

    def renew(self, session_id: str, token: str, seconds: float) -> bool:
        """Let a lease end in so many seconds from now; False if it has ended."""
        ...

    def release(self, session_id: str, token: str) -> None:
        """End a lease; one that has ended is ignored."""
        ...

    def forget(self, scope: str, fact_ids: Collection[str] | None = None) -> int:
        """Remove facts. Their sessions are not read again because of it.

        Args:
            scope: the scope.
            fact_ids: the ids of the facts; None removes all facts of the scope.

        Returns:
            The number of facts that were removed.
        """
        ...

    def forget_session(self, session_id: str) -> None:
        """Remove a session from the sources of all facts, and its cursor.

        A session that is deleted from its store keeps its facts until then. If it still exists, it is read anew.
        """
        ...
