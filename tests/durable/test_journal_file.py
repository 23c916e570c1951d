"""The file of `SQLiteJournal`: who may read it, and what happens if it cannot be used."""

import multiprocessing
import os
import sqlite3
import stat
import tempfile
from pathlib import Path

import pytest
from tests.durable.journaling import START, change, chat, keys, paused, stored
from tests.small_disk import on_small_disk, python

from treadle.durable import SQLiteJournal
from treadle.errors import JournalError
from treadle.tools import approve

__all__ = ["on_small_disk"]


@pytest.fixture
def journal(path):
    """A journal with a run that was interrupted, and one that waits."""
    journal = SQLiteJournal(path)
    stored(journal, "r", *(chat(number, "x" * 5_000) for number in range(3)))
    stored(journal, "waits", outcome=paused("a@1"))
    return journal


def everything(journal):
    """Each way to use a journal."""
    return (
        lambda: journal.open("r", START),
        lambda: journal.open("new", START),
        journal.runs,
        lambda: journal.run("r"),
        lambda: journal.entries("r"),
        lambda: journal.decide("waits", {"a@1": approve}),
        lambda: journal.steer("r", "Hi"),
        lambda: journal.cancel("r"),
        lambda: journal.delete("r"),
    )


class TestFile:
    def test_only_its_owner_can_read_it_its_log_and_the_large_contents(self, path):
        journal = SQLiteJournal(path, max_inline=100)
        run = journal.open("r", START)
        run.add([chat(1, "x" * 200)])
        files = [one for one in path.parent.glob("**/*") if one.is_file()]
        assert len(files) == 4
        assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}
        folder = path.parent / "journal.db-files"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        run.close()

    def test_it_is_closed_when_no_run_is_driven(self, journal, path):
        first, second = journal.open("r", None), journal.open("new", START)
        first.close()
        second.add([chat(1)])
        assert path.with_name("journal.db-wal").exists()
        second.close()
        assert not path.with_name("journal.db-wal").exists()

    @pytest.mark.parametrize(("fsync", "expected"), [(True, 2), (False, 1)])
    def test_writes_wait_for_the_disk_if_they_shall(self, path, fsync, expected):
        journal = SQLiteJournal(path, fsync=fsync)
        with journal._file.writing("try it") as db:
            assert db.execute("PRAGMA synchronous").fetchone() == (expected,)

    def test_one_that_is_deleted_or_replaced_while_a_run_is_driven_is_noticed(self, journal, path):
        run = journal.open("r", None)
        path.unlink()
        with pytest.raises(JournalError, match="the file was deleted or replaced while a run was"):
            run.add([chat(7)])
        path.write_bytes(b"")
        with pytest.raises(JournalError, match="the file was deleted or replaced while a run was"):
            run.messages()
        run.close()


class TestUnusable:
    """Each error is a `JournalError` that names the file and what to do; nothing is changed."""

    def test_a_damaged_file_is_an_error(self, journal, path):
        content = bytearray(path.read_bytes())
        content[8192:] = b"\xff" * (len(content) - 8192)
        path.write_bytes(content)
        for act in (lambda: journal.open("r", None), lambda: journal.entries("r")):
            with pytest.raises(
                JournalError, match=r"journal.db: could not .*; it is damaged; rest"
            ):
                act()

    def test_a_folder_is_an_error(self, tmp_path):
        for act in everything(SQLiteJournal(tmp_path)):
            with pytest.raises(
                JournalError, match=r"could not .*unable to open .*; the folder must"
            ):
                act()

    def test_a_file_that_stays_locked_is_an_error_and_the_run_goes_on(self, journal, path):
        run = journal.open("r", None)
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        with journal._file.connection() as db:
            db.execute("PRAGMA busy_timeout = 50")
        with pytest.raises(
            JournalError, match=r"store outcomes of run 'r': .*locked; another"
        ) as e:
            run.add([chat(7)])
        assert e.value.run_id == "r"
        writer.execute("COMMIT")
        writer.close()
        run.add([chat(8)])
        run.close()
        assert keys(journal.entries("r"))[-1] == "8"

    @pytest.mark.parametrize("body", [b'{"path": []}', b'["x"]', b'{"path": "x", "effect": 1}'])
    def test_a_stored_outcome_that_cannot_be_read_is_an_error(self, journal, path, body):
        change(path, "UPDATE entries SET body = ? WHERE number = 1", body)
        for act in (lambda: journal.open("r", None), lambda: journal.entries("r")):
            with pytest.raises(JournalError, match="could not read run 'r': outcome 2 of its log"):
                act()
        assert journal.run("r").driver is None  # the lease was given up


