"""Runs as Temporal workflows: any worker can continue them, and calls of models and tools are activities."""

import atexit
from importlib.util import find_spec

from treadle.errors import MissingExtraError

if find_spec("temporalio") is None:
    raise MissingExtraError("the Temporal SDK", "pip install 'treadle[temporal]'")

from treadle.durable.temporal.blob_store import (
    BlobStore,
    RedisBlobStore,
    SQLiteBlobStore,
    StoredValueError,
    StoreError,
)
from treadle.durable.temporal.client import TemporalRun, run_on_temporal, start_on_temporal
from treadle.durable.temporal.payloads import ValueTooLargeError
from treadle.durable.temporal.threads_at_exit import wait_for_threads
from treadle.durable.temporal.worker import make_replayer, make_worker, run_worker

atexit.register(wait_for_threads)

__all__ = [
    "BlobStore",
    "RedisBlobStore",
    "SQLiteBlobStore",
    "StoreError",
    "StoredValueError",
    "TemporalRun",
    "ValueTooLargeError",
    "make_replayer",
    "make_worker",
    "run_on_temporal",
    "run_worker",
    "start_on_temporal",
]
