"""Which process drives a run: leases, processes that end or are suspended, clocks that jump."""

import os
import signal
import sqlite3
import threading

import pytest
from tests.clocks import SetClock
from tests.durable.journaling import (
    OK,
    START,
    change,
    chat,
    held_elsewhere,
    keys,
    other_process,
    stored,
    suspend,
    wait_until,
)

from treadle import OptionError
from treadle.durable import SQLiteJournal
from treadle.errors import LeaseLostError, RunBusyError
from treadle.recording.log import RESUMED


@pytest.fixture
def clock():
    return SetClock(1_000_000.0)


@pytest.fixture
def journal(path, clock):
    return SQLiteJournal(path, fsync=False, clock=clock)


def opened_when_free(journal, run_id):
    """Open a run as soon as no other process drives it."""
    found = []

    def try_it():
        try:
            found.append(journal.open(run_id, None))
        except RunBusyError:
            return False
        return True

    wait_until(try_it)
    return found[0]


class TestProcesses:
    def test_of_two_processes_one_drives_a_run_until_it_gives_the_run_up(self, path):
        journal = SQLiteJournal(path)
        with other_process(path) as other:
            assert other.ask("open r") == "opened 0"
            with pytest.raises(RunBusyError) as caught:
                journal.open("r", START)
            assert f"run 'r' is driven by process {other.pid} on host " in str(caught.value)
            assert "another may take it over after 2" in str(caught.value)
            assert caught.value.run_id == "r"
            assert journal.run("r").driver.pid == other.pid
            assert other.ask("add 1") == "added"
            assert other.ask("close") == "closed"
            run = journal.open("r", START)
            assert keys(run.log) == ["1", RESUMED]
            busy = other.ask("open r")
            assert busy.startswith(f"RunBusyError run 'r' is driven by process {os.getpid()} on ")
            run.close()

    def test_a_killed_process_is_succeeded_at_once(self, path):
        journal = SQLiteJournal(path)
        with other_process(path, lease_seconds=1_000_000) as other:
            other.ask("open r")
            other.ask("add 1")
            other.kill()
            other.wait()
            assert journal.run("r").driver is None
            run = journal.open("r", START)
        assert keys(run.log) == ["1", RESUMED]
        run.close()

    def test_a_process_that_was_suspended_for_longer_than_its_lease_is_fenced_off(self, path):
        journal = SQLiteJournal(path)
        with other_process(path, lease_seconds=0.5) as other:
            assert other.ask("open r") == "opened 0"
            assert other.ask("add 1") == "added"
            suspend(other, path)
            run = opened_when_free(journal, "r")
            run.add([chat(2)])
            other.send_signal(signal.SIGCONT)
            answers = {other.ask("add 3"), other.stdout.readline().strip()}
            lost = f"LeaseLostError run 'r': it was taken over by process {os.getpid()} on host "
            assert "stop" in answers
            assert any(answer.startswith(lost) for answer in answers)
            assert other.ask("add 4").startswith("LeaseLostError")
            assert other.ask("close") == "closed"
            run.add([chat(5)])
            run.close()
        assert keys(journal.entries("r")) == ["1", RESUMED, "2", "5"]

    def test_a_process_that_was_suspended_goes_on_if_nobody_has_taken_its_run(self, path):
        with other_process(path, lease_seconds=0.1) as other:
            other.ask("open r")
            suspend(other, path)
            wait_until(lambda: SQLiteJournal(path).run("r").driver is None)
            other.send_signal(signal.SIGCONT)
            assert other.ask("add 1") == "added"

    def test_an_idle_process_keeps_its_run(self, path):
        with other_process(path, lease_seconds=0.5) as other:
            other.ask("open r")
            journal = SQLiteJournal(path)
            ends = set()
            while len(ends) < 4:  # it was renewed three times
                ends.add(journal.run("r").driver.until)
                with pytest.raises(RunBusyError):
                    journal.open("r", None)
            assert other.ask("add 1") == "added"

    def test_processes_that_take_a_run_in_turn_write_one_log_without_gaps(self, path):
        """Each takes the run while it is free, and adds the number of the outcomes before."""
        stored(SQLiteJournal(path, fsync=False), "r")
        end = threading.Event()

        def work():
            with other_process(path) as other:
                while not end.is_set():
                    answer = other.ask("open r")
                    if answer.startswith("opened"):
                        other.ask(f"add {answer.split()[1]}")
                        other.ask("close")

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        journal = SQLiteJournal(path)
        wait_until(lambda: len(journal.entries("r")) > 60)
        end.set()
        for thread in threads:
            thread.join()
        log = journal.entries("r")
        assert [entry.kind for entry in log[::2]] == [RESUMED] * len(log[::2])
        assert keys(log[1::2]) == [str(number) for number in range(1, len(log), 2)]


