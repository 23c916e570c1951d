"""What `SQLiteJournal` stores, and what it returns."""

import concurrent.futures
import contextlib
import multiprocessing
import sqlite3
import threading

import pytest
from tests.durable.journaling import (
    OK,
    START,
    chat,
    keys,
    paused,
    pay,
    stored,
    wait_until,
    waiting,
)

from treadle import OptionError
from treadle.durable import SQLiteJournal
from treadle.effects import Cancelled
from treadle.errors import JournalError, LeaseLostError, RunBusyError
from treadle.messages import Response
from treadle.recording.log import RESUMED, Entry
from treadle.tools import approve, deny, edit


@pytest.fixture
def journal(path):
    return SQLiteJournal(path, fsync=False)


class TestRun:
    def test_a_new_run_starts_from_what_is_given_with_an_empty_log(self, journal):
        run = journal.open("r", START)
        assert (run.start, run.log, run.outcome, run.decisions) == (START, [], None, {})
        run.close()

    def test_what_was_added_is_there_in_order_after_the_process_has_ended(self, journal, path):
        added = [
            chat(1, Response("Hi \ud83d")),
            pay("a"),
            Entry((3, 0), 1, "call", "execute_tool", "b", error=ValueError("no"), asked="x"),
            Entry((), 4, "parallel", raised_in=0),
        ]
        run = journal.open("r", START)
        run.add(added[:1])
        run.add(added[1:])
        run.close()
        found = SQLiteJournal(path).open("r", {"messages": "ignored"})
        assert found.start == START
        assert [entry.as_json() for entry in found.log[:-1]] == [one.as_json() for one in added]
        found.close()

    def test_the_log_says_that_another_process_has_taken_the_run_up(self, journal):
        stored(journal, "r", chat(1))
        before = journal.run("r").updated_at
        run = journal.open("r", None)
        assert keys(run.log) == ["1", RESUMED]
        assert run.log[-1].at >= before
        run.add([chat(2)])
        run.close()
        assert keys(journal.entries("r")) == ["1", RESUMED, "2"]

    def test_entries_of_an_interruption_are_gone_when_the_run_is_taken_up(self, journal):
        branch, around = (2, 0), Entry((), 2, "parallel")
        stored(
            journal,
            "r",
            chat(1),
            pay("a", path=branch),
            Entry(branch, 2, "sleep", error=Cancelled()),
            Entry(branch, 3, "call", "cleanup", "lost"),
        )
        run = journal.open("r", None)
        assert keys(run.log) == ["1", "a", RESUMED]
        run.add([Entry(branch, 2, "sleep"), around])
        run.close()
        again = journal.open("r", None)
        assert keys(again.log) == ["1", "a", RESUMED, "sleep", "parallel", RESUMED]
        again.close()

    def test_a_run_that_has_ended_has_its_result_and_is_read_by_several_at_once(self, journal):
        stored(journal, "r", chat(1), outcome=OK)
        first, second = journal.open("r", START), journal.open("r", None)
        for run in (first, second):
            assert (run.outcome, keys(run.log)) == (OK, ["1"])
            with pytest.raises(JournalError, match="run 'r': it is closed"):
                run.add([chat(2)])
            run.close()
        assert journal.run("r").driver is None

    def test_a_run_that_does_not_exist_is_not_made_without_a_start(self, journal):
        stored(journal, "report-7")
        with pytest.raises(JournalError, match=r"no run 'reprot-7'; did you mean 'report-7'\?"):
            journal.open("reprot-7", None)
        assert [run.id for run in journal.runs()] == ["report-7"]

    @pytest.mark.parametrize("run_id", ["", "a\n", 5, None, "\ud800"])
    def test_an_invalid_id_is_refused(self, journal, run_id):
        with pytest.raises(OptionError, match="run_id: expected a text of printable characters"):
            journal.open(run_id, START)

    def test_an_outcome_that_is_no_data_is_refused_and_nothing_of_it_is_stored(self, journal):
        run = journal.open("r", START)
        with pytest.raises(JournalError, match="run 'r': the outcome of chat '2': expected data"):
            run.add([chat(1), chat(2, object())])
        run.add([chat(3)])
        run.close()
        assert keys(journal.entries("r")) == ["3"]

    def test_closing_again_does_nothing_and_nothing_is_written_after_it(self, journal):
        run = journal.open("r", START)
        run.close()
        again = journal.open("r", None)
        run.close()
        again.add([chat(1)])
        for act in (lambda: run.add([chat(2)]), lambda: run.finish(OK)):
            with pytest.raises(JournalError, match="run 'r': it is closed"):
                act()
        again.close()
        assert keys(journal.entries("r")) == [RESUMED, "1"]

    def test_a_run_outlasts_a_change_of_the_working_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        journal = SQLiteJournal("journal.db")
        run = journal.open("r", START)
        (tmp_path / "folder").mkdir()
        monkeypatch.chdir("folder")
        run.add([chat(1)])
        run.close()
        assert keys(journal.entries("r")) == ["1"]


