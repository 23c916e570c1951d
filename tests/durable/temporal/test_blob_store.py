"""Stores of values by the digest of their content: SQLite, Redis, and any object with get and put."""

import asyncio
import hashlib
import os
import threading

import pytest
import redis
from tests.redis_server import RedisServer, redis_server, redis_url

from treadle import OptionError
from treadle.durable.temporal import (
    BlobStore,
    RedisBlobStore,
    SQLiteBlobStore,
    StoredValueError,
    StoreError,
)
from treadle.durable.temporal.blob_store import check_store, get_content, put_content

__all__ = ["redis_server", "redis_url"]

VALUE = b"\x00caf\xc3\xa9\xff" * 1000


class AsyncStore:
    def __init__(self):
        self.values = {}

    async def get(self, key):
        return self.values.get(key)

    async def put(self, key, value):
        self.values[key] = value


class PlainStore:
    """A store that tells in which threads it was called."""

    def __init__(self):
        self.values = {}
        self.threads = set()

    def get(self, key):
        self.threads.add(threading.get_ident())
        return self.values.get(key)

    def put(self, key, value):
        self.threads.add(threading.get_ident())
        self.values[key] = value


@pytest.fixture(params=["sqlite", "redis", "async", "plain"])
def store(request, tmp_path):
    if request.param == "sqlite":
        return SQLiteBlobStore(tmp_path / "store.db")
    if request.param == "redis":
        return RedisBlobStore(request.getfixturevalue("redis_url"))
    return AsyncStore() if request.param == "async" else PlainStore()


def put(store, value):
    return asyncio.run(put_content(store, value))


def get(store, key):
    return asyncio.run(get_content(store, key))


class TestContent:
    @pytest.mark.parametrize("value", [b"", b"text", VALUE], ids=["empty", "text", "binary"])
    def test_a_value_is_read_by_its_digest(self, store, value):
        key = put(store, value)
        assert key == hashlib.sha256(value).hexdigest()
        assert put(store, value) == key
        assert get(store, key) == value

    def test_a_missing_value_is_an_error_that_names_its_key(self, store):
        put(store, b"other")
        with pytest.raises(
            StoredValueError, match=r"'abc' is not in .*is it the store of all"
        ) as caught:
            get(store, "abc")
        assert caught.value.key == "abc"

    def test_a_changed_value_is_an_error_that_says_what_was_found(self, store):
        key = put(store, b"content")
        changed = store.put(key, b"contend")
        if isinstance(store, AsyncStore):
            asyncio.run(changed)
        with pytest.raises(StoredValueError, match=f"'{key}' was changed in .*got 7 bytes"):
            get(store, key)

    def test_a_value_of_another_type_is_an_error(self):
        store = PlainStore()
        store.values["abc"] = "text"
        with pytest.raises(StoredValueError, match=r"'abc' is no bytes in .*got str"):
            get(store, "abc")

    def test_a_store_that_may_block_is_called_in_other_threads(self):
        store = PlainStore()
        assert get(store, put(store, b"content")) == b"content"
        assert threading.get_ident() not in store.threads


class TestAnyStore:
    def test_an_object_with_get_and_put_is_a_store(self, store):
        assert isinstance(store, BlobStore)
        assert check_store(store, "worker: store") is store

    @pytest.mark.parametrize("wrong", [None, "store.db", {}], ids=["None", "path", "dict"])
    def test_something_else_is_refused(self, wrong):
        with pytest.raises(OptionError, match=r"worker: store: expected a store .*of type"):
            check_store(wrong, "worker: store")


class TestSQLite:
    def test_a_damaged_file_and_a_missing_folder_are_errors_that_name_the_file(self, tmp_path):
        damaged = tmp_path / "damaged.db"
        damaged.write_bytes(os.urandom(4096))
        with pytest.raises(StoreError, match=r"damaged\.db: could not read the value with the key"):
            SQLiteBlobStore(damaged).get("abc")
        with pytest.raises(StoreError, match=r"none/store\.db: could not store a value"):
            SQLiteBlobStore(tmp_path / "none" / "store.db").put("abc", b"")

    def test_options_are_checked(self, tmp_path):
        with pytest.raises(OptionError, match="SQLiteBlobStore: expected the path of a file"):
            SQLiteBlobStore(":memory:")
        with pytest.raises(
            OptionError, match="SQLiteBlobStore: timeout: expected 0 or more, got -1"
        ):
            SQLiteBlobStore(tmp_path / "store.db", timeout=-1)
        assert repr(SQLiteBlobStore("a/store.db")) == "SQLiteBlobStore('a/store.db')"


class TestRedis:
    def test_the_key_starts_with_the_prefix_and_may_expire(self, redis_url):
        forever, briefly = (
            RedisBlobStore(redis_url, prefix="app"),
            RedisBlobStore(redis_url, prefix="brief", keep_seconds=100),
        )
        key = put(forever, b"content")
        assert put(briefly, b"content") == key
        with redis.Redis.from_url(redis_url) as client:
            assert {*client.scan_iter()} == {
                f"{prefix}:content:{key}".encode() for prefix in ("app", "brief")
            }
            assert client.ttl(f"app:content:{key}") == -1
            assert 0 < client.ttl(f"brief:content:{key}") <= 100

    def test_a_client_that_decodes_its_answers_does_as_well(self, redis_url):
        with redis.Redis.from_url(redis_url, decode_responses=True) as client:
            store = RedisBlobStore(client)
            assert get(store, put(store, "æ".encode())) == "æ".encode()

    def test_a_server_that_has_ended_is_an_error_that_names_it(self, tmp_path):
        with RedisServer(tmp_path) as server:
            with redis.Redis.from_url(server.url) as client:
                client.set_retry(None)
                store = RedisBlobStore(client)
                store.put("abc", b"content")
                server.kill()
                for use in (lambda: store.get("abc"), lambda: store.put("abc", b"")):
                    with pytest.raises(StoreError, match=rf"redis://127.0.0.1:{server.port}/0: co"):
                        use()
            server.start()

    def test_options_are_checked(self, redis_url):
        with pytest.raises(OptionError, match="RedisBlobStore: expected a URL"):
            RedisBlobStore("localhost")
        with pytest.raises(OptionError, match="RedisBlobStore: keep_seconds: expected 1 or more"):
            RedisBlobStore(redis_url, keep_seconds=0.5)
        assert repr(RedisBlobStore(redis_url)) == f"RedisBlobStore({redis_url!r}, prefix='treadle')"
