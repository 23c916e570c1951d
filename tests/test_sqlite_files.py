"""The SQLite files of sessions, journals, memories and workflows: who may read them, and which are left alone."""

import hashlib
import multiprocessing
import sqlite3
import stat
from typing import Any, NamedTuple

import pytest
from tests.durable.journaling import chat
from tests.durable.journaling import stored as store_run
from tests.sessions.conversing import turn, user

from treadle import OptionError
from treadle.durable import SQLiteJournal
from treadle.durable.temporal import SQLiteBlobStore
from treadle.durable.temporal.blob_store import StoreError
from treadle.errors import JournalError
from treadle.providers.middleware import SQLiteCache
from treadle.sessions import SessionError, SQLiteSessions
from treadle.sessions.memory import MemoryStoreError, SQLiteMemories


class Kind(NamedTuple):
    """A kind of store in a file.

    Args:
        open: makes one of a path.
        error: what it raises.
        write: stores something under a name.
        read: reads something.
    """

    open: Any
    error: Any
    write: Any
    read: Any


KINDS = [
    Kind(
        SQLiteSessions,
        SessionError,
        lambda store, name: store.append(name, 0, [turn(0, user())], {}),
        lambda store: [info.id for info in store.sessions()],
    ),
    Kind(
        SQLiteJournal,
        JournalError,
        lambda store, name: store_run(store, name, chat(1)),
        lambda store: [run.id for run in store.runs()],
    ),
    Kind(
        SQLiteMemories,
        MemoryStoreError,
        lambda store, name: store.lease(name, 60),
        lambda store: [name for name in "abcd" if store.lease(name, 60) is None],
    ),
    Kind(
        SQLiteBlobStore,
        StoreError,
        lambda store, name: store.put(hashlib.sha256(name.encode()).hexdigest(), name.encode()),
        lambda store: [
            name
            for name in "abcd"
            if store.get(hashlib.sha256(name.encode()).hexdigest()) is not None
        ],
    ),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.open.__name__)
def kind(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.db"


def refused(kind, path, match):
    """That neither reading nor writing is possible, and that each error names the file."""
    store = kind.open(path)
    for act in (lambda: kind.write(store, "b"), lambda: kind.read(store)):
        with pytest.raises(kind.error, match=match) as caught:
            act()
        assert path.name in str(caught.value)


def test_only_its_owner_can_read_it_and_its_log(kind, path):
    store = kind.open(path)
    kind.write(store, "a")
    reader = sqlite3.connect(path)  # so that the log stays
    reader.execute("SELECT * FROM sqlite_master").fetchall()
    kind.write(store, "b")
    modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir() if file.is_file()}
    reader.close()
    assert modes == {0o600}


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.open.__name__)
def test_readers_do_not_wait_for_a_writer(kind, path):
    store = kind.open(path)
    kind.write(store, "a")
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert kind.read(store) == ["a"]
    writer.close()


def test_processes_that_create_it_at_the_same_time_share_it(kind, path):
    forking = multiprocessing.get_context("fork")
    for number in range(10):
        shared = path.with_name(f"{number}.db")
        start = forking.Barrier(4)

        def work(name, shared=shared, start=start):
            start.wait()
            kind.write(kind.open(shared), name)

        children = [forking.Process(target=work, args=(name,)) for name in "abcd"]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0, 0, 0]
        assert {*kind.read(kind.open(shared))} == {*"abcd"}


def test_a_file_that_is_no_database_is_left_alone(kind, path):
    path.write_bytes(b"This is no database. " * 100)
    refused(kind, path, "file is not a database")
    assert path.read_bytes() == b"This is no database. " * 100


@pytest.mark.parametrize("made_by", ["a newer version", "another program", "a cache"])
def test_a_file_of_another_version_or_program_is_left_alone(kind, path, made_by):
    if made_by == "a newer version":
        kind.write(kind.open(path), "a")
    elif made_by == "a cache":
        SQLiteCache(path).put("a", "1")
    with sqlite3.connect(path) as db:
        if made_by == "a newer version":
            db.execute("PRAGMA user_version = 99")
        elif made_by == "another program":
            db.execute("CREATE TABLE turns (session, number, turn)")
    db.close()
    before = path.read_bytes()
    found = {"a newer version": "found .* version 99"}.get(made_by, "found another program's file")
    refused(kind, path, f"expected .* of version 1, {found}|expected .* version 1, {found}")
    assert path.read_bytes() == before


def test_a_path_that_cannot_be_created_is_an_error(kind, tmp_path):
    with pytest.raises(kind.error, match=r"missing/a\.db: "):
        kind.write(kind.open(tmp_path / "missing" / "a.db"), "a")


@pytest.mark.parametrize("wrong", ["", ":memory:", 5])
def test_a_wrong_path_is_refused(kind, wrong):
    with pytest.raises(OptionError, match=f"{kind.open.__name__}: expected the path of a file"):
        kind.open(wrong)
