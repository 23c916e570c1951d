"""The Redis of these tests."""

import redis
from tests.redis_server import RedisServer


def test_a_durable_server_that_is_killed_and_started_again_has_what_it_answered(tmp_path):
    with RedisServer(tmp_path, durable=True) as server:
        with redis.Redis(port=server.port) as client:
            client.set("a", "1")
        server.kill()
        server.start()
        with redis.Redis(port=server.port) as client:
            assert client.get("a") == b"1"


def test_each_test_gets_an_empty_server(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
