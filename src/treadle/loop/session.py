"""What a run needs of a stored session."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from treadle.messages import JSONDict


class RunSession(Protocol):
    """What a run needs of a session; `treadle.sessions.Session` is one. Each method may be sync or async.

    What they take and return is JSON data, so that a journal can record it.
    """

    def load(self) -> JSONDict | Awaitable[JSONDict]:
        """What a run continues: ``messages``, ``memo`` for its stages, ``pause_id`` if the last turn paused."""
        ...

    def save(self, loaded: JSONDict, turn: JSONDict) -> Awaitable[None] | None:
        """Store a turn that has ended, in one atomic step.

        Args:
            loaded: what `load` returned when it began.
            turn: the whole ``messages`` and ``memo`` of the run, ``status``, ``stop_reason``, ``run_id``,
                ``iterations``, ``tool_calls_count``, ``usage``, ``error``, ``pause``, ``at``; and ``tokens``,
                those that the messages, as the model saw them, have at the end, or None.

        Raises:
            SessionError: it is not stored; a `SessionConflictError` if the session was changed meanwhile.
        """
        ...
