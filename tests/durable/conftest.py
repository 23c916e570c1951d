"""Fixtures of the tests of durable runs."""

import threading

import pytest


@pytest.fixture(autouse=True)
def _no_run_is_left_open():
    """A run that a test leaves open keeps a thread, of which forks in later tests would warn."""
    before = set(threading.enumerate())
    yield
    left = [one for one in set(threading.enumerate()) - before if one.name == "treadle-journal"]
    for thread in left:
        thread.join(2)
    assert not any(thread.is_alive() for thread in left), "the test has left a run open"