class TestParts:
    def test_a_resumed_run_starts_a_part_with_an_empty_log(self, journal):
        stored(journal, "r", chat(1), outcome=paused("a@1"))
        journal.decide("r", {"a@1": approve})
        run = journal.open("r", None)
        assert run.outcome == paused("a@1")
        assert keys(run.log) == ["1"]
        second = {"paused": {}, "decisions": dict(run.decisions)}
        run.begin_part(second)
        assert (run.start, run.log, run.outcome, run.decisions) == (second, [], None, {})
        run.add([pay("a")])
        run.close()
        again = journal.open("r", None)
        assert (again.start, keys(again.log), again.decisions) == (second, ["a", RESUMED], {})
        again.finish(OK)
        again.close()
        assert keys(journal.part("r", 1).log) == ["1"]
        assert journal.part("r", 1).outcome == paused("a@1")
        assert [*journal.part("r", 1).decisions] == ["a@1"]
        assert (journal.part("r").number, journal.part("r").outcome) == (2, OK)
        with pytest.raises(JournalError, match="run 'r' has the parts 1 to 2, not 3"):
            journal.part("r", 3)


class TestDecisions:
    def test_those_of_each_kind_arrive(self, journal):
        stored(journal, "r", outcome=paused("a@1", "b@1", "c@1"))
        journal.decide("r", {"a@1": approve, "b@1": deny("Why?")})
        journal.decide("r", {"c@1": edit({"n": 2})})
        run = journal.open("r", None)
        assert run.decisions == {
            "a@1": {"runs": True, "reason": "", "arguments": None},
            "b@1": {"runs": False, "reason": "Why?", "arguments": None},
            "c@1": {"runs": True, "reason": "", "arguments": {"n": 2}},
        }
        run.close()

    def test_a_later_one_replaces_an_earlier_one(self, journal):
        stored(journal, "r", outcome=paused("a@1"))
        journal.decide("r", {"a@1": approve})
        journal.decide("r", {"a@1": deny("No")})
        assert journal.part("r").decisions["a@1"]["reason"] == "No"

    def test_one_on_a_call_that_does_not_wait_is_refused_and_none_is_stored(self, journal):
        stored(journal, "r", outcome=paused("a@1"))
        with pytest.raises(
            OptionError, match=r"no call 'a@2' of run 'r' waits; did you mean 'a@1'"
        ):
            journal.decide("r", {"a@1": approve, "a@2": approve})
        assert journal.part("r").decisions == {}

    def test_what_is_no_decision_is_refused(self, journal):
        stored(journal, "r", outcome=paused("a@1"))
        with pytest.raises(OptionError, match=r"'a@1': expected approve, .* got bool"):
            journal.decide("r", {"a@1": True})

    def test_a_run_that_does_not_wait_is_refused(self, journal):
        stored(journal, "r")
        with pytest.raises(OptionError, match="run 'r' does not wait: it is 'running'"):
            journal.decide("r", {"a@1": approve})

    def test_they_may_follow_the_pause_at_once(self, journal, path):
        run = journal.open("r", START)
        run.finish(paused("a@1"))
        with contextlib.closing(sqlite3.connect(path)) as db:  # as another process sees it
            assert db.execute("SELECT owner FROM runs").fetchall() == [(None,)]
        journal.decide("r", {"a@1": approve})
        run.close()
        assert [*journal.part("r").decisions] == ["a@1"]

    def test_none_is_lost_while_the_run_is_resumed(self, journal):
        stored(journal, "r", outcome=paused("a@1"))
        run = journal.open("r", None)  # it has read the decisions
        with pytest.raises(RunBusyError, match="run 'r' is driven by another task"):
            journal.decide("r", {"a@1": approve})
        run.close()
        journal.decide("r", {"a@1": approve})


