"""A process that is forked while other threads run: the child can run loops."""

import os
import select
import signal
import threading
import warnings

import pytest

from treadle import CircuitBreaker, Locks, Loop
from treadle.pauses.claims import ProcessClaims
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import tool

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

SECONDS = 60
"""A child that takes longer hangs."""


def in_child(act):
    """Call a function in a forked child; return what it returns, as text; None if the child hangs."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():  # since Python 3.12, a fork with threads is warned of
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(act()).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], SECONDS)
    text = os.read(reading, 10_000).decode() if ready else None
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return text


class Slow(str):
    """A key on which a thread waits while it looks it up, and so holds the lock of the table."""

    __slots__ = ("asked", "go_on")

    def __hash__(self):
        if not self.asked.is_set():
            self.asked.set()
            self.go_on.wait()
        return super().__hash__()


@pytest.fixture
def holding():
    """Hold the lock of a table in another thread, until the test ends."""
    go_on, threads = threading.Event(), []

    def hold(use):
        key = Slow("key")
        key.asked, key.go_on = threading.Event(), go_on
        threads.append(threading.Thread(target=use, args=(key,)))
        threads[-1].start()
        key.asked.wait()

    yield hold
    go_on.set()
    for thread in threads:
        thread.join()


@tool(lock="db")
def save():
    return "saved"


def answer_of(loop):
    return loop.run_sync("Hi", ScriptedLLM(calls(call("save")), "Done.")).unwrap().text


def test_locks_that_another_thread_uses_at_the_fork_can_be_used_in_the_child(holding):
    locks = Locks()
    holding(locks.enter)
    loop = Loop(tools=[save], locks=locks)
    assert in_child(lambda: answer_of(loop)) == "Done."


def test_a_breaker_that_another_thread_uses_at_the_fork_can_be_used_in_the_child(holding):
    breaker = CircuitBreaker()
    holding(lambda key: breaker.record(key, "c1", "no", 0.0))
    loop = Loop(tools=[save], breaker=breaker)
    assert in_child(lambda: answer_of(loop)) == "Done."


def test_the_claims_of_the_process_can_be_used_in_the_child(holding):
    claims = ProcessClaims()

    def claim(pause_id):
        try:
            return claims.claim(pause_id, "this run", take_over=False)
        except Exception as error:
            return error

    claims.claim("earlier", "another run", take_over=False)
    holding(claim)
    assert in_child(lambda: (claim("earlier"), claim("p"))) == "(False, True)"


def test_a_key_that_a_call_of_the_parent_holds_is_free_in_the_child():
    locks = Locks()
    ticket = locks.enter("db")
    loop = Loop(tools=[save], locks=locks)
    assert in_child(lambda: answer_of(loop)) == "Done."
    assert in_child(lambda: locks.leave("db", ticket)) == "None"
    assert not locks.enter("db").is_set
    locks.leave("db", ticket)


def test_a_tool_that_forks_while_it_holds_its_key_can_run_a_loop_in_the_child():
    locks = Locks()
    inner = Loop(tools=[save], locks=locks)

    @tool(lock="db")
    def fork():
        return in_child(lambda: answer_of(inner))

    model = ScriptedLLM(calls(call("fork")), "Done.")
    result = Loop.run_sync("Hi", model, tools=[fork], locks=locks)
    assert result.messages[-2]["content"] == "Done."


def test_a_child_can_run_async_tools_and_time_limits_after_its_parent_did():
    """The parent has a background loop, and threads that wait for work."""

    @tool(timeout=SECONDS)
    async def save():
        return "saved"

    @tool(timeout=SECONDS, name="read")
    def read():
        return "read"

    loop = Loop(tools=[save, read], max_seconds=SECONDS)
    model = calls(call("save"), call("read"))

    def run():
        result = loop.run_sync("Hi", ScriptedLLM(model, "Done."))
        return [message["content"] for message in result.messages[-3:]]

    assert run() == ["saved", "read", "Done."]
    for _ in range(10):
        assert in_child(run) == "['saved', 'read', 'Done.']"


def test_a_child_that_a_task_forked_can_run_a_loop():
    import asyncio

    loop = Loop(tools=[save], locks=Locks())

    async def fork():
        return in_child(lambda: answer_of(loop))

    result = asyncio.run(
        Loop(tools=[tool(fork, name="fork")]).run("Hi", ScriptedLLM(calls(call("fork")), "Done."))
    )
    assert result.messages[-2]["content"] == "Done."


def test_locks_under_load_do_not_hang_the_children():
    locks, breaker, over = Locks(), CircuitBreaker(), threading.Event()
    loop = Loop(tools=[save], locks=locks, breaker=breaker)

    def use():
        while not over.is_set():
            locks.leave("db", locks.enter("db"))
            breaker.record("save", "c", "no", 0.0)
            breaker.record("save", "c", None, 0.0)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        answers = [in_child(lambda: answer_of(loop)) for _ in range(10)]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert answers == ["Done."] * 10
