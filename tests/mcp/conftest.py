"""The drivers, and servers that note what they are sent."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import anyio
import pytest
from tests.http_server import free_port

from treadle import Loop, ToolFinished
from treadle.mcp import MCPServer
from treadle.testing import ScriptedLLM, check_history

HERE = Path(__file__).parent


class Way:
    """One way to run a loop; the history of every result is checked."""

    def __init__(self, name):
        self.name = name

    def run(self, model, **options):
        if self.name == "sync":
            result = Loop.run_sync("Hi", model, **options)
        elif self.name == "stream":
            result = anyio.run(self._streamed, model, options)
        else:
            result = anyio.run(
                functools.partial(Loop.run, "Hi", model, **options), backend=self.name
            )
        check_history(result.messages)
        return result

    async def _streamed(self, model, options):
        async with Loop.stream("Hi", model, **options) as stream:
            async for _ in stream:
                pass
        return stream.result

    def results(self, *batches, **options):
        """Run these calls, each a list for one iteration; return the results, by the ids of the calls."""
        seen = []
        self.run(ScriptedLLM(*batches, "Done."), on_event=seen.append, **options)
        finished = (event.result for event in seen if isinstance(event, ToolFinished))
        return sorted(finished, key=lambda result: result.tool_call_id)


@pytest.fixture(params=["sync", "asyncio", "trio", "stream"])
def way(request):
    """Each of the drivers."""
    return Way(request.param)


@pytest.fixture
def sync():
    return Way("sync")


def wait_until(is_true):
    """Wait, at most 20 seconds, until a condition is true."""
    end = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.01)


class Served:
    """A server of a test: what starts it, and what it was sent."""

    def __init__(self, kind, notes):
        self.kind = kind
        self.path = notes
        self.command = [sys.executable, str(HERE / f"{kind}_server.py"), str(notes)]

    def connect(self, **options):
        return MCPServer(self.command, **options)

    @property
    def notes(self):
        return self.path.read_text().splitlines() if self.path.exists() else []

    @property
    def pid(self):
        return int(self.path.with_suffix(".pid").read_text())

    def kill(self):
        """Kill the process, and wait until it has ended."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pid))

    def wait_for(self, note):
        wait_until(lambda: note in self.notes)


def is_running(pid):
    """Whether a process has not ended; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(params=["old", "new"])
def served(request, tmp_path):
    """A server of the older protocol, then of the newer."""
    return Served(request.param, tmp_path / "notes")


@pytest.fixture
def new_served(tmp_path):
    return Served("new", tmp_path / "notes")


@pytest.fixture
def over_http(tmp_path):
    """A function that starts the newer server at a port; it gives the address and the process."""
    processes = []

    def start(path=tmp_path / "notes", port=None):
        if port is None:
            port = free_port()
        command = [sys.executable, str(HERE / "new_server.py"), str(path), str(port)]
        process = subprocess.Popen(command)
        processes.append(process)
        url = f"http://127.0.0.1:{port}/mcp"
        await_port(url, process)
        return url, process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def await_port(url, process):
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(ConnectionError, urllib.error.URLError):
            try:
                urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - our own
            except urllib.error.HTTPError:
                return
        time.sleep(0.05)
    pytest.fail("the server did not start")
