"""Runs with an `SQLiteJournal`: interrupted, shared by processes, steered, decided and cancelled from outside."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys

import pytest
from cryptography.fernet import Fernet
from tests.durable.journaling import suspend, wait_until
from tests.programs import run_program
from tests.small_disk import on_small_disk, python

from treadle import Loop, Ok, Paused, tool
from treadle.durable import EncryptedPayloads, SQLiteJournal
from treadle.recording import read_recording
from treadle.testing import ScriptedLLM, call, calls, check_history, replay
from treadle.tools import approve, deny

__all__ = ["on_small_disk"]


@pytest.fixture
def journal(path):
    return SQLiteJournal(path)


@tool(idempotent=True)
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def doubling():
    """A model that doubles 1, then 2, and then answers."""
    return ScriptedLLM(calls(call("double", n=1)), calls(call("double", n=2)), "Done.")


KILLED = """
import json
import os
import sys
from pathlib import Path
from treadle import Loop, tool
from treadle.durable import SQLiteJournal
from treadle.testing import call, calls

path, place, ran = sys.argv[1:]


@tool
def pay(n: int) -> str:
    "Pay."
    with Path(ran).open("a") as file:
        file.write(f"{n} ")
    if place == f"pay {n}":
        os._exit(9)
    return f"paid {n}"


def model(messages):
    number = sum(message["role"] == "assistant" for message in messages)
    if place == f"model {number}":
        os._exit(9)
    return calls(call("pay", f"c{number}", n=number)) if number < 3 else "Done."


result = Loop.run_sync("Go", model, tools=[pay], journal=SQLiteJournal(path), run_id="r")
print(json.dumps([message["content"] for message in result.messages if message["role"] == "tool"]))
"""


@pytest.mark.parametrize("place", ["model 0", "pay 0", "model 1", "pay 1", "pay 2", "model 3"])
def test_a_run_whose_process_ends_goes_on_in_the_next_one(path, tmp_path, place):
    def run(place):
        command = [sys.executable, "-c", KILLED, str(path), place, str(tmp_path / "ran")]
        return run_program(command)

    assert run(place).returncode == 9
    stored = SQLiteJournal(path).run("r")
    assert (stored.status, stored.driver) == ("running", None)
    done = run("")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ran").read_text(encoding="utf-8") == "0 1 2 "  # each once
    contents = json.loads(done.stdout)
    for number, content in enumerate(contents):
        if place == f"pay {number}":
            assert content.startswith("Unknown: ")
        else:
            assert content == f"paid {number}"
    assert SQLiteJournal(path).run("r").status == "ok"
    again = run("model 0")  # the result is returned at once
    assert again.stdout == done.stdout


SLOW = """
import sys
import time
from treadle import Loop, tool
from treadle.durable import LeaseLostError, SQLiteJournal
from treadle.testing import ScriptedLLM, call, calls


@tool
def slow() -> str:
    "Return after the process has been suspended."
    print("started", flush=True)
    sys.stdin.readline()
    return "late"


model = ScriptedLLM(calls(call("slow")), "The first process has done it.")
journal = SQLiteJournal(sys.argv[1], lease_seconds=0.5)
try:
    Loop.run_sync("Go", model, tools=[slow], journal=journal, run_id="r")
except LeaseLostError as error:
    print(error)
"""


def test_the_late_results_of_a_process_that_was_suspended_are_refused(journal, path):
    @tool
    def slow() -> str:
        """Return after the process has been suspended."""
        raise AssertionError("it may have taken effect already")

    loop = Loop(llm_send_fn=ScriptedLLM("The second one has."), tools=[slow], journal=journal)
    command = [sys.executable, "-c", SLOW, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout.readline() == "started\n"
        suspend(process, path)
        wait_until(lambda: journal.run("r").driver is None)
        result = loop.run_sync(run_id="r")
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate("go on\n")
    assert "run 'r': it was " in output
    assert "late" not in output
    assert result.unwrap().content == "The second one has."
    assert result.messages[-2]["content"].startswith("Unknown: ")
    assert loop.run_sync(run_id="r") == result


FULL = """
import sys
from treadle import Loop, tool
from treadle.durable import JournalError, SQLiteJournal
from treadle.testing import call, calls

ran = []


@tool
def fetch(n: int) -> str:
    "Fetch something large."
    ran.append(n)
    return str(n) * 20_000


def model(messages):
    number = sum(message["role"] == "assistant" for message in messages)
    return calls(call("fetch", f"c{number}", n=number)) if number < 12 else "Done."


def run():
    journal = SQLiteJournal(sys.argv[1])
    return Loop.run_sync("Go", model, tools=[fetch], journal=journal, run_id="r", max_iterations=99)


try:
    run()
except JournalError as error:
    print(error)