FULL = """
import sys
from tests.durable.journaling import OK, START, chat, keys
from treadle.durable import SQLiteJournal
from treadle.errors import JournalError

journal = SQLiteJournal(sys.argv[1], max_inline=int(sys.argv[3]))
run = journal.open("r", START)
added = []
try:
    for number in range(1_000):
        run.add([chat(number, "x" * 20_000)])
        added.append(str(number))
except JournalError as error:
    print(error)
assert 3 < len(added) < 100, added
assert keys(journal.entries("r")) == added, (keys(journal.entries("r")), added)
filler = open(sys.argv[2], "rb+")
filler.truncate(0)
run.add([chat(1_000, "x" * 20_000)])
run.finish(OK)
run.close()
run = SQLiteJournal(sys.argv[1]).open("r", None)
assert keys(run.log) == [*added, "1000"]
assert run.outcome == OK
run.close()
print("room again")
"""

CLOSED = """
import sys
from tests.durable.journaling import START, chat, keys
from treadle.durable import SQLiteJournal
from treadle.errors import JournalError

journal = SQLiteJournal(sys.argv[1])
run = journal.open("r", START)
number = 0
try:
    while True:
        run.add([chat(number, "x" * 20_000)])
        number += 1
except JournalError as error:
    pass
run.close()
open(sys.argv[2], "rb+").truncate(0)
run = journal.open("r", None)
print(len(run.log) - 1 == number > 3)
run.close()
"""

READ_ONLY = """
import sys
from tests.durable.journaling import START
from tests.durable.test_journal_file import everything
from treadle.durable import SQLiteJournal
from treadle.errors import JournalError

for act in everything(SQLiteJournal(sys.argv[1])):
    try:
        act()
    except JournalError as error:
        print(error)
"""


@pytest.mark.parametrize("max_inline", [1_000_000, 1_000], ids=["in the file", "in files"])
def test_a_full_disk_loses_nothing_and_the_run_goes_on(on_small_disk, max_inline):
    program = python(FULL, "disk/a.db", "disk/filler", str(max_inline))
    error, room = on_small_disk(f"head -c 1000000 /dev/zero > disk/filler\n{program}")
    assert "/disk/a.db" in error
    assert "could not store" in error
    assert "full" in error or "No space left on device" in error
    assert room == "room again"


def test_a_run_that_is_closed_on_a_full_disk_can_be_opened_again(on_small_disk):
    program = python(CLOSED, "disk/a.db", "disk/filler")
    assert on_small_disk(f"head -c 1000000 /dev/zero > disk/filler\n{program}") == ["True"]


def test_a_read_only_disk_is_an_error(on_small_disk):
    create = (
        "from tests.durable.journaling import stored; from treadle.durable import SQLiteJournal;"
        'stored(SQLiteJournal("disk/a.db"), "r")'
    )
    commands = f"{python(create)}\nmount -o remount,ro disk\n{python(READ_ONLY, 'disk/a.db')}"
    lines = on_small_disk(commands)
    assert len(lines) == 9
    assert all("/disk/a.db: could not " in line for line in lines)
    assert all("process must be able to write" in line for line in lines)


@pytest.mark.parametrize("what", ["journal.db", "."], ids=["file", "folder"])
def test_a_file_or_a_folder_that_may_only_be_read_is_an_error(what):
    """Root may write everything, so another user tries it, who may not enter the folders of pytest."""
    forking = multiprocessing.get_context("fork")
    answers = forking.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.db")
        journal = SQLiteJournal(path)
        stored(journal, "r", chat(1))
        path.chmod(0o644)
        path.parent.chmod(0o755)
        (path.parent / what).chmod(0o555)

        def work():
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            for act in everything(journal)[:2]:
                try:
                    act().close()
                except JournalError as error:
                    answers.put(str(error))

        child = forking.Process(target=work)
        child.start()
        child.join()
        path.parent.chmod(0o755)
        assert child.exitcode == 0
        for _ in range(2):
            answer = answers.get()
            assert answer.startswith(f"{path}: could not ")
            assert "the process must be able to write" in answer
        assert keys(journal.entries("r")) == ["1"]
