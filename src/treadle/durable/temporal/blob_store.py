"""The store of a Temporal deployment: values by the digest of their content, for all of its workers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from treadle.databases.redis import address_of, client_of
from treadle.databases.sqlite import Schema, UnexpectedContentsError, opened, path_of_file
from treadle.errors import OptionError, TreadleError
from treadle.messages import sha256
from treadle.redaction import redacted

if TYPE_CHECKING:
    import sqlite3

    import redis

TIMEOUT = 30.0
"""How long an operation on a file waits for those of others, in seconds. Each takes milliseconds."""

_SCHEMA = Schema(
    "stored values",
    int.from_bytes(b"trdv"),
    1,
    ("CREATE TABLE content (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",),
)


class StoreError(TreadleError):
    """A store could not be read or written. It may be possible later."""


class StoredValueError(StoreError):
    """A value is missing in a store, or is not what was stored. Trying again does not help.

    Args:
        key: the key of the value.
        problem: what is wrong with it.
    """

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(key, problem)
        self.key = key
        self.problem = problem

    def __str__(self) -> str:
        return f"the value with the key {self.key!r} {self.problem}"


@runtime_checkable
class BlobStore(Protocol):
    """Keeps values for the workers of a deployment; any object with these methods is one.

    The key of a value is the digest of its content, so a value never changes, and it does no harm if two workers
    store the same one. The methods may be ``async def``; others are called in a thread, and may block. Errors that
    they raise let an activity be tried again.
    """

    def get(self, key: str) -> bytes | Awaitable[bytes | None] | None:
        """Read a value; None if there is none."""
        ...

    def put(self, key: str, value: bytes) -> Awaitable[None] | None:
        """Store a value; it must be there for all workers when this returns."""
        ...


class SQLiteBlobStore:
    """A `BlobStore` in an SQLite file, for the workers of one machine.

    The file has the values in plain text, and is readable by its owner only. What is stored outlives a crash of
    the worker and a power failure.

    Each operation opens the file, so that an object may be shared by threads and inherited by forks. The file has
    a write-ahead log, for which the processes share memory, so it must not be on a network file system.

    Args:
        path: the file; it is created when the first value is stored.
        timeout: how long an operation waits for those of others, in seconds.

    Raises:
        OptionError: the path is no path of a file, or the time is negative.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        self.path = path_of_file(path, "SQLiteBlobStore")
        if timeout < 0:
            raise OptionError(f"SQLiteBlobStore: timeout: expected 0 or more, got {timeout!r}")
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"SQLiteBlobStore({self.path!r})"

    def get(self, key: str) -> bytes | None:
        """Read a value; None if there is none."""
        if not os.path.exists(self.path):  # noqa: PTH110 - a path may be a text
            return None
        doing = f"read the value with the key {key!r}"
        with self._reporting(doing), opened(self.path, self._timeout, create=False) as db:
            if not _SCHEMA.is_in(db):
                return None
            row = db.execute("SELECT value FROM content WHERE key = ?", (key,)).fetchone()
            return None if row is None else bytes(row[0])

    def put(self, key: str, value: bytes) -> None:
        """Store a value; it must be there for all workers when this returns."""
        with self._reporting("store a value"), opened(self.path, self._timeout) as db:
            _SCHEMA.create_in(db)
            _log_ahead(db)
            # In a write-ahead log, NORMAL does not wait until the disk has a value: after a power failure, it
            # would be missing, although the history of a workflow refers to it.
            db.execute("PRAGMA synchronous = FULL")
            db.execute("INSERT OR REPLACE INTO content VALUES (?, ?)", (key, value))

    @contextlib.contextmanager
    def _reporting(self, doing: str) -> Generator[None]:
        """Raise errors of the file as `StoreError`."""
        import sqlite3  # noqa: PLC0415 - it is slow to import

        try:
            yield
        except UnexpectedContentsError as error:
            raise StoreError(f"{self.path}: {error}") from error
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path}: could not {doing}: {error}") from error


def _log_ahead(db: sqlite3.Connection) -> None:
    """Have the file use a write-ahead log, which it keeps. It stays as it is while others use it."""
    import sqlite3  # noqa: PLC0415 - it is slow to import

    with contextlib.suppress(sqlite3.OperationalError):  # locked; a later value tries it again
        db.execute("PRAGMA journal_mode = WAL")


