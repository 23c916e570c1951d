"""Runs as Temporal workflows: any worker can continue them, and calls of models and tools are activities."""

from treadle.durable.temporal.store import (
    RedisStore,
    SQLiteStore,
    Store,
    StoredValueError,
    StoreError,
)

__all__ = ["RedisStore", "SQLiteStore", "Store", "StoreError", "StoredValueError"]
