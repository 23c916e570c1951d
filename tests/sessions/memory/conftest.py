"""Fixtures of the tests of memory: both stores of facts, and both stores of sessions."""

import pytest
from tests.sessions.memory.parts import MEMORIES, SESSIONS


@pytest.fixture(params=MEMORIES)
def memories(request, tmp_path):
    """An empty store of facts, each kind in turn."""
    return request.param(request, tmp_path)


@pytest.fixture(params=SESSIONS)
def sessions(request, tmp_path):
    """An empty store of sessions, each kind in turn."""
    return request.param(request, tmp_path)
