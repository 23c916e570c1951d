"""Locks by key: calls that share a key never overlap, and run in the order in which they came."""

import contextlib
import itertools
import threading

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.effects import (
    Bounded,
    Parallel,
    Signal,
    Sleep,
    Stopped,
    TimeLimitReached,
    drive,
    drive_sync,
)
from treadle.tools import LockedError, Locks


@pytest.fixture
def locks():
    return Locks()


def is_free(locks, key):
    """Whether a key is neither in use nor waited for."""
    return key not in locks._queues


def waiting_for(keys):
    return dict.fromkeys(keys, True)


class TestQueue:
    """Tickets: the owner of the ticket that is set has the key."""

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
    def test_waiters_acquire_a_key_in_order_without_those_that_have_left(self, locks, order):
        waiting = [locks.enter("k") for _ in range(3)]
        for number in order:
            assert waiting[0].is_set
            assert not any(ticket.is_set for ticket in waiting[1:])
            assert locks.enter(f"other than {number}").is_set  # each key has its own queue
            ticket = waiting[min(number, len(waiting) - 1)]
            locks.leave("k", ticket)
            waiting.remove(ticket)
        assert is_free(locks, "k")
        assert locks.enter("k").is_set


def noting(log, name):
    """Steps that note when they begin and when they end, with a pause in between."""
    log.append(f"{name} begins")
    yield Sleep(0)
    log.append(f"{name} ends")
    return name


class TestHolding:
    """Steps run while they hold their keys."""

    @pytest.mark.parametrize("driver", ["sync", "asyncio", "trio"])
    def test_steps_that_share_a_key_run_one_after_another_in_order(self, locks, driver):
        log = []
        steps = Parallel([locks.holding(waiting_for(["k"]), noting(log, name)) for name in "abc"])
        assert [*by_driver(driver, steps)] == [*"abc"]
        assert log == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
        assert is_free(locks, "k")

    @pytest.mark.parametrize("bound", [{"seconds": 0.01}, {"until": True}])
    def test_steps_cancelled_while_they_wait_leave_the_queue(self, locks, bound):
        taken, log, stop = locks.enter("b"), [], Signal()
        if "until" in bound:
            bound = {"until": stop}
            threading.Timer(0.01, stop.set).start()
        waiting = Bounded(locks.holding(waiting_for(["a", "b"]), noting(log, "x")), **bound)
        with pytest.raises((TimeLimitReached, Stopped)):
            by_driver("sync", waiting)
        assert log == []
        assert is_free(locks, "a")
        locks.leave("b", taken)
        assert is_free(locks, "b")

    def test_a_call_that_must_not_wait_raises_with_the_key_and_releases_the_others(self, locks):
        locks.enter("b")
        log = []
        with pytest.raises(LockedError, match=r"^'b' is in use by another call; try again later$"):
            drive_sync(locks.holding({"a": True, "b": False}, noting(log, "x")))
        assert log == []
        assert is_free(locks, "a")
        assert len(locks._queues["b"]) == 1


def performing(effect):
    return (yield effect)


def by_driver(driver, effect):
    if driver == "sync":
        return drive_sync(performing(effect))
    return anyio.run(drive, performing(effect), backend=driver)


def test_threads_may_share_locks(locks):
    """Each adds to a number by reading and writing it, with others between: none may be lost."""
    count, all_at_once = 0, threading.Barrier(8, timeout=10)

    def add():
        nonlocal count
        seen = count
        yield Sleep(0)
        count = seen + 1

    def work():
        all_at_once.wait()
        for _ in range(25):
            drive_sync(locks.holding(waiting_for(["k"]), add()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert count == 200
    assert is_free(locks, "k")


KEYS = st.frozensets(st.sampled_from("abc"), max_size=3).map(sorted)


@settings(max_examples=60)
@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=6))
def test_calls_that_share_a_key_never_overlap_and_all_end(wanted):
    """Some of them fail in the middle."""
    locks, running, ended = Locks(), [], []

    def work(number, keys, fails):
        assert not any(set(keys) & set(others) for others in running)
        running.append(keys)
        try:
            yield Sleep(0)
            if fails:
                raise ValueError
        finally:
            running.remove(keys)
            ended.append(number)

    def one(number, keys, fails):
        with contextlib.suppress(ValueError):
            yield from locks.holding(waiting_for(keys), work(number, keys, fails))

    steps = [one(number, *each) for number, each in enumerate(wanted)]
    anyio.run(drive, performing(Parallel(steps)))
    assert sorted(ended) == list(range(len(wanted)))
    assert locks._queues == {}
