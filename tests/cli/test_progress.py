"""The progress of a run: what is told of it, live on a terminal, in plain lines elsewhere."""

import io
import re

import pytest

from treadle import Loop, tool
from treadle.cli.narrator import Narrator
from treadle.cli.progress import make_progress
from treadle.cli.text import clean, counted, one_line, timed
from treadle.testing import ScriptedLLM, call
from treadle.testing import calls as called
from treadle.types import IterationStarted, RunStarted, ToolStarted

QUESTION = [{"role": "user", "content": "Go"}]


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
        "iteration 1: asking the model",
        "iteration 1: 1 tool call, N s",
        '  add {"a": 1, "b": 2}',
        '  add {"a": 1, "b": 2}: done in N s',
        "iteration 2: asking the model",
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
    assert "iteration 1: try 1 failed, again in N s: ConnectionError: gone" in told(
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


def test_what_is_under_way_is_known():
    """The model, then the tools that run."""
    narrator = Narrator()
    made = called(call("add", a=1, b=2))
    shown = []

    def observe(event):
        list(narrator.lines(event))
        if isinstance(event, (IterationStarted, ToolStarted)):
            shown.append(narrator.under_way)

    Loop.run_sync(QUESTION, ScriptedLLM(made, "Three."), tools=[add], on_event=observe)

    assert shown == [
        "iteration 1: asking the model 0 s",
        "iteration 1: add 0 s",
        "iteration 2: asking the model 0 s",
    ]


def test_events_that_tell_nothing_have_no_lines():
    assert list(Narrator().lines(RunStarted(agent_name="", run_id="", at=0.0))) == []


def test_a_terminal_is_shown_live_progress(endpoint, on_terminal, calls):
    """Lines of what happened stay; the one that tells what is under way comes and goes."""
    pytest.importorskip("rich")
    endpoint.script = [calls(("list_files", {"folder": "docs"})), "There is guide.md."]

    code, shown = on_terminal("Go", streams=("stderr",))

    assert code == 0
    assert "\x1b[?25l" in shown  # the cursor is hidden
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # and shown again
    assert "asking the model 0 s" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert 'list_files {"folder": "docs"}: done in' in plain
    assert "answered: 2 iterations, 1 tool call" in plain


def test_a_terminal_never_obeys_a_model(endpoint, on_terminal, calls):
    """Neither in the name of a tool nor in its arguments, which the model wrote; nor as markup."""
    endpoint.script = [calls(("[red]x\x1b[2J", '{"a": "\x1b]0;owned\x07"}')), "Done."]

    code, shown = on_terminal("Go", streams=("stderr",))

    assert code == 0
    assert "[red]x\\x1b[2J" in shown
    assert "\x1b]0;" not in shown


@pytest.mark.parametrize("why", ["rich is missing", "a dumb terminal"])
def test_a_terminal_without_more_gets_plain_lines(endpoint, on_terminal, without, why):
    """rich is an extra, and needs a terminal that understands it."""
    endpoint.script = ["Hello."]
    env = without("rich") if why == "rich is missing" else {"TERM": "dumb"}

    code, shown = on_terminal("Go", env=env)

    assert code == 0
    assert "\x1b" not in shown
    assert shown.startswith("iteration 1: asking the model\n")
    assert shown.endswith("Hello.\n")


def test_text_is_cleaned():
    """Line ends and tabs are harmless."""
    assert clean("a\r\nb\tc\x00\x7f\x85\u2028\u202ed\U0001f600é") == (
        "a\nb\tc\\x00\\x7f\\x85\\u2028\\u202ed\U0001f600é"
    )


def test_text_is_put_on_one_line_and_cut():
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * 200, 10) == "x" * 10 + "..."
    assert len(one_line("\x1b" * 10_000_000, 10)) < 20


def test_numbers_and_durations_are_told_as_people_do():
    assert (counted(1, "call"), counted(0, "call")) == ("1 call", "0 calls")
    assert (timed(0.004), timed(1.26), timed(75.2)) == ("0.00 s", "1.3 s", "75 s")
