"""Ctrl-C, SIGTERM and SIGHUP: the command ends in order, with a report, and no process that it started."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.guides.terminal import Terminal
from tests.programs import run_program

from treadle.reports import Recorder, read_recording

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

SERVER = '''
import os, signal, sys, time
from pathlib import Path
from mcp.server import MCPServer

Path("server").write_text(str(os.getpid()))
if "ignores" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "mute" in sys.argv:
    time.sleep(600)
server = MCPServer("slow")

@server.tool()
def wait() -> str:
    """Wait."""
    Path("waits").touch()
    time.sleep(600)
    return "done"

try:
    server.run()
finally:
    if "ignores" in sys.argv:  # the end of its input
        time.sleep(600)
'''


WIPE = '''
from treadle import tool

@tool(requires_approval=True)
def wipe() -> str:
    """Wipe everything."""
'''


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextlib.contextmanager
def started(line, root, **how):
    """A process in a folder, and the process of its server, which does not survive the test."""
    options = {"stdin": subprocess.DEVNULL, "stdout": -1, "stderr": -1, "text": True, **how}
    with subprocess.Popen(line, cwd=root, **options) as process:
        try:
            yield process
        finally:
            process.kill()
            server = root / "server"
            if server.exists() and is_there(int(server.read_text())):
                os.kill(int(server.read_text()), signal.SIGKILL)


@pytest.fixture
def server(root):
    (root / "server.py").write_text(SERVER)
    return lambda *how: ["--mcp", shlex.join([sys.executable, "server.py", *how])]


@pytest.fixture
def server_ended(root):
    return lambda: not is_there(int((root / "server").read_text()))


ENDS = [
    *((signal.SIGINT, where, "heeds") for where in ("request", "journal")),
    *((signal.SIGTERM, where, "heeds") for where in ("request", "tool", "journal tool")),
    *((signal.SIGHUP, where, "heeds") for where in ("tool", "journal")),
    *((number, "request", "ignores") for number in SIGNALS[1:]),
]


@pytest.mark.parametrize(("number", "where", "how"), ENDS)
def test_a_run_leaves_a_report_and_no_process(
    number, where, how, command, root, endpoint, hang, calls, server, server_ended
):
    endpoint.script = [calls(("wait", {})) if "tool" in where else hang]
    stored = ["--run-id", "a", "--journal", "runs.db"] if "journal" in where else []
    files = ["--record", "run.jsonl", "--report", "run.html"]
    with started(command("Go", *server(how), *files, *stored), root) as process:
        assert endpoint.asked.wait(60)
        if "tool" in where:
            until((root / "waits").exists)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (128 + number, "")
    assert "Traceback" not in err
    assert server_ended()
    assert (root / "run.html").read_text().lower().startswith("<!doctype html>")
    assert len(read_recording(root / "run.jsonl").runs) == 1
    last = err.splitlines()[-1]
    assert last.startswith(
        "treadle: interrupted; to continue" if stored else "treadle: the run was cancelled"
    )


REPEATED = [
    ([signal.SIGINT], "mute"),
    ([signal.SIGTERM, signal.SIGHUP], "mute"),  # as when a terminal is closed
    ([signal.SIGINT, signal.SIGINT], "ignores"),
    ([signal.SIGINT, signal.SIGTERM], "ignores"),
    ([signal.SIGHUP, signal.SIGTERM], "ignores"),
]


@pytest.mark.parametrize(("numbers", "how"), REPEATED)
def test_no_moment_leaves_a_process(
    numbers, how, command, root, endpoint, hang, server, server_ended
):
    """While the server starts; and again while it is being ended."""
    endpoint.script = [hang]
    with started(command("Go", *server(how, "ignores")), root) as process:
        until((root / "server").exists) if how == "mute" else endpoint.asked.wait(60)
        time.sleep(0.3)
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.7)
        _, err = process.communicate(timeout=60)

    assert process.returncode == 128 + numbers[0]
    assert "Traceback" not in err
    assert server_ended()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_wait_for_stdin_ends(number, command, root, endpoint):
    with started(command("Go"), root, stdin=subprocess.PIPE) as process:
        process.stderr.readline()  # that it waits
        process.send_signal(number)
        code = process.wait(60)  # the pipe is still open
        err = process.stderr.read()
    assert (code, err) == (128 + number, "treadle: interrupted\n")
    assert endpoint.bodies == []


def test_a_signal_that_is_ignored_stays_so(command, root, endpoint, hang):
    """As with `nohup`; and a background process, which ignores Ctrl-C, ends with SIGTERM all the same."""
    endpoint.script = [hang]

    def ignoring():
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    with started(command("Go", "--quiet"), root, preexec_fn=ignoring) as process:
        assert endpoint.asked.wait(60)
        for number in (signal.SIGHUP, signal.SIGINT):
            process.send_signal(number)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "the run was cancelled" in err


@pytest.mark.parametrize("number", SIGNALS[1:])
def test_resume_and_the_run_after_it(number, command, root, endpoint, hang, server, server_ended):
    endpoint.script = [hang, hang, "Done."]
    stored = ["--run-id", "a", "--journal", "runs.db"]
    with started(command("Go", *server("heeds"), *stored), root) as process:
        assert endpoint.asked.wait(60)
        process.send_signal(number)
        process.communicate(timeout=60)
    endpoint.asked.clear()
    resume = [sys.executable, "-m", "treadle", "resume", "a", "--journal", "runs.db"]
    with started([*resume, "--report", "run.html"], root) as process:
        assert endpoint.asked.wait(60)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert (root / "run.html").exists()
    assert server_ended()
    done = run_program(resume, cwd=root, stdin=-3)
    assert (done.returncode, done.stdout) == (0, "Done.\n")


def chat_command(endpoint, *args):
    model = ["--model", "openai:m", "--base-url", endpoint.base_url, "--sessions", "s.db"]
    return [sys.executable, "-m", "treadle", "chat", "--session", "a", *model, *args]


@pytest.mark.parametrize(
    ("number", "where"),
    [
        *((signal.SIGTERM, where) for where in ("prompt", "answer", "approval")),
        (signal.SIGHUP, "answer"),
    ],
)
def test_a_chat_on_a_terminal_ends(
    number, where, root, endpoint, hang, calls, server, server_ended
):
    (root / "wipe.py").write_text(WIPE)
    endpoint.script = [calls(("wipe", {})) if where == "approval" else hang]
    line = chat_command(endpoint, *server("heeds"), "--tools", "wipe:wipe")
    with Terminal(line, cwd=root, env={**os.environ, "TERM": "dumb"}) as terminal:
        terminal.wait_for("> ")
        if where != "prompt":
            terminal.press("Go\r")
            assert endpoint.asked.wait(60)
        if where == "approval":
            terminal.wait_for("[y/n] ")
        time.sleep(0.3)
        terminal.process.send_signal(number)
        code = terminal.wait()
    assert code == 128 + number
    assert "Traceback" not in terminal.screen
    assert server_ended()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_chat_in_a_pipe_ends(number, root, endpoint, hang, server, server_ended):
    endpoint.script = [hang]
    line = chat_command(endpoint, *server("heeds"))
    with started(line, root, stdin=subprocess.PIPE) as process:
        process.stdin.write("Go\nOn\n")
        process.stdin.flush()
        assert endpoint.asked.wait(60)
        process.send_signal(number)
        process.stdin.close()
        process.stdin = None
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "[interrupted; what was done so far is kept]" in err
    assert len(endpoint.bodies) == 1
    assert server_ended()


def test_a_closed_terminal_ends_a_run_with_its_report(
    command, root, endpoint, hang, server, server_ended
):
    """The kernel sends SIGHUP, and nothing can be written any more."""
    endpoint.script = [hang]
    line = command("Go", *server("ignores"), "--report", "run.html")
    ours, theirs = os.openpty()
    line = ["setsid", "--ctty", *line]
    with started(line, root, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        assert endpoint.asked.wait(60)
        time.sleep(0.3)
        os.close(ours)
        assert process.wait(60) == 129
    assert (root / "run.html").exists()
    assert server_ended()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_dashboard_ends(number, root, tmp_path):
    with Recorder(tmp_path / "run.jsonl"):
        pass
    line = [sys.executable, "-m", "treadle", "dashboard", str(tmp_path / "run.jsonl")]
    with started(line, root) as process:
        assert process.stdout.readline().startswith("http://")
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
