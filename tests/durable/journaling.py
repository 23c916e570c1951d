"""What the tests of journals write into them."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time

from treadle.codec import encode
from treadle.recording.log import Entry
from treadle.results import PendingCall

START = {"messages": [{"role": "user", "content": "Grüße \ud83d \x00"}], "name": "agent"}
OK = {"status": "ok", "stop_reason": "answered", "iterations": 2, "pending": []}


def chat(number, outcome="text", path=()):
    """The outcome of a request."""
    return Entry(path, 10 * number, "call", "chat", str(number), outcome, at=100.0 + number)


def pay(call_id, outcome="paid", path=()):
    """The outcome of a tool call."""
    return Entry(path, 1, "call", "execute_tool", call_id, outcome, asked="pay")


def paused(*ids):
    """The outcome of a run that waits for decisions on calls."""
    return {
        "status": "paused",
        "stop_reason": "paused",
        "iterations": 1,
        "pending": encode(list(waiting(*ids))),
    }


def waiting(*ids):
    """The same calls, as a journal shows them."""
    return tuple(PendingCall(one, "pay", {"n": 1}, "Pay?") for one in ids)


def stored(journal, run_id, *entries, outcome=None):
    """Store a run that nobody drives any more."""
    run = journal.open(run_id, START)
    if entries:
        run.add(entries)
    if outcome is not None:
        run.finish(outcome)
    run.close()


def keys(log):
    """The kinds or keys of entries, in short."""
    return [entry.key or entry.kind for entry in log]


def change(path, query, *values):
    """Change the file of a journal behind its back."""
    db = sqlite3.connect(path)
    with db:
        db.execute(query, values)
    db.close()


def held_elsewhere(path, run_id):
    """Let a run be driven by a process of another machine."""
    change(path, "UPDATE runs SET owner = 'elsewhere--1-2-aa' WHERE id = ?", run_id)


def wait_until(is_so):
    """Wait until a condition holds. The time limit of the test ends a test in which it never does."""
    while not is_so():
        time.sleep(0.01)


def suspend(process, path):
    """Suspend a process, but not in the middle of a write, since the file would stay locked."""
    db = sqlite3.connect(path, timeout=1, isolation_level=None)
    is_free = False
    while not is_free:
        process.send_signal(signal.SIGSTOP)
        try:
            db.execute("BEGIN IMMEDIATE")
            is_free = True
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
    db.close()


DRIVER = """
import sys
from tests.durable.journaling import START, chat, stored
from treadle.durable import SQLiteJournal
from treadle.errors import JournalError, LeaseLostError, RunBusyError

journal = SQLiteJournal(sys.argv[1], lease_seconds=float(sys.argv[2]))
run = None
for line in sys.stdin:
    try:
        if line.startswith("open"):
            run = journal.open(line.split()[1], START)
            run.on_stop(lambda: print("stop", flush=True))
            print("opened", len(run.log), flush=True)
        elif line.startswith("add"):
            run.add([chat(int(line.split()[1]))])
            print("added", flush=True)
        else:
            run.close()
            print("closed", flush=True)
    except JournalError as error:
        print(type(error).__name__, error, flush=True)
"""


@contextlib.contextmanager
def other_process(path, lease_seconds=3600.0):
    """Another process; its method `ask` has it open, add to or close a run, and returns what it says."""
    command = [sys.executable, "-c", DRIVER, str(path), str(lease_seconds)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )

    def ask(text):
        process.stdin.write(f"{text}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    process.ask = ask
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
