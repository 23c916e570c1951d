"""Stored conversations, their compaction, and what is remembered of them."""

from treadle.errors import SessionConflictError, SessionError
from treadle.sessions.base import BaseSessions
from treadle.sessions.compaction import (
    Strategy,
    StubResults,
    collapse_repeats,
    compact_history,
    drop_superseded,
)
from treadle.sessions.redis_sessions import RedisSessions
from treadle.sessions.session import Session, import_session
from treadle.sessions.sqlite_sessions import SQLiteSessions
from treadle.sessions.store import SessionInfo, SessionStore, StoredTurn

__all__ = [
    "BaseSessions",
    "RedisSessions",
    "SQLiteSessions",
    "Session",
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
    "import_session",
]
