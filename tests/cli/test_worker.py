"""`treadle worker`, in processes, on a real Temporal server."""

import asyncio
import os
import signal
import subprocess
import sys
import uuid

import pytest
from temporalio.client import Client
from tests.durable.temporal.servers import temporal_server
from tests.http_server import free_port

from treadle.cli import main
from treadle.durable.temporal import SQLiteBlobStore, run_on_temporal

__all__ = ["temporal_server"]

LOOPS = """
from treadle import Loop, tool
from treadle.testing import ScriptedLLM, call, calls

@tool
def where() -> str:
    "Where it runs."
    import os
    return str(os.getpid())

def made(name):
    return Loop(name=name, tools=[where], llm_send_fn=ScriptedLLM(calls(call("where")), "Done."))

one = made("one")
both = [made("first"), made("second")]
named = {"third": made("other")}
wrong = 5
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "loops.py").write_text(LOOPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "loops", raising=False)
    return tmp_path


@pytest.fixture
def start(root, temporal_server):
    """Starts the command; returns the process when the worker runs, and the name of its queue."""
    processes = []

    def start(*args):
        queue = uuid.uuid4().hex
        where = ("--address", temporal_server.address, "--task-queue", queue)
        process = subprocess.Popen(
            [sys.executable, "-m", "treadle", "worker", *args, *where],
            cwd=root,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        processes.append(process)
        assert "Press Ctrl-C to stop." in process.stderr.readline()
        return process, queue

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_it_runs_workflows_until_it_is_stopped(number, code, start, temporal_server, root):
    process, queue = start(
        "loops:one", "loops:both", "loops:named", "--store", "store.db", "--max-activities", "2"
    )

    async def run_all():
        client = await Client.connect(temporal_server.address)
        store = SQLiteBlobStore(root / "store.db")
        return [
            await run_on_temporal(client, name, "Hi.", task_queue=queue, store=store)
            for name in ("one", "first", "second", "third")
        ]

    for result in asyncio.run(run_all()):
        assert result.output == "Done."
        assert result.messages[2]["content"] == str(process.pid)
    process.send_signal(number)
    assert process.wait(30) == code
    assert (root / "store.db").exists()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["loops"], "LOOPS: expected MODULE:NAME, got 'loops'"),
        (["nothing:one"], "LOOPS: no module 'nothing'"),
        (["loops:on"], "LOOPS: module 'loops' has no 'on'; did you mean 'one'?"),
        (["loops:wrong"], "LOOPS: loops:wrong is not a Loop or several, but int"),
        (["loops:one", "loops:one"], "LOOPS: loops:one: there are two loops named 'one'"),
        (
            ["loops:one", "--max-activities", "0"],
            "--max-activities: expected a number of at least 1",
        ),
    ],
)
def test_bad_usage_is_reported_in_one_line(args, text, root, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["worker", *args])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def test_a_server_that_is_not_there_is_reported(root, capsys):
    assert main(["worker", "loops:one", "--address", f"127.0.0.1:{free_port()}"]) == 1
    assert "is not available" in capsys.readouterr().err
