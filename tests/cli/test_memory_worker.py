"""`treadle memory-worker`, in processes, with a scripted endpoint as its model."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.redis_server import redis_server, redis_url

from treadle.sessions import RedisSessions, SQLiteSessions, StoredTurn
from treadle.sessions.memory import RedisMemories, SQLiteMemories

__all__ = ["redis_server", "redis_url"]


class Worker:
    """A process of the command; its stderr is read line by line."""

    def __init__(self, *args, cwd):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "treadle", "memory-worker", *map(str, args)],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        self.lines.extend(self.process.stderr)

    def wait_for(self, text, seconds=30):
        end = time.monotonic() + seconds
        while not any(text in line for line in self.lines):
            assert time.monotonic() < end, self.lines
            assert self.process.poll() is None or self.reader.is_alive(), self.lines
            time.sleep(0.02)

    def end(self, number):
        self.process.send_signal(number)
        return self.ended()

    def ended(self):
        code = self.process.wait(30)
        self.reader.join(30)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


def turn(text, start=0):
    return StoredTurn(start, [{"role": "user", "content": text}])


@pytest.fixture
def places(root):
    return SQLiteSessions(root / "s.db"), SQLiteMemories(root / "m.db")


@pytest.fixture
def start(endpoint, root):
    """Starts the command on the two files and the endpoint; what still runs is killed."""
    workers = []

    def make(*args, sessions="s.db", memories="m.db"):
        where = ("--sessions", sessions, "--memories", memories)
        model = ("--model", "openai:m", "--base-url", endpoint.base_url)
        workers.append(Worker(*where, *model, "--poll", "0.05", *args, cwd=root))
        return workers[-1]

    yield make
    for one in workers:
        if one.process.poll() is None:
            one.process.kill()
            one.ended()


@pytest.fixture
def learned(calls):
    """Makes an answer of the model: a list of facts."""
    return lambda *facts: calls(("final_answer", {"value": list(facts)}))


@pytest.fixture
def run(endpoint, run_main):
    """Runs `treadle memory-worker` in this process."""

    def run(*args, model="openai:m"):
        where = ("--sessions", "s.db", "--memories", "m.db", "--model", model)
        return run_main("memory-worker", *where, "--base-url", endpoint.base_url, *args)

    return run


def texts(memories, scope):
    return sorted(fact.text for fact in memories.facts(scope))


def test_once_reads_what_is_new_and_prints_what_was_done(run, places, endpoint, learned):
    sessions, memories = places
    sessions.append("ann/1", 0, [turn("I am Ann.")], {})
    endpoint.script = [learned("The user is called Ann.")]
    code, out, err = run("--once", "--scope-separator", "/")
    assert (code, out, err) == (0, "1 fact in 1 piece of 1 session\n", "")
    assert texts(memories, "ann") == ["The user is called Ann."]
    [request] = endpoint.bodies
    assert 'user: "I am Ann."' in request["messages"][-1]["content"]
    assert run("--once")[:2] == (0, "0 facts in 0 pieces of 0 sessions\n")


def test_without_a_separator_each_session_has_its_own_facts(run, places, endpoint, learned):
    sessions, memories = places
    sessions.append("ann/1", 0, [turn("I am Ann.")], {})
    endpoint.script = [learned("The user is called Ann.")]
    run("--once")
    assert texts(memories, "ann/1") == ["The user is called Ann."]


def test_once_fails_if_a_session_cannot_be_read_and_reads_the_others(
    run, places, endpoint, learned
):
    sessions, memories = places
    sessions.append("one", 0, [turn("I am one.")], {})
    sessions.append("two", 0, [turn("I am two.")], {})
    endpoint.script = [400, learned("Two.")]
    code, out, err = run("--once")
    assert code == 1
    assert out == "1 fact in 1 piece of 1 session, 1 session failed\n"
    assert "treadle: session 'one' cannot be read: the model gave no list of facts" in err
    assert texts(memories, "two") == ["Two."]


def test_what_was_busy_or_changed_is_in_the_summary(run, places, endpoint, learned):
    sessions, memories = places
    sessions.append("one", 0, [turn("I am one.")], {})
    endpoint.script = [learned("One."), learned("Other.")]
    run("--once")
    sessions.append("one", 1, [turn("I am another.")], {})
    sessions.append("busy", 0, [turn("I am busy.")], {})
    memories.lease("busy", 60)
    _, out, _ = run("--once")
    assert out == (
        "1 fact in 1 piece of 1 session, 1 session changed and read again, "
        "1 session read by other workers\n"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--poll", "0"], "--poll: expected a number above 0, got 0"),
        (["--max-tokens", "0"], "max_tokens: expected a number above 0"),
        (["--model", "nothing:x"], "nothing"),
        (["--memories", "s.db"], "another program's file"),
        (["--memories", "none/m.db"], "the memories cannot be used"),
        (["--memories", "redis://127.0.0.1:1"], "the memories cannot be used"),
    ],
)
def test_bad_usage_is_one_line(run, places, arguments, problem):
    places[0].append("one", 0, [turn("I am one.")], {})
    code, out, err = run("--once", *arguments)
    assert (code, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_worker_after_the_request_at_hand(
    start, places, endpoint, learned, number, code
):
    sessions, memories = places
    for version, text in enumerate(("One. " * 30, "Two. " * 30)):
        sessions.append("ann", version, [turn(text, version)], {})
    arrived, goes_on = threading.Event(), threading.Event()
    answers = iter([learned("One."), learned("Two.")])

    def next_answer():
        arrived.set()
        goes_on.wait(30)
        endpoint.script = [None] * (len(endpoint.bodies) - 1) + [next(answers)]
        return type(endpoint).next_answer(endpoint)

    endpoint.next_answer = next_answer
    worker = start("--max-tokens", "50")
    assert arrived.wait(30)
    assert memories.lease("ann", 1) is None
    worker.process.send_signal(number)
    time.sleep(0.2)
    goes_on.set()
    assert worker.ended() == code
    assert texts(memories, "ann") == ["One."]
    assert memories.lease("ann", 1)


def test_a_second_signal_ends_it_at_once(start, places, endpoint, hang):
    sessions, memories = places
    sessions.append("ann", 0, [turn("I am Ann.")], {})
    endpoint.script = [hang]
    worker = start()
    assert endpoint.asked.wait(30)
    worker.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert worker.process.poll() is None
    assert worker.end(signal.SIGTERM) == 130
    assert texts(memories, "ann") == []


def test_a_worker_in_the_background_ignores_interrupts_as_it_was_started_to(start, places):
    places[0].append("ann", 0, [StoredTurn(0, [{"role": "system", "content": "Hi"}])], {})
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for `command &`
    try:
        worker = start()
    finally:
        signal.signal(signal.SIGINT, before)
    worker.wait_for("Reading sessions")
    worker.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert worker.process.poll() is None
    assert worker.end(signal.SIGTERM) == 0


def test_two_workers_on_one_redis_read_what_arrives_and_each_message_once(
    start, endpoint, learned, redis_url
):
    sessions, memories = RedisSessions(redis_url), RedisMemories(redis_url)
    numbers = itertools.count(1)

    class Script:
        """However many requests there were, the next answer is another fact."""

        def __getitem__(self, _place):
            return learned(f"Fact {next(numbers)}.")

    endpoint.script = Script()
    places = {"sessions": redis_url, "memories": redis_url}
    workers = [start("--scope-separator", "/", **places) for _ in range(2)]
    for worker in workers:
        worker.wait_for("Reading sessions")
    for number in range(20):
        sessions.append(f"ann/{number}", 0, [turn(f"I know {number}.")], {})
    end = time.monotonic() + 30
    while len(memories.facts("ann")) < 20:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert [worker.end(signal.SIGTERM) for worker in workers] == [0, 0]
    assert len(endpoint.bodies) == 20
    assert sum("fact" in line for worker in workers for line in worker.lines) >= 2


def test_a_killed_worker_is_replaced_by_another_one(start, places, endpoint, learned, hang):
    sessions, memories = places
    sessions.append("ann", 0, [turn("I am Ann.")], {})
    endpoint.script = [hang, learned("The user is called Ann.")]
    first = start("--lease-seconds", "2")
    assert endpoint.asked.wait(30)
    second = start("--lease-seconds", "2")
    second.wait_for("Reading sessions")
    time.sleep(3)
    assert len(endpoint.bodies) == 1, "the lease was not renewed"
    os.kill(first.process.pid, signal.SIGKILL)
    first.ended()
    second.wait_for("1 fact in 1 piece")
    assert texts(memories, "ann") == ["The user is called Ann."]
    assert second.end(signal.SIGTERM) == 0
