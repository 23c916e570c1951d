"""Fixtures of the tests of durable runs."""

from __future__ import annotations

import threading

import pytest


@pytest.fixture
def path(tmp_path):
    """The file of a journal that is not there yet."""
    return tmp_path / "journal.db"


@pytest.fixture(autouse=True)
def _no_run_is_left_open():
    """A run that a test leaves open keeps a thread, of which forks in later tests would warn."""
    before = set(threading.enumerate())
    yield
    left = [one for one in set(threading.enumerate()) - before if one.name == "treadle-journal"]
    for thread in left:
        thread.join(2)
    assert not any(thread.is_alive() for thread in left), "the test has left a run open"
