"""Stored conversations, their compaction, and what is remembered of them."""

from treadle.errors import SessionConflictError, SessionError
from treadle.sessions.compaction import (
    Strategy,
    StubResults,
    collapse_repeats,
    compact_history,
    drop_superseded,
)
from treadle.sessions.store import SessionInfo, SessionStore, StoredTurn

__all__ = [
    "SessionConflictError",
    "SessionError",
    "SessionInfo",
    "SessionStore",
    "StoredTurn",
    "Strategy",
    "StubResults",
    "collapse_repeats",
    "compact_history",
    "drop_superseded",
]
