"""Text of models, tools, servers and users on a terminal: nothing acts, hides or looks like a prompt."""

import json
import logging
import os
import sys
import unicodedata

import pytest
from tests.guides.terminal import Terminal
from tests.programs import run_program

from treadle import Loop, tool
from treadle.cli import main
from treadle.cli.approvals import question_lines
from treadle.durable import SQLiteJournal
from treadle.reports.text import escape_controls, fixed_width, one_line
from treadle.results import PendingCall
from treadle.testing import ScriptedLLM, call, calls

ACTING = [
    "\x1b[2J",
    "\x1b]0;t\x07",
    "\x1b]8;;http://x\x07y",
    "\x9b2J",
    "\x08",
    "\x7f",
    "\x00",
    "a\rb",
]
HIDDEN = {
    "zero-width": "\u200b\u200c\u200d\u2060\ufeff",
    "direction": "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    "tags": "".join(chr(0xE0000 + ord(char)) for char in "delete all"),
    "reserved tags": "\U000e0000\U000e0002\U000e0fff",
    "selectors": "\ufe00\ufe0d\U000e0100\U000e01ef",
    "fillers": "\u115f\u1160\u3164\uffa0\u17b4\u17b5\u034f\u180e",
    "formats": "\u00ad\u2061\u2064\u206a\u206f\ufff9\ufffb\U0001d173\U00013430",
    "lines": "\u2028\u2029",
    "surrogates": "\ud800\udcff",
}
PLAIN = "Grüße, 日本 שלום हिन्दी \U0001f600 \u2764\ufe0f\tend\n"


def odd_of(text):
    """The characters that act or hide, but for line ends and tabs."""
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {
        char
        for char in text
        if char not in "\n\t"
        and (unicodedata.category(char) in kinds or any(char in one for one in HIDDEN.values()))
    }


@pytest.mark.parametrize("text", [*ACTING, *HIDDEN.values()], ids=ascii)
def test_each_such_character_is_escaped_and_none_is_lost(text):
    shown = escape_controls(f"one{text}two")
    assert odd_of(shown) == set()
    assert shown.encode("ascii").decode("unicode_escape") == f"one{text}two"
    assert odd_of(one_line(text)) == odd_of(fixed_width(text)) == set()


def test_ordinary_text_stays_as_it_is():
    assert escape_controls(PLAIN) == PLAIN
    assert escape_controls(PLAIN, is_terminal=False) == PLAIN


@pytest.mark.parametrize("text", HIDDEN.values(), ids=list(HIDDEN))
def test_a_pipe_keeps_the_characters_of_a_text(text):
    kept = text if "\ud800" not in text else "\\ud800\\udcff"
    assert escape_controls(text, is_terminal=False) == kept


HOSTILE = "x\x1b[2J\x9b1m\u200b\U000e0041\u202ey"
SHOWN = "x\\x1b[2J\\x9b1m\\u200b\\U000e0041\\u202ey"


def test_the_answer_of_a_run(endpoint, on_terminal):
    endpoint.script = [f"{HOSTILE}\n{PLAIN}"]
    code, shown = on_terminal("Go", streams=("stdout",))
    assert (code, shown) == (0, f"{SHOWN}\n{PLAIN}\n")


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {}], ids=["lines", "live"])
@pytest.mark.parametrize("status", [200, 400])
def test_the_progress_and_the_errors_of_a_run(
    endpoint, on_terminal, calls, env, status, monkeypatch
):
    """Names and arguments of calls, results, and what a server says in an error."""
    endpoint.script = [
        calls((f"list{HOSTILE}", {"a": HOSTILE}), ("read_file", {"path": HOSTILE})),
        "Ok.",
    ]
    if status == 400:
        endpoint.step = lambda: (400, {"error": {"message": f"{HOSTILE}\nRun it? [y/n] y"}})
    code, shown = on_terminal("Go", env={**env, "NO_COLOR": "1"})
    assert code == (0 if status == 200 else 1)
    for text in HOSTILE[1:-1]:
        assert text == "\x1b" or text.isascii() or text not in shown
    assert "\x1b[2J" not in shown
    assert "\nRun it?" not in shown


def stored(root, *steps, **options):
    """A run in a journal, of a program, with hostile names and texts everywhere."""

    @tool(name="wipe", requires_approval=True)
    def wipe(what: str) -> str:
        """Wipe."""
        return HOSTILE

    loop = Loop(
        name=f"agent {HOSTILE}", tools=[wipe], journal=SQLiteJournal(root / "runs.db"), run_id="a"
    )
    return loop.run_sync(f"Go {HOSTILE}\nuser: no", ScriptedLLM(*steps), **options)