class RedisBlobStore:
    """A `BlobStore` in Redis, for the workers of several machines. Extra ``redis``.

    A value is as safe as Redis is set to keep it: a restart loses the latest ones unless Redis has ``appendonly
    yes`` and ``appendfsync always``. Its ``maxmemory-policy`` must be ``noeviction``, the default. A value has
    the key ``PREFIX:content:KEY``.

    Args:
        redis: a URL, such as ``redis://localhost:6379/0`` or ``unix:///run/redis.sock``, or a `redis.Redis`.
        prefix: the start of all keys.
        keep_seconds: how long a value is kept, in seconds; None keeps it forever. A run that takes longer sends
            its conversation as a whole once more.

    Raises:
        MissingExtraError: redis-py is not installed.
        OptionError: it is neither, or the URL is invalid, or the time is less than a second.
    """

    def __init__(
        self,
        redis: str | redis.Redis,
        *,
        prefix: str = "treadle",
        keep_seconds: float | None = None,
    ) -> None:
        if keep_seconds is not None and keep_seconds < 1:
            raise OptionError(
                f"RedisBlobStore: keep_seconds: expected 1 or more, or None, got {keep_seconds!r}"
            )
        self._client = client_of(redis, "RedisBlobStore")
        self._prefix = prefix
        self._keep_seconds = None if keep_seconds is None else int(keep_seconds)

    def __repr__(self) -> str:
        return f"RedisBlobStore({address_of(self._client)!r}, prefix={self._prefix!r})"

    def get(self, key: str) -> bytes | None:
        """Read a value; None if there is none."""
        with self._reporting(f"read the value with the key {key!r}"):
            value = self._client.get(self._key(key))
        return value.encode() if isinstance(value, str) else value

    def put(self, key: str, value: bytes) -> None:
        """Store a value; it must be there for all workers when this returns."""
        with self._reporting("store a value"):
            self._client.set(self._key(key), value, ex=self._keep_seconds)

    def _key(self, key: str) -> str:
        return f"{self._prefix}:content:{key}"

    @contextlib.contextmanager
    def _reporting(self, doing: str) -> Generator[None]:
        """Raise errors of Redis as `StoreError`."""
        from redis import exceptions  # noqa: PLC0415 - an extra

        try:
            yield
        except exceptions.RedisError as error:
            text = redacted(str(error))
            raise StoreError(f"{address_of(self._client)}: could not {doing}: {text}") from error


def check_store(store: object, what: str) -> BlobStore:
    """Check what was passed as a store.

    Raises:
        OptionError: it has no ``get`` and ``put``; the text starts with ``what``.
    """
    if not isinstance(store, BlobStore):
        raise OptionError(
            f"{what}: expected a store with the methods get and put, such as SQLiteBlobStore(path), "
            f"got an object of type {type(store).__name__}"
        )
    return store


async def put_content(store: BlobStore, content: bytes) -> str:
    """Store a value under the digest of its content.

    Returns:
        The key.
    """
    key = sha256(content)
    await _called(store.put, key, content)
    return key


async def get_content(store: BlobStore, key: str) -> bytes:
    """Read a value that `put_content` stored.

    Raises:
        StoredValueError: it is missing, or it is not what was stored.
    """
    content = await _called(store.get, key)
    if content is None:
        raise StoredValueError(key, f"is not in {store!r}: is it the store of all workers?")
    if not isinstance(content, bytes):
        raise StoredValueError(key, f"is no bytes in {store!r}: got {type(content).__name__}")
    if sha256(content) != key:
        raise StoredValueError(
            key,
            f"was changed in {store!r}: expected content with this SHA-256 digest, "
            f"got {len(content):,} bytes with the digest {sha256(content)!r}",
        )
    return content


async def _called(method: Any, *args: Any) -> Any:
    """What a method returns; it is called in a thread unless it is asynchronous."""
    if inspect.iscoroutinefunction(method):
        return await method(*args)
    value = await asyncio.to_thread(method, *args)
    return await value if inspect.isawaitable(value) else value