open(sys.argv[2], "rb+").truncate(0)
result = run()
print(result.unwrap().content, ran == list(range(12)))
"""


def test_a_run_goes_on_when_a_full_disk_has_room_again(on_small_disk):
    program = python(FULL, "disk/a.db", "disk/filler")
    error, done = on_small_disk(f"head -c 1750000 /dev/zero > disk/filler\n{program}")
    assert "a.db: could not store outcomes of run" in error
    assert done == "Done. True"


def test_decisions_arrive_from_another_process(journal, path):
    ran = []

    @tool(requires_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        ran.append(n)
        return f"paid {n}"

    def run():
        model = ScriptedLLM(calls(call("pay", "a", n=1), call("pay", "b", n=2)), "Done.")
        return Loop.run_sync("Go", model, tools=[pay], journal=journal, run_id="r")

    paused = run()
    assert isinstance(paused, Paused)
    assert run() == paused  # without a decision, it waits
    person = SQLiteJournal(path)
    (waits,) = person.runs("paused")
    assert waits.waiting == paused.pending
    first, second = waits.waiting
    person.decide("r", {first.id: approve})
    person.decide("r", {second.id: deny("Too much.")})
    model = ScriptedLLM("Done.")
    result = Loop.run_sync(llm_send_fn=model, tools=[pay], journal=journal, run_id="r")
    assert isinstance(result, Ok)
    assert ran == [1]
    check_history(result.messages)
    stored = person.run("r")
    assert (stored.status, stored.part, stored.waiting) == ("ok", 2, ())


def test_many_runs_share_a_journal_and_an_event_loop(journal):
    async def run():
        return await asyncio.gather(
            *(
                Loop.run("Go", doubling(), tools=[double], journal=journal, run_id=f"r{number}")
                for number in range(20)
            )
        )

    assert all(isinstance(result, Ok) for result in asyncio.run(run()))
    assert [run.status for run in journal.runs()] == ["ok"] * 20


def test_an_encrypted_run_with_large_contents_is_taken_up(path):
    codec = EncryptedPayloads(Fernet.generate_key())
    journal = SQLiteJournal(path, codec=codec, max_inline=100)
    first = Loop.run_sync("Go", doubling(), tools=[double], journal=journal, run_id="r")
    again = Loop.run_sync(
        "Go", lambda messages: "unused", tools=[double], journal=journal, run_id="r"
    )
    assert again == first


class TestExport:
    def test_a_run_is_replayed_from_its_export(self, journal, tmp_path):
        loop = Loop(llm_send_fn=doubling(), tools=[double], name="doubler")
        result = loop.run_sync("Go", journal=journal, run_id="r")
        journal.export("r", tmp_path / "run.jsonl")
        (run,) = read_recording(tmp_path / "run.jsonl").runs
        assert (run.run_id, run.agent_name, run.status) == ("r", "doubler", "ok")
        assert replay(run, loop) == result

    def test_a_run_that_was_interrupted_and_paused_is_replayed_with_all_its_parts(
        self, journal, path, tmp_path
    ):
        @tool(requires_approval=True)
        async def pay(n: int) -> str:
            """Pay."""
            if not paid:
                paid.append(n)
                await asyncio.Event().wait()
            return f"paid {n}"

        paid = []
        model = ScriptedLLM(calls(call("pay", "a", n=1)), calls(call("pay", "b", n=2)), "Done.")
        loop = Loop(llm_send_fn=model, tools=[pay], journal=journal)

        async def run():
            assert isinstance(await loop.run("Go", run_id="r"), Paused)
            journal.decide("r", {journal.run("r").waiting[0].id: approve})
            task = asyncio.create_task(loop.run(run_id="r"))
            while not paid:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
            assert isinstance(await loop.run(run_id="r"), Paused)
            journal.decide("r", {journal.run("r").waiting[0].id: approve})
            return await loop.run(run_id="r")

        result = asyncio.run(run())
        assert result.unwrap().content == "Done."
        journal.export("r", tmp_path / "run.jsonl")
        (recorded,) = read_recording(tmp_path / "run.jsonl").runs
        assert len(recorded.segments) == 3
        assert replay(recorded, Loop(tools=[pay])) == result

    def test_a_run_that_has_not_ended_is_exported_as_far_as_it_is(self, journal, path, tmp_path):
        def fail(messages):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Loop.run_sync("Go", fail, journal=journal, run_id="r")
        journal.export("r", tmp_path / "run.jsonl")
        (run,) = read_recording(tmp_path / "run.jsonl").runs
        assert run.status == "did not end"

    def test_another_file_is_not_replaced(self, journal, tmp_path):
        Loop.run_sync("Go", ScriptedLLM("Hi."), journal=journal, run_id="r")
        (tmp_path / "notes").write_text("mine", encoding="utf-8")
        with pytest.raises(ValueError, match="notes is not a recording"):
            journal.export("r", tmp_path / "notes")
