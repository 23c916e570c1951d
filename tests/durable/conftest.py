"""Fixtures of the tests of durable runs."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.ways import DRIVEN, Way


@pytest.fixture(params=DRIVEN, ids=repr)
def driven(request: Any) -> Way:
    """Without an event loop, on asyncio, on trio."""
    return request.param


@pytest.fixture(autouse=True)
def _no_run_is_left_open():
    """A run that a test leaves open keeps a thread, of which forks in later tests would warn."""
    before = set(threading.enumerate())
    yield
    left = [one for one in set(threading.enumerate()) - before if one.name == "treadle-journal"]
    for thread in left:
        thread.join(2)
    assert not any(thread.is_alive() for thread in left), "the test has left a run open"
