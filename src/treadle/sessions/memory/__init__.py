"""What is remembered of conversations: facts, the worker that extracts them, and the stage that recalls them."""

from treadle.sessions.memory.facts import Cursor, Fact, Source
from treadle.sessions.memory.recall import recall_memories
from treadle.sessions.memory.redis_memories import RedisMemories
from treadle.sessions.memory.sqlite_memories import SQLiteMemories
from treadle.sessions.memory.store import MemoryStore, MemoryStoreError
from treadle.sessions.memory.worker import ExtractionError, MemoryReport, MemoryWorker

__all__ = [
    "Cursor",
    "ExtractionError",
    "Fact",
    "MemoryReport",
    "MemoryStore",
    "MemoryStoreError",
    "MemoryWorker",
    "RedisMemories",
    "SQLiteMemories",
    "Source",
    "recall_memories",
]
