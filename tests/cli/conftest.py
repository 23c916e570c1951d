"""Folders for the tools; a scripted endpoint, and ways to run the command on it."""

import contextlib
import functools
import itertools
import json
import os
import pty
import random
import shutil
import subprocess
import sys
import threading

import pytest
from tests.http_server import ScriptedServer
from tests.programs import run_program

from treadle.cli import main
from treadle.cli.builtin_tools import Workspace

FORBIDDEN = "behind the fence"  # what no tool may ever show


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "secret.txt").write_text(FORBIDDEN + "\n")
    (folder / "deep" / "secret.txt").write_text(FORBIDDEN + "\n")
    return folder


@pytest.fixture
def root(tmp_path, outside):
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "docs").mkdir()
    (folder / "docs" / "guide.md").write_text("# Guide\nThe Shuttle flies.\n")
    (folder / "README.md").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture
def files(root):
    return Workspace(root)


class Endpoint(ScriptedServer):
    """A server of chat completions on this machine that answers by a script, and records.

    Attributes:
        script: texts, calls, the status of an error, `HANG`, or a function that returns one of the first three.
        asked: whether a request has come.
    """

    def __init__(self):
        super().__init__()
        self.script, self.asked = [], threading.Event()
        self.base_url = f"{self.url}/v1"

    def next_answer(self):
        self.asked.set()
        status, answer = self.step()
        return status, {"Content-Type": "application/json"}, json.dumps(answer)

    def step(self):
        step = self.script[len(self.requests) - 1]
        if step is HANG:
            self._closed.wait(60)
            step = "too late"
        if callable(step):
            step = step()
        if isinstance(step, int):
            return step, {"error": {"message": f"this is status {step}"}}
        message = {"role": "assistant", "content": None}
        message |= {"content": step} if isinstance(step, str) else {"tool_calls": step}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return 200, {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }


HANG = object()
"""A step of a script: the answer does not come."""


@pytest.fixture
def endpoint(monkeypatch):
    for name in list(os.environ):
        if name.startswith("OPENAI_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture
def hang():
    return HANG


@pytest.fixture
def call_ids():
    return itertools.count(1)


@pytest.fixture
def calls(call_ids):
    """Makes the calls of an assistant message, of names and arguments (as text or as a dict)."""

    def make(*made):
        return [
            {
                "id": f"call_{next(call_ids)}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for name, given in made
        ]

    return make


@pytest.fixture
def one_core():
    """The beginning of a command that runs on one core.

    The local model then computes in one thread. Several threads that wait for each other on a busy machine take
    several times as long.
    """
    if shutil.which("taskset") is None:
        return []
    return ["taskset", "--cpu-list", str(random.choice(sorted(os.sched_getaffinity(0))))]


@pytest.fixture
def command(endpoint, root):
    """The command line of `treadle run` on the endpoint, for a process of its own."""

    def make(*args, model="openai:m"):
        address = ["--base-url", endpoint.base_url] if model.startswith("openai") else []
        return [sys.executable, "-m", "treadle", "run", *args, "--model", model, *address]

    return make


@pytest.fixture
def spawned(command, root):
    """Runs `treadle run` in a process of its own, its output in pipes."""

    def run(*args, stdin="", env=None, timeout=60, before=(), **how):
        return run_program(
            [*before, *command(*args, **how)],
            input=stdin,
            cwd=root,
            env={**os.environ, **(env or {})},
            timeout=timeout,
        )

    return run


@pytest.fixture
def on_terminal(command, root):
    """Runs `treadle run` with its output on a terminal; gives the exit code and what was shown.

    ``watch`` receives what has been shown so far.
    """

    def run(*args, streams=("stdout", "stderr"), env=None, watch=lambda shown: None):
        shown, terminal = pty.openpty()
        process = subprocess.Popen(
            command(*args),
            cwd=root,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200", **(env or {})},
            stdin=subprocess.DEVNULL,
            **{
                name: terminal if name in streams else subprocess.DEVNULL
                for name in ("stdout", "stderr")
            },
        )
        os.close(terminal)
        pieces = []
        # Linux says EIO where the other end of a terminal is closed
        with contextlib.suppress(OSError):
            while piece := os.read(shown, 65536):
                pieces.append(piece)
                watch(b"".join(pieces))
        os.close(shown)
        return process.wait(30), b"".join(pieces).decode().replace("\r\n", "\n")

    return run


@pytest.fixture
def run_main(root, monkeypatch, capsys):
    """Runs a command in this process; gives its exit code, stdout and stderr."""
    monkeypatch.chdir(root)

    def run(*args):
        try:
            code = main([*map(str, args)])
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def called(endpoint, run_main, monkeypatch):
    """Runs `treadle run` in this process, which may import modules of its folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return functools.partial(run_main, "run")


@pytest.fixture
def asked(called, endpoint):
    """As `called`, with the endpoint as the model."""
    return lambda *args: called(*args, "--model", "openai:m", "--base-url", endpoint.base_url)


@pytest.fixture
def without(tmp_path):
    """An environment in which a package cannot be imported, as if it were not installed."""

    def make(name):
        folder = tmp_path / "missing"
        folder.mkdir(exist_ok=True)
        # None is how Python itself notes that a module is not to be had
        (folder / "sitecustomize.py").write_text(f"import sys; sys.modules['{name}'] = None")
        path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        return {"PYTHONPATH": path.rstrip(os.pathsep)}

    return make
