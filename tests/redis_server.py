"""A real Redis for tests: Debian's, on a free port of this machine."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
import redis
from tests.http_server import free_port

SECONDS = 30
"""How long a test waits for the server to start or to end."""


class RedisServer:
    """A server without a password, which ends with the block.

    Args:
        folder: where it writes its log, and its data if it is durable.
        durable: have each change on the disk before it is answered, so that `kill` and `start` lose nothing.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._folder = folder
        self._durable = durable
        self._process: subprocess.Popen | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self) -> None:
        """Start the server, on the port that it had if it was started before; return when it answers."""
        program = shutil.which("redis-server")
        assert program, "there is no redis-server on this machine: apt-get install redis-server"
        self.port = self.port or free_port()
        appends = ("yes", "--appendfsync", "always") if self._durable else ("no",)
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)),
                    *("--save", "", "--appendonly", *appends),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the server, as the end of a machine does; it may be started again."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(SECONDS)

    def kill(self) -> None:
        """End the server at once, with SIGKILL; it may be started again."""
        self._process.kill()
        self._process.wait(SECONDS)

    def _wait(self) -> None:
        end = time.monotonic() + SECONDS
        with redis.Redis(port=self.port) as client:
            while True:
                has_ended = self._process.poll() is not None
                log = (self._folder / "redis.log").read_text()
                assert not has_ended, f"redis-server has ended: {log}"
                try:
                    if client.info("server")["process_id"] == self._process.pid:
                        return
                except redis.RedisError:  # it does not listen yet, or loads its data
                    pass
                assert time.monotonic() < end, f"redis-server does not answer: {log}"
                time.sleep(0.01)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """One server for all tests of a process; what it has is lost when it ends."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_url(redis_server):
    """The URL of an empty Redis."""
    with redis.Redis(port=redis_server.port) as client:
        client.flushall()
    return redis_server.url