def on_a_terminal(root, *args):
    with Terminal(
        [sys.executable, "-m", "treadle", *args], cwd=root, env={**os.environ, "TERM": "dumb"}
    ) as terminal:
        code = terminal.wait()
    return code, terminal.screen


@pytest.mark.parametrize("command", [("runs",), ("show", "a")])
@pytest.mark.parametrize("ends", ["waits", "answered", "failed"])
def test_runs_and_show(root, command, ends):
    steps = {
        "waits": [calls(call("wipe", what=HOSTILE))],
        "answered": [f"{HOSTILE}\nrun b: ok"],
        "failed": [ValueError(f"{HOSTILE}\nrun b: ok")],
    }
    stored(root, *steps[ends])
    code, shown = on_a_terminal(root, *command, "--journal", "runs.db")
    assert code == 0
    assert odd_of(shown) == set()
    assert "\\x1b[2J" in shown
    assert ends == "answered" or "\nrun b: ok" not in shown


def test_the_command_that_resumes_a_run_of_another_program_names_its_loop(root):
    stored(root, calls(call("wipe", what="all")))
    _, shown = on_a_terminal(root, "show", "a", "--journal", "runs.db")
    commands = [line.strip() for line in shown.splitlines() if "treadle resume" in line]
    assert len(commands) == 2
    for line in commands:
        assert line.endswith("--loop MODULE:NAME --journal runs.db")
    waiting = SQLiteJournal(root / "runs.db").run("a").waiting[0].id
    done = run_program(
        [sys.executable, "-m", "treadle", "decide", "a", "--approve", waiting, "--journal", "runs.db"],
        cwd=root, check=True,
    )  # fmt: skip
    assert "treadle resume a --loop MODULE:NAME --journal runs.db" in done.stderr


QUESTIONS = [
    "Run it? [y/n] y\nDone.\n'read' needs approval",
    "x\r\nRun it? [y/n] ",
    "x\u2028Run it?\u2029",
    "x\x0bRun it?\x0c\x85\x1c",
    "x\x1b[1A\x1b[2K",
    f"x{' ' * 500}Run it? [y/n] y",
    "x" * 5_000,
    f"x{chr(0x3000) * 300}日本",
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda text: ascii(text[:20]))
def test_a_question_cannot_imitate_a_prompt(question, root):
    """In a real terminal: every line of it that is not the first has a mark."""
    (root / "show_question.py").write_text(
        "import json, sys\n"
        "from treadle.cli.approvals import question_lines\n"
        "from treadle.cli.streams import note\n"
        "from treadle.results import PendingCall\n"
        "question, arguments = json.loads(sys.argv[1])\n"
        "for line in question_lines(PendingCall('c', 'wipe', arguments, question), sys.stderr):\n"
        "    note(line)\n"
        "print('END')\n"
    )
    arguments = {"text": f"{question}\n" + "y " * 500}
    with Terminal(
        [sys.executable, "show_question.py", json.dumps([question, arguments])],
        cwd=root,
        env={**os.environ, "COLUMNS": "80"},
    ) as terminal:
        assert terminal.wait() == 0
    first, *rest = terminal.screen.removesuffix("END\n").splitlines()
    assert all(line.startswith("  | ") for line in rest)
    assert all(len(line.encode()) < 80 or not line.isascii() for line in [first, *rest])
    assert odd_of(terminal.screen) == set()
    whole = first + "".join(line.removeprefix("  | ") for line in rest)
    assert whole.endswith(json.dumps(arguments))


def test_a_question_outside_a_terminal_is_one_line():
    pending = PendingCall("c", "wipe", {"what": "all\n" * 99}, "Wipe\nit?")
    (line,) = question_lines(pending, None)
    assert line == f"Wipe it?: {json.dumps(pending.arguments)}"


def test_bad_usage_is_escaped(root):
    code, shown = on_a_terminal(root, "run", "hi", "--model", HOSTILE)
    assert code == 2
    assert odd_of(shown) == set()
    code, shown = on_a_terminal(root, "run", "hi", f"--{HOSTILE}")
    assert code == 2
    assert odd_of(shown) == set()


def test_what_is_logged_is_escaped(capsys):
    """Where nothing is configured, Python writes warnings of the log to stderr."""
    with pytest.raises(SystemExit):
        main(["--version"])
    record = logging.LogRecord("treadle", logging.WARNING, "", 0, "it says %s", (HOSTILE,), None)
    assert logging.lastResort.format(record) == f"it says {SHOWN}"
