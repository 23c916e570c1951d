"""Several processes on one session, and processes that are killed."""

import multiprocessing
import sys
from pathlib import Path

from tests.programs import run_program
from tests.sessions.conversing import ended, exchange, user

from treadle.sessions import SessionConflictError

ROUNDS = 500
"""Those of each of the two writers."""
KILLS = Path(__file__).parents[2] / "benchmarks" / "session_kills.py"


def write(store, name, start, conflicts):
    """Add one turn after another; repeat those that another process was faster with."""
    session = store.session("alice")
    start.wait()
    for number in range(ROUNDS):
        while True:
            loaded = session.load()
            text = f"{name}{number}"
            messages = [*loaded["messages"], user(text), *exchange(text, text)]
            memo = {"session.compaction": {"covered": len(messages) - 3}}
            try:
                session.save(loaded, ended(messages, memo))
                break
            except SessionConflictError:
                conflicts.value += 1


def test_two_writers_on_one_session_neither_lose_nor_double_a_message(store):
    forking = multiprocessing.get_context("fork")
    start = forking.Barrier(2)
    conflicts = [forking.Value("i") for _ in range(2)]
    writers = [
        forking.Process(target=write, args=(store, name, start, count))
        for name, count in zip("ab", conflicts, strict=True)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    session = store.session("alice")
    messages = session.messages()
    assert session.info().version == len(messages) // 3 == 2 * ROUNDS
    texts = [message["content"] for message in messages[::3]]
    for place, text in enumerate(texts):  # each turn is whole
        assert messages[3 * place + 1 : 3 * place + 3] == exchange(text, text)
    for name in "ab":
        mine = [text for text in texts if text[0] == name]
        assert mine == [f"{name}{number}" for number in range(ROUNDS)]
    assert sum(count.value for count in conflicts) > 0  # they met


def test_a_killed_process_or_server_leaves_every_whole_turn_once():
    """Some dozens of kills; `make bench-sessions` has more."""
    command = [sys.executable, str(KILLS), "--kills", "30"]
    done = run_program(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 problems") == 3
