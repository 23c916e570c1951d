"""Stored conversations, their compaction, and what is remembered of them."""

from treadle.errors import SessionConflictError, SessionError
from treadle.sessions.store import SessionInfo, SessionStore, StoredTurn

__all__ = [
    "SessionConflictError",
    "SessionError",
    "SessionInfo",
    "SessionStore",
    "StoredTurn",
]
