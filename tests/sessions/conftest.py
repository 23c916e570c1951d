"""Fixtures of the tests of sessions."""

import pytest
from tests.redis_server import redis_server, redis_url

from treadle.sessions import RedisSessions, SQLiteSessions

__all__ = ["redis_server", "redis_url", "store"]


@pytest.fixture(params=["sqlite", "redis"])
def store(request, tmp_path):
    """An empty store of each kind."""
    if request.param == "sqlite":
        return SQLiteSessions(tmp_path / "sessions.db")
    return RedisSessions(request.getfixturevalue("redis_url"))
