"""The command with an stdout or stderr that takes nothing: a message and an exit code, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle import Loop
from treadle.durable import SQLiteJournal
from treadle.reports import Recorder
from treadle.testing import ScriptedLLM

FULL = Path("/dev/full")
NO_ROOM = "treadle: cannot write the output: No space left on device\n"

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="needs Linux's /dev/full")


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        journal = SQLiteJournal(path.with_suffix(".db"))
        loop = Loop(on_event=recorder, journal=journal, run_id="a")
        loop.run_sync("hi", ScriptedLLM("done"))
    return path


@pytest.fixture
def treadle(root):
    """Runs the command with the given stdout and stderr."""

    def run(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, before=None):
        # Buffered, as for users: a write that fails may fail later, at the latest when Python exits.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        return subprocess.run(
            [*(before or [sys.executable, "-m", "treadle"]), *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            cwd=root,
            env=env,
            timeout=60,
            check=False,
        )

    return run


def commands(recording, endpoint):
    page = recording.with_suffix(".html")
    stored = ("--journal", recording.with_suffix(".db"))
    model = ("--model", "openai:m", "--base-url", endpoint.base_url, "--quiet")
    return {
        "run": ("run", "hi", *model),
        "run --json": ("run", "hi", "--json", *model),
        "report": ("report", recording),
        "report -o -": ("report", recording, "-o", "-"),
        "runs": ("runs", *stored),
        "show": ("show", "a", *stored),
        "show --json": ("show", "a", "--json", *stored),
        "resume": ("resume", "a", *stored),
        "dashboard": ("dashboard", recording),
        "dashboard -o": ("dashboard", recording, "-o", page),
        "dashboard --export": ("dashboard", "--export", recording.with_suffix(".d")),
        "--help": ("--help",),
    }


COMMANDS = [
    "run",
    "run --json",
    "report",
    "report -o -",
    "runs",
    "show",
    "show --json",
    "resume",
    "dashboard",
    "dashboard -o",
    "dashboard --export",
    "--help",
]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_under_stdout_is_a_message_and_an_exit_code(name, treadle, recording, endpoint):
    endpoint.script = ["the answer"]
    with FULL.open("wb") as full:
        done = treadle(*commands(recording, endpoint)[name], stdout=full)

    assert (done.returncode, done.stderr) == (1, NO_ROOM)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_that_its_reader_closed_ends_the_command_in_silence(
    name, treadle, recording, endpoint
):
    endpoint.script = ["the answer"]
    reading, writing = os.pipe()
    os.close(reading)
    done = treadle(*commands(recording, endpoint)[name], stdout=writing)
    os.close(writing)

    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("name", ["run", "report -o -", "dashboard"])
def test_a_closed_stdout_is_a_message_and_an_exit_code(name, treadle, recording, endpoint):
    endpoint.script = ["the answer"]
    closed = ["sh", "-c", 'exec "$0" -m treadle "$@" >&-', sys.executable]
    done = treadle(*commands(recording, endpoint)[name], before=closed)

    assert done.returncode == 1
    assert done.stderr == "treadle: cannot write the output: stdout is closed\n"


@pytest.mark.parametrize("to", [">/dev/full", ">&-"])
def test_a_lost_stderr_loses_no_answer(to, treadle, endpoint, calls):
    """The progress and the warnings cannot be written; the answer is on stdout all the same."""
    endpoint.script = [calls(("list_files", {})), "the answer"]
    lost = ["sh", "-c", f'exec "$0" -m treadle "$@" 2{to}', sys.executable]
    model = ("--model", "openai:m", "--base-url", endpoint.base_url)
    done = treadle("run", "hi", *model, before=lost)

    assert (done.returncode, done.stdout) == (0, "the answer\n")


@pytest.mark.parametrize("to", [">/dev/full", ">&-"])
def test_a_lost_stderr_changes_no_exit_code(to, treadle, endpoint):
    endpoint.script = [400]
    lost = ["sh", "-c", f'exec "$0" -m treadle "$@" 2{to}', sys.executable]
    model = ("--model", "openai:m", "--base-url", endpoint.base_url)

    assert treadle("run", "hi", *model, before=lost).returncode == 1
