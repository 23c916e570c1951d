"""The progress of a run: what is told of it, live on a terminal, in plain lines elsewhere."""

import contextlib
import io
import os
import pty
import re
import signal
import subprocess
import threading

import pytest

from treadle import Chunk, Limits, Loop, Usage, tool
from treadle.cli.progress import ProgressLines, make_progress
from treadle.events import RunStarted
from treadle.testing import ScriptedLLM, call
from treadle.testing import calls as called

QUESTION = [{"role": "user", "content": "Go"}]
LIVE = {"CI": ""}
"""What is live on a terminal is so where these tests run in CI, too."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a < 0:
        raise ValueError("a is negative\x1b[2J\nand more")
    return a + b


def told(*script, **options):
    """The lines of a run by a script, durations left out."""
    stream = io.StringIO()
    with make_progress(stream) as on_event:
        Loop.run_sync(
            QUESTION,
            ScriptedLLM(*script),
            tools=[add],
            on_event=on_event,
            retry_delay=0,
            **options,
        )
    return re.sub(r"\d+(\.\d+)? s\b", "N s", stream.getvalue()).splitlines()


def test_each_iteration_and_each_call_is_told():
    """What begins, what came of it, and what it all took."""
    assert told(called(call("add", a=1, b=2)), "Three.") == [
        "iteration 1: calling the model",
        "iteration 1: 1 tool call, N s",
        '  add {"a": 1, "b": 2}',
        '  add {"a": 1, "b": 2}: done in N s',
        "iteration 2: calling the model",
        "iteration 2: an answer, N s",
        "answered: 2 iterations, 1 tool call, N s",
    ]


def test_tokens_are_told_where_the_provider_tells():
    """As in and out."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    message = {"role": "assistant", "content": "Hello."}

    assert "iteration 1: an answer, 10 + 5 tokens, N s" in told(
        {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    )


def test_the_first_token_of_a_stream_and_the_cost_are_told():
    def stream(messages):
        yield Chunk("Hello.")
        yield Chunk(usage=Usage(10, 5), finish_reason="stop")

    assert "iteration 1: an answer, 10 + 5 tokens, N s (first token after N s), $0.25" in told(
        stream, limits=Limits(cost_of=lambda response: 0.25)
    )


def test_a_failed_call_is_told_with_its_reason_on_one_line():
    """A terminal never obeys what a tool raised."""
    lines = told(called(call("add", a=-1, b=2)), "Oh.")

    assert (
        '  add {"a": -1, "b": 2}: failed in N s: '
        "Error: ValueError: a is negative\\x1b[2J and more" in lines
    )


def test_a_call_that_makes_no_sense_is_told():
    """It never started, so nothing but this tells of it."""
    lines = told(called(call("add", a="x", b=2)), "Oh.")

    (line,) = [line for line in lines if "not run" in line]
    assert line.startswith('  add {"a": "x", "b": 2}: not run: a: ')


def test_a_retry_is_told():
    """Why the model has to be asked again, and when."""
    assert "iteration 1: attempt 1 failed, retry in N s: ConnectionError: gone" in told(
        ConnectionError("gone"), "Hello."
    )


def test_a_run_without_an_answer_is_told_by_its_stop_reason():
    """The last line is there on every exit."""
    lines = told(called(call("add", a=1, b=2)), max_iterations=1)

    assert lines[-1] == "max_iterations_reached: 1 iteration, 1 tool call, N s"


def test_quiet_is_no_observer_at_all():
    """So that the run makes no events."""
    with make_progress(io.StringIO(), quiet=True) as on_event:
        assert on_event is None


def test_events_that_tell_nothing_have_no_lines():
    assert list(ProgressLines().lines(RunStarted(agent_name="", run_id="", at=0.0))) == []


def test_a_terminal_is_shown_live_progress(endpoint, on_terminal, calls):
    """Lines of what happened stay; the view of what is under way comes, and goes when the run is over."""
    pytest.importorskip("rich")
    is_drawn = threading.Event()

    def answer():  # a quick run ends before the view is drawn
        assert is_drawn.wait(60)
        return calls(("list_files", {"folder": "docs"}))

    def watch(shown):
        if b"calling the model" in shown:
            is_drawn.set()

    endpoint.script = [answer, "There is guide.md."]

    code, shown = on_terminal("Go", streams=("stderr",), env=LIVE, watch=watch)

    assert code == 0
    assert "\x1b[?25l" in shown  # the cursor is hidden
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # and shown again
    assert "  1/10  calling the model 0." in shown
    assert "iterations " in shown
    left = left_on(shown)
    assert re.sub(r"\d+\.\d+ s", "N s", left) == (
        "iteration 1: 1 tool call, 10 + 5 tokens, N s\n"
        '  list_files {"folder": "docs"}: done in N s\n'
        "iteration 2: an answer, 10 + 5 tokens, N s\n"
        "answered: 2 iterations, 1 tool call, N s\n"
    )


def left_on(shown):
    """What stays on a terminal: lines that were wiped are gone."""
    lines = [""]
    for piece in re.split(r"(\n|\x1b\[1A|\x1b\[2K)", shown.replace("\r", "")):
        if piece == "\n":
            lines.append("")
        elif piece == "\x1b[1A":
            lines.pop()
        elif piece == "\x1b[2K":
            lines[-1] = ""
        else:
            lines[-1] += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", piece)
    return "\n".join(lines)


def test_an_interrupted_run_leaves_the_terminal_in_order(endpoint, command, root, hang):
    """The view is gone, the cursor is there, and the reason stands on a line of its own."""
    pytest.importorskip("rich")
    endpoint.script = [hang]
    reading, terminal = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "200", **LIVE}
    process = subprocess.Popen(command("Go"), cwd=root, env=env, stdout=terminal, stderr=terminal)
    os.close(terminal)

    assert endpoint.asked.wait(30)
    process.send_signal(signal.SIGINT)
    pieces = []
    with contextlib.suppress(OSError):  # Linux says EIO where the other end is closed
        while piece := os.read(reading, 65536):
            pieces.append(piece)
    os.close(reading)

    assert process.wait(30) == 130
    shown = b"".join(pieces).decode()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    lines = left_on(shown).splitlines()
    assert lines[0].startswith("cancelled: 1 iteration, 0 tool calls, ")
    assert lines[-1].startswith("treadle: the run was cancelled (")
    assert not [line for line in lines if "calling the model" in line]


@pytest.mark.parametrize("why", ["rich is missing", "a dumb terminal", "nobody looks"])
def test_a_terminal_without_more_gets_plain_lines(endpoint, on_terminal, without, why):
    """rich is an extra, and needs a terminal that understands it; what CI keeps is to be read later."""
    endpoint.script = ["Hello."]
    env = {"TERM": "dumb"} if why == "a dumb terminal" else {"CI": "true"}
    if why == "rich is missing":
        env = {**LIVE, **without("rich")}

    code, shown = on_terminal("Go", env=env)

    assert code == 0
    assert "\x1b" not in shown
    assert shown.startswith("iteration 1: calling the model\n")
    assert shown.endswith("Hello.\n")
