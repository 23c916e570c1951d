"""Runs that survive: journals of runs, and runs as Temporal workflows."""

import importlib
from typing import TYPE_CHECKING

from treadle.errors import JournalError, LeaseLostError, ReplayError, RunBusyError

if TYPE_CHECKING:
    from treadle.durable.lease import Driver
    from treadle.durable.payloads import Codec, EncryptedPayloads
    from treadle.durable.sqlite_journal import SQLiteJournal, StoredRun
    from treadle.durable.stored_part import StoredPart
    from treadle.recording.journaled import Journal
    from treadle.recording.journaled_run import JournaledRun
else:
    _LAZY = {
        "Codec": "treadle.durable.payloads",
        "Driver": "treadle.durable.lease",
        "EncryptedPayloads": "treadle.durable.payloads",
        "Journal": "treadle.recording.journaled",
        "JournaledRun": "treadle.recording.journaled_run",
        "SQLiteJournal": "treadle.durable.sqlite_journal",
        "StoredPart": "treadle.durable.stored_part",
        "StoredRun": "treadle.durable.sqlite_journal",
    }

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value


__all__ = [
    "Codec",
    "Driver",
    "EncryptedPayloads",
    "Journal",
    "JournalError",
    "JournaledRun",
    "LeaseLostError",
    "ReplayError",
    "RunBusyError",
    "SQLiteJournal",
    "StoredPart",
    "StoredRun",
]