class TestLeases:
    def test_one_of_another_machine_lasts_until_its_end(self, journal, path, clock):
        run = journal.open("r", START)
        held_elsewhere(path, "r")
        clock.now += 29
        with pytest.raises(RunBusyError, match=r"process 1 on host elsewhere since 1970-01-12"):
            journal.open("r", None)
        clock.now += 1
        journal.open("r", None).close()
        run.close()

    def test_one_of_an_owner_that_cannot_be_read_lasts_until_its_end(self, journal, path, clock):
        run = journal.open("r", START)
        change(path, "UPDATE runs SET owner = 'x'")
        with pytest.raises(RunBusyError, match="run 'r' is driven by an unknown process since"):
            journal.open("r", None)
        clock.now += 30
        journal.open("r", None).close()
        run.close()

    def test_each_owner_has_its_own_token_and_only_the_last_one_writes(self, journal, clock):
        owners = []
        for _ in range(3):
            owners.append(journal.open("r", START))
            clock.now += 31
        for owner in owners[:-1]:
            with pytest.raises(LeaseLostError, match="run 'r': it was taken over; this process"):
                owner.add([chat(1)])
            with pytest.raises(LeaseLostError):
                owner.finish(OK)
            with pytest.raises(LeaseLostError):
                owner.begin_part(START)
        owners[-1].add([chat(2)])
        for owner in owners:
            owner.close()
        assert keys(journal.entries("r")) == [RESUMED, RESUMED, "2"]
        assert journal.run("r").status == "running"

    def test_a_lost_run_is_told_once(self, journal, clock):
        first, told = journal.open("r", START), []
        first.on_stop(lambda: told.append(1))
        clock.now += 31
        second = journal.open("r", None)
        for _ in range(2):
            with pytest.raises(LeaseLostError):
                first.add([chat(1)])
        assert told == [1]
        first.close()
        with pytest.raises(RunBusyError):  # the end of the first changes nothing
            journal.open("r", None)
        second.close()

    def test_one_that_was_deleted_after_its_lease_says_so(self, journal, clock):
        run = journal.open("r", START)
        clock.now += 31
        journal.delete("r")
        with pytest.raises(LeaseLostError, match="run 'r': it was deleted, since this process"):
            run.add([chat(1)])
        run.close()
        assert journal.runs() == []

    def test_each_outcome_renews_it(self, journal, clock):
        run = journal.open("r", START)
        for number in range(4):
            clock.now += 20
            run.add([chat(number)])
        assert journal.run("r").driver.until == clock.now + 30
        run.close()

    def test_one_that_could_not_be_given_up_does_not_keep_this_process_from_the_run(
        self, journal, path, caplog
    ):
        run = journal.open("r", START)
        with journal._file.connection() as db:
            db.execute("PRAGMA busy_timeout = 50")
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        run.close()
        writer.close()
        assert "the lease of run 'r' could not be given up" in caplog.text
        journal.open("r", None).close()

    def test_one_is_not_renewed_after_the_end_of_its_run(self, journal, caplog):
        run, told = journal.open("r", START), []
        run.on_stop(lambda: told.append(1))
        run.close()
        journal._beat()  # of the thread, which may be late
        other = journal.open("r", None)
        run.learn(None)
        assert told == []
        other.close()
        assert caplog.text == ""

    @pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "30", None])
    def test_a_wrong_duration_is_refused(self, seconds):
        with pytest.raises(OptionError, match="lease_seconds: expected more than 0, got"):
            SQLiteJournal("a.db", lease_seconds=seconds)


class TestClocks:
    def test_one_that_is_put_forward_may_cost_a_process_its_run_and_no_outcome(
        self, journal, path, clock
    ):
        run = journal.open("r", START)
        run.add([chat(1)])
        ahead = SQLiteJournal(path, clock=lambda: clock.now + 3_600)
        other = ahead.open("r", None)
        assert keys(other.log) == ["1", RESUMED]
        with pytest.raises(LeaseLostError):
            run.add([chat(2)])
        other.add([chat(3)])
        run.close()
        other.close()
        assert keys(journal.entries("r")) == ["1", RESUMED, "3"]

    def test_one_that_is_put_back_does_not_block_the_runs_of_ended_processes(
        self, journal, path, clock
    ):
        clock.now += 1_000_000
        run = journal.open("r", START)
        held_elsewhere(path, "r")
        clock.now -= 1_000_000
        assert journal.run("r").driver is None
        journal.open("r", None).close()
        run.close()

    def test_one_that_is_put_back_a_little_ends_no_lease(self, journal, path, clock):
        run = journal.open("r", START)
        clock.now -= 20
        with pytest.raises(RunBusyError):
            journal.open("r", None)
        run.close()

    @pytest.mark.parametrize("jump", [-3_600, -1, 11, 3_600])
    def test_a_lease_is_renewed_after_a_jump(self, journal, path, clock, jump):
        run = journal.open("r", START)
        run.add([chat(1)])
        clock.now += jump
        wait_until(lambda: journal.run("r").driver is not None)
        wait_until(lambda: journal.run("r").driver.until == clock.now + 30)
        run.close()

    def test_the_log_keeps_its_order(self, journal, clock):
        for number in range(4):
            clock.now -= 1_000
            stored(journal, "r", chat(number))
        expected = ["0", RESUMED, "1", RESUMED, "2", RESUMED, "3"]
        assert keys(journal.entries("r")) == expected
