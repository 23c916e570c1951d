"""Runs that survive: journals of runs, and runs as Temporal workflows."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.durable.lease import Driver
    from treadle.durable.payloads import Codec, EncryptedPayloads
    from treadle.durable.sqlite_journal import SQLiteJournal, StoredRun
    from treadle.durable.stored_part import StoredPart
else:
    _LAZY = {
        "Codec": "payloads",
        "Driver": "lease",
        "EncryptedPayloads": "payloads",
        "SQLiteJournal": "sqlite_journal",
        "StoredPart": "stored_part",
        "StoredRun": "sqlite_journal",
    }

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value


__all__ = ["Codec", "Driver", "EncryptedPayloads", "SQLiteJournal", "StoredPart", "StoredRun"]