class TestMessages:
    def test_they_arrive_in_order_until_they_are_taken(self, journal, path):
        run = journal.open("r", START)
        sender = SQLiteJournal(path)
        assert sender.steer("r", "first")
        assert sender.steer("r", {"role": "user", "content": "second"})
        (one, first), (_, second) = run.messages()
        assert (first, second) == (
            {"role": "user", "content": "first"},
            {"role": "user", "content": "second"},
        )
        run.add([Entry((), 1, "call", "steer", "1", outcome=[first])], [one])
        assert [message for _, message in run.messages()] == [second]
        run.close()

    def test_one_whose_entry_is_not_stored_is_taken_again(self, journal):
        run = journal.open("r", START)
        journal.steer("r", "first")
        taken = [number for number, _ in run.messages()]
        with pytest.raises(JournalError):
            run.add([chat(1, object())], taken)
        run.close()
        again = journal.open("r", None)
        assert [number for number, _ in again.messages()] == taken
        again.close()

    def test_those_of_another_run_are_not_taken(self, journal):
        run, other = journal.open("r", START), journal.open("other", START)
        journal.steer("other", "Hi")
        assert run.messages() == []
        run.add([], [number for number, _ in other.messages()])
        assert len(other.messages()) == 1
        run.close()
        other.close()

    def test_a_run_that_has_ended_receives_none(self, journal):
        stored(journal, "r", outcome=OK)
        assert journal.steer("r", "Hi") is False

    @pytest.mark.parametrize("message", ["", 5, {"role": "assistant", "content": "Hi"}])
    def test_what_is_no_user_message_is_refused(self, journal, message):
        stored(journal, "r")
        with pytest.raises(OptionError, match="steer: expected text or a user message"):
            journal.steer("r", message)


class TestCancel:
    def test_the_process_that_drives_the_run_is_told(self, journal, path):
        run, told = journal.open("r", START), threading.Event()
        run.on_stop(told.set)
        assert SQLiteJournal(path).cancel("r")
        assert told.wait(60)
        assert journal.run("r").is_cancelled
        run.close()

    def test_it_is_told_at_the_next_outcome(self, path):
        journal = SQLiteJournal(path, lease_seconds=36_000)
        run, told = journal.open("r", START), []
        run.on_stop(lambda: told.append(1))
        journal.cancel("r")
        run.add([chat(1)])
        assert told == [1]
        run.close()

    @pytest.mark.parametrize("outcome", [None, paused("a@1")], ids=["running", "paused"])
    def test_a_run_that_nobody_drives_is_told_when_it_is_opened(self, journal, outcome):
        stored(journal, "r", outcome=outcome)
        assert journal.cancel("r")
        run, told = journal.open("r", None), []
        run.on_stop(lambda: told.append(1))
        assert told == [1]
        run.close()

    def test_a_run_that_has_ended_is_not_cancelled(self, journal):
        stored(journal, "r", outcome=OK)
        assert journal.cancel("r") is False
        assert not journal.run("r").is_cancelled

    def test_a_function_that_raises_does_not_keep_others_from_being_told(self, journal):
        run, other, told = journal.open("r", START), journal.open("other", START), []
        run.on_stop(lambda: 1 / 0)
        other.on_stop(lambda: told.append(1))
        journal.cancel("r")
        journal.cancel("other")
        wait_until(lambda: told)
        run.close()
        other.close()


