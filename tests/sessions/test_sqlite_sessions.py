"""The file of `SQLiteSessions`: who may read it, and what happens if it cannot be used."""

import sqlite3
import threading

import pytest
from tests.sessions.conversing import answer, run, turn, user
from tests.small_disk import on_small_disk, python

from treadle import OptionError
from treadle.sessions import SessionError, SQLiteSessions

__all__ = ["on_small_disk"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sessions.db"


@pytest.fixture
def store(path):
    """A store with a session of two turns."""
    store = SQLiteSessions(path)
    for number in range(2):
        run(store.session("alice"), user(f"{number}"), answer("x" * 5_000))
    return store


def pragma(path, name):
    db = sqlite3.connect(path)
    try:
        return db.execute(f"PRAGMA {name}").fetchone()[0]
    finally:
        db.close()


def everything(store):
    """Each way to use a store."""
    return (
        lambda: store.append("bob", 0, [turn(0, user())], {}),
        lambda: store.info("alice"),
        lambda: store.turns("alice"),
        lambda: store.attachments("alice"),
        store.sessions,
        lambda: store.delete("alice"),
        lambda: store.prune(max_sessions=0),
        lambda: store.session("alice").load(),
    )


class TestFile:
    def test_reading_does_not_create_it(self, path):
        store = SQLiteSessions(path)
        assert (store.info("a"), store.turns("a"), store.attachments("a")) == (None, [], {})
        assert (store.sessions(), store.delete("a"), store.prune(max_sessions=0)) == ([], False, [])
        assert not path.exists()

    def test_a_file_without_the_log_waits_for_another_writer_and_gets_the_log(self, store, path):
        assert pragma(path, "journal_mode = DELETE") == "delete"  # as if its creator was killed
        writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        writer.execute("BEGIN IMMEDIATE")
        end = threading.Timer(0.3, writer.close)
        end.start()
        run(store.session("alice"), user())
        end.join()
        run(store.session("alice"), user())
        assert store.info("alice").version == 4
        assert pragma(path, "journal_mode") == "wal"

    def test_what_is_deleted_is_overwritten(self, path):
        store = SQLiteSessions(path)
        run(store.session("alice"), user("My secret " * 1_000))
        run(store.session("bob"), user())
        assert b"My secret" in path.read_bytes()
        store.delete("alice")
        assert b"My secret" not in path.read_bytes()

    @pytest.mark.parametrize(
        ("args", "options"),
        [(("a",), {"timeout": -1})],
    )
    def test_wrong_options_are_refused(self, args, options):
        with pytest.raises(OptionError, match="SQLiteSessions: "):
            SQLiteSessions(*args, **options)


class TestUnusable:
    """Each error is a `SessionError` that names the file and what was tried; nothing is changed."""

    def test_a_damaged_file_is_an_error(self, store, path):
        content = bytearray(path.read_bytes())
        content[8192:] = b"\xff" * (len(content) - 8192)
        path.write_bytes(content)
        with pytest.raises(
            SessionError, match=r"could not read turns of session 'alice': .*malformed"
        ):
            store.turns("alice")
        with pytest.raises(SessionError, match="could not store a turn of session 'alice'"):
            store.append("alice", 2, [turn(4, user())], {})

    def test_a_file_that_stays_locked_is_an_error(self, store, path):
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        impatient = SQLiteSessions(path, timeout=0.05)
        for act in (
            lambda: run(impatient.session("alice"), user()),
            lambda: impatient.delete("alice"),
            lambda: run(impatient.session("bob"), user()),
        ):
            with pytest.raises(
                SessionError, match=r"sessions.db: could not .*: database is locked"
            ):
                act()
        writer.execute("COMMIT")
        writer.close()
        run(impatient.session("alice"), user())
        assert impatient.info("alice").version == 3

    def test_a_folder_is_an_error(self, tmp_path):
        for act in everything(SQLiteSessions(tmp_path)):
            with pytest.raises(SessionError, match=r"could not .*: unable to open database file"):
                act()

    def test_a_stored_turn_that_cannot_be_read_is_an_error(self, store, path):
        db = sqlite3.connect(path)
        with db:
            db.execute("UPDATE turns SET turn = '{\"start\": 0}'")
        db.close()
        with pytest.raises(SessionError, match="a stored turn cannot be read"):
            store.turns("alice")


FULL = """
import sys
from tests.sessions.conversing import run, user, answer
from treadle.sessions import SessionError, SQLiteSessions

store = SQLiteSessions(sys.argv[1])
session = store.session("alice")
stored = []
try:
    for number in range(1_000):
        run(session, user(f"{number}"), answer("x" * 20_000))
        stored.append(number)
except SessionError as error:
    print(error)
found = [int(message["content"]) for message in session.messages()[::2]]
assert found == stored and len(stored) > 3, (found, stored)
assert session.info().version == len(stored)
filler = open(sys.argv[2], "rb+")
filler.truncate(0)
run(session, user("more"), answer())
assert session.info().version == len(stored) + 1
print("room again")
"""

READ_ONLY = """
import sys
from tests.sessions.conversing import run, user, turn
from treadle.sessions import SessionError, SQLiteSessions

store = SQLiteSessions(sys.argv[1])
for act in (
    lambda: store.append("alice", 1, [turn(1, user())], {}),
    lambda: store.delete("alice"),
    lambda: store.append("bob", 0, [turn(0, user())], {}),
):
    try:
        act()
    except SessionError as error:
        print(error)
"""


def test_a_full_disk_loses_nothing_and_the_session_can_be_used_again(on_small_disk):
    commands = (
        f"head -c 1000000 /dev/zero > disk/filler\n{python(FULL, 'disk/a.db', 'disk/filler')}"
    )
    error, room = on_small_disk(commands)
    assert error.startswith("disk/a.db: could not store a turn of session 'alice': ")
    assert error.endswith(("database or disk is full", "disk I/O error"))
    assert room == "room again"


def test_a_read_only_disk_is_an_error(on_small_disk):
    create = (
        "from tests.sessions.conversing import run, user;"
        'from treadle.sessions import SQLiteSessions; run(SQLiteSessions("disk/a.db").session("alice"), user())'
    )
    commands = f"{python(create)}\nmount -o remount,ro disk\n{python(READ_ONLY, 'disk/a.db')}"
    lines = on_small_disk(commands)
    assert len(lines) == 3
    assert all(line.startswith("disk/a.db: could not ") for line in lines)