class TestList:
    def test_each_run_is_described(self, journal):
        stored(journal, "old", chat(1), outcome=OK)
        stored(journal, "waits", outcome=paused("a@1"))
        stored(journal, "broken", outcome={**OK, "status": "error", "stop_reason": "llm_error"})
        run = journal.open("now", START)
        run.add([chat(1), chat(2), chat(7, path=(1, 0, 2, 0))])
        now, broken, waits, old = journal.runs()
        run.close()
        assert [one.id for one in (now, broken, waits, old)] == ["now", "broken", "waits", "old"]
        assert [one.status for one in (now, broken, waits, old)] == [
            "running",
            "error",
            "paused",
            "ok",
        ]
        assert [one.stop_reason for one in (now, broken, old)] == ["", "llm_error", "answered"]
        assert (now.iterations, old.iterations, now.part) == (2, 2, 1)
        assert waits.waiting == waiting("a@1")
        assert (old.waiting, old.driver, now.agent_name) == ((), None, "agent")
        assert "another task of this process" in str(now.driver)
        assert now.created_at <= now.updated_at <= now.driver.until

    def test_some_are_listed(self, journal):
        for name in "abc":
            stored(journal, name)
        stored(journal, "d", outcome=OK)
        assert [run.id for run in journal.runs(limit=2)] == ["d", "c"]
        assert [run.id for run in journal.runs("running", limit=2)] == ["c", "b"]
        assert journal.runs("paused") == journal.runs(limit=0) == []

    def test_wrong_options_are_refused(self, journal):
        with pytest.raises(OptionError, match=r"status: expected 'running', 'paused', .* got 'x'"):
            journal.runs("x")
        with pytest.raises(OptionError, match="limit: expected 0 or more, got -1"):
            journal.runs(limit=-1)

    def test_a_run_that_does_not_exist_is_an_error_with_a_hint_everywhere(self, journal, path):
        def everything(run_id):
            return (
                lambda: journal.run(run_id),
                lambda: journal.part(run_id),
                lambda: journal.entries(run_id),
                lambda: journal.decide(run_id, {}),
                lambda: journal.steer(run_id, "Hi"),
                lambda: journal.cancel(run_id),
                lambda: journal.delete(run_id),
                lambda: journal.open(run_id, None),
            )

        for act in everything("a")[:-1]:
            with pytest.raises(JournalError, match=r"journal.db: there is no run 'a'; there are"):
                act()
        assert not path.exists()
        stored(journal, "report-7")
        for act in everything("report7"):
            with pytest.raises(JournalError, match="there is no run 'report7'; did you mean 're"):
                act()


class TestDelete:
    def test_everything_of_a_run_is_gone_and_overwritten(self, path):
        journal = SQLiteJournal(path, max_inline=1_000)
        secret = "My secret " * 50
        stored(journal, "kept", chat(1, "y" * 2_000))
        run = journal.open("r", START)
        run.add([chat(1, secret), chat(2, secret * 10)])
        journal.steer("r", secret)
        run.close()
        everything = [path, *path.parent.glob("journal.db-files/*")]
        assert len(everything) == 3
        assert any(b"My secret" in one.read_bytes() for one in everything)
        journal.delete("r")
        assert [run.id for run in journal.runs()] == ["kept"]
        left = [one for one in path.parent.glob("**/*") if one.is_file()]
        assert len(left) == 2
        assert not any(b"My secret" in one.read_bytes() for one in left)
        assert len(journal.entries("kept")[0].outcome) == 2_000

    def test_a_run_that_is_driven_is_not_deleted(self, journal):
        run = journal.open("r", START)
        with pytest.raises(RunBusyError, match="run 'r' is driven by another task"):
            journal.delete("r")
        run.add([chat(1)])
        run.close()
        journal.delete("r")

    def test_a_new_run_of_the_same_id_starts_anew(self, journal):
        stored(journal, "r", chat(1))
        journal.delete("r")
        stored(journal, "r")
        assert journal.entries("r") == []


class TestConcurrency:
    def test_threads_store_different_runs_at_the_same_time(self, journal):
        def work(name):
            run = journal.open(name, START)
            for number in range(50):
                run.add([chat(number, name)])
            run.close()

        names = [f"r{number}" for number in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(work, names))
        for name in names:
            assert [(one.key, one.outcome) for one in journal.entries(name)] == [
                (str(number), name) for number in range(50)
            ]

    def test_of_threads_that_open_one_run_one_drives_it(self, journal):
        start = threading.Barrier(8)

        def work(_):
            start.wait()
            try:
                return journal.open("r", START)
            except RunBusyError:
                return None

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            opened = [run for run in pool.map(work, range(8)) if run is not None]
        assert len(opened) == 1
        opened[0].close()

    @pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
    def test_a_fork_does_not_drive_the_runs_of_its_parent_and_may_drive_others(self, journal):
        run = journal.open("r", START)
        forking = multiprocessing.get_context("fork")
        answers = forking.SimpleQueue()

        def work():
            try:
                run.add([chat(1)])
            except LeaseLostError as error:
                answers.put(str(error))
            run.close()  # this is not its run
            try:
                journal.open("r", None)
            except RunBusyError as error:
                answers.put(str(error))
            stored(journal, "of the fork", chat(1))

        child = forking.Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 0
        assert "run 'r': the process that drives it has been forked" in answers.get()
        assert "run 'r' is driven by process" in answers.get()
        run.add([chat(2)])
        run.close()
        assert keys(journal.entries("r")) == ["2"]
        assert keys(journal.entries("of the fork")) == ["1"]
