"""`treadle report`, `treadle run --record` and `--report`: what they write, and what they say if they cannot."""

import functools
import importlib
import signal
import subprocess
import sys

import pytest
from tests.programs import run_program

from treadle import Loop
from treadle.cli import main
from treadle.recording.reader import read_recording
from treadle.testing import replay

TOOLS = '''
import time
from treadle import tool

@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@tool
def sleepy() -> str:
    """Hang in a thread."""
    print("asleep", flush=True)
    time.sleep(60)

@tool(requires_approval=True)
def wipe() -> str:
    """Wipe everything."""
    return "gone"
'''


@pytest.fixture
def tools(root):
    """A module of tools in the folder in which the command runs."""
    (root / "report_tools.py").write_text(TOOLS)
    yield
    sys.modules.pop("report_tools", None)


@pytest.fixture
def reported(run_main):
    return functools.partial(run_main, "report")


def test_a_recording_of_the_command_can_be_replayed(recorded, tools):
    """It has the log of the run."""
    module = importlib.import_module("report_tools")
    (run,) = read_recording(recorded).runs
    loop = Loop(tools=[module.add], name=run.agent_name)
    assert replay(recorded, loop).output == "Three."


@pytest.fixture
def recorded(asked, endpoint, calls, root, tools):
    """A record that `treadle run` made: its path."""
    endpoint.script = [calls(("add", {"a": 1, "b": 2})), "Three."]
    code, out, _ = asked(
        "1 + 2?", "--tools", "report_tools:add", "--quiet", "--record", "run.jsonl"
    )
    assert (code, out) == (0, "Three.\n")
    return root / "run.jsonl"


def test_a_run_is_recorded(recorded):
    """All of it, from the question to the answer."""
    (run,) = read_recording(recorded).runs
    assert (run.status, run.agent_name, run.model) == ("ok", "treadle run", "m")
    assert [message["role"] for message in run.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [(call.name, call.content) for call in run.calls] == [("add", "3")]


def test_a_report_is_put_beside_its_record(recorded, reported, root):
    """Its name goes to stdout, for who wants to open it."""
    assert reported("run.jsonl") == (0, "run.html\n", "")
    page = (root / "run.html").read_text(encoding="ascii")
    assert page.startswith("<!doctype html>")
    assert "Three." in page


def test_a_report_goes_where_it_is_told_to(recorded, reported, root):
    """To a file, which may be there already, or to stdout."""
    (root / "out.html").write_text("x" * 1_000_000)
    assert reported("run.jsonl", "-o", "out.html") == (0, "out.html\n", "")
    code, out, err = reported("run.jsonl", "-o", "-")
    assert (code, err) == (0, "")
    assert out == (root / "out.html").read_text(encoding="ascii")
    assert not (root / "run.html").exists()


def test_a_run_can_be_reported_at_once(asked, endpoint, root):
    """With a record, or without one."""
    endpoint.script = ["Hello.", "Hello again."]
    assert asked("Hi?", "--quiet", "--report", "page.html") == (0, "Hello.\n", "")
    assert "Hello." in (root / "page.html").read_text()
    made = asked("Hi?", "--quiet", "--report", "page.html", "--record", "run.jsonl")
    assert made == (0, "Hello again.\n", "")
    assert "Hello again." in (root / "page.html").read_text()
    assert len(read_recording(root / "run.jsonl").runs) == 1
    assert sorted(path.suffix for path in root.glob("*.[jh]*")) == [".html", ".jsonl"]


def test_a_run_that_fails_is_recorded_too(asked, endpoint, root):
    """And reported, with why."""
    endpoint.script = [400]
    code, _, _ = asked("Hi?", "--quiet", "--record", "run.jsonl", "--report", "page.html")
    assert code == 1
    (run,) = read_recording(root / "run.jsonl").runs
    assert (run.status, run.stop_reason) == ("error", "llm_error")
    assert "this is status 400" in (root / "page.html").read_text()


def test_a_run_that_waits_is_recorded_too(asked, endpoint, calls, root, tools):
    """With the calls that wait."""
    endpoint.script = [calls(("wipe", {}))]
    given = ("Hi?", "--quiet", "--tools", "report_tools:wipe", "--record", "run.jsonl")
    code, _, _ = asked(*given, "--report", "page.html")
    assert code == 1
    (run,) = read_recording(root / "run.jsonl").runs
    assert (run.status, [one["name"] for one in run.pending]) == ("paused", ["wipe"])
    assert "Waiting for approval" in (root / "page.html").read_text()


def test_a_run_that_is_interrupted_is_recorded_and_reported(command, endpoint, calls, root, tools):
    """Ctrl-C ends it in order; the call that was under way is in both."""
    endpoint.script = [calls(("sleepy", {})), "never"]
    made = command(
        "Hi?", "--tools", "report_tools:sleepy", "--record", "run.jsonl", "--report", "page.html"
    )
    with subprocess.Popen(
        made, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in process.stderr:
                if "asleep" in line:
                    break
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=50)
        finally:
            process.kill()

    assert process.returncode == 130
    (run,) = read_recording(root / "run.jsonl").runs
    assert (run.status, run.stop_reason) == ("error", "cancelled")
    assert [call.name for call in run.calls] == ["sleepy"]
    assert run.messages[-1]["role"] == "tool"
    assert "Cancelled" in (root / "page.html").read_text()


def test_a_file_that_is_no_recording_is_not_recorded_over(asked, endpoint, root):
    (root / "notes.txt").write_text("buy milk\n")
    endpoint.script = ["never said"]
    code, out, err = asked("Hi?", "--record", "notes.txt")
    assert (code, out) == (2, "")
    assert "--record: notes.txt is not a recording; nothing was written to it" in err
    assert (root / "notes.txt").read_text() == "buy milk\n"
    assert endpoint.bodies == []


@pytest.mark.parametrize("option", ["--record", "--report"])
def test_a_file_that_cannot_be_written_is_told_before_anything_runs(asked, endpoint, root, option):
    """In one line, with the code of bad usage."""
    endpoint.script = ["never said"]
    for path, why in (("nowhere/x", "No such file or directory"), ("docs", "Is a directory")):
        code, out, err = asked("Hi?", option, path)
        assert (code, out) == (2, "")
        assert err == (
            f"treadle run: error: {option}: cannot write {path}: {why} (see treadle run --help)\n"
        )
    assert endpoint.bodies == []


def test_two_recordings_are_compared(asked, endpoint, calls, root, tools, reported, recorded):
    """The first difference is in the terminal and in the report."""
    endpoint.script = [calls(("add", {"a": 1, "b": 3})), "Four."]
    asked("1 + 2?", "--tools", "report_tools:add", "--quiet", "--record", "other.jsonl")
    code, out, err = reported(str(recorded), "--diff", "other.jsonl", "-o", "diff.html")
    assert (code, out) == (0, "diff.html\n")
    assert err.startswith("the first difference is in iteration 1: ")
    assert "First difference" in (root / "diff.html").read_text()
    code, _, err = reported("other.jsonl", "--diff", "other.jsonl")
    assert (code, err) == (0, "there is no difference\n")


def test_a_recording_to_compare_with_is_read_like_the_other(reported, recorded):
    code, _, err = reported(str(recorded), "--diff", "nowhere.jsonl")
    assert code == 2
    assert "cannot read nowhere.jsonl: No such file or directory" in err
    code, _, err = reported(str(recorded), "--diff", "x.jsonl", "-o", str(recorded))
    assert code == 2


def test_record_and_report_are_two_files(asked, endpoint):
    code, _, err = asked("Hi?", "--record", "x", "--report", "./x")
    assert code == 2
    assert "expected two files, got one" in err
    assert endpoint.bodies == []


def broken(root):
    (root / "notes.txt").write_text("buy milk\n")
    (root / "later.jsonl").write_text('{"treadle_recording": 5}\n')
    (root / "odd.jsonl").write_text("\u001b[31m\n")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("nowhere.jsonl", "cannot read nowhere.jsonl: No such file or directory"),
        ("docs", "cannot read docs: Is a directory"),
        ("notes.txt", "notes.txt:1: this is not a recording"),
        ("later.jsonl", "later.jsonl:1: the recording has version 5; this treadle reads version 4"),
        ("odd.jsonl", "odd.jsonl:1: this is not a recording: it is not JSON"),
    ],
)
def test_what_is_no_record_is_told_in_one_line(reported, root, path, why):
    """With the file, the line and the code of bad usage; nothing is written."""
    broken(root)
    before = sorted(root.iterdir())
    code, out, err = reported(path)
    assert (code, out) == (2, "")
    assert err.startswith(f"treadle report: error: {why}")
    assert err.count("\n") == 1
    assert sorted(root.iterdir()) == before


def test_a_report_never_replaces_its_record(recorded, reported, root):
    """Whatever its name is."""
    page = root / "run.html"
    recorded.rename(page)
    before = page.read_bytes()
    for given in (("run.html",), ("run.html", "-o", "./run.html")):
        code, _, err = reported(*given)
        assert code == 2
        assert "is the recording itself" in err
    assert page.read_bytes() == before


def test_a_report_that_cannot_be_written_is_told(recorded, reported):
    code, out, err = reported("run.jsonl", "-o", "nowhere/page.html")
    assert (code, out) == (2, "")
    assert "cannot write nowhere/page.html: No such file or directory" in err


def test_a_torn_record_is_reported_and_the_line_is_told(recorded, reported, root):
    """The page is made all the same."""
    recorded.write_bytes(recorded.read_bytes()[:-40])
    code, out, err = reported("run.jsonl")
    assert (code, out) == (0, "run.html\n")
    assert "the line is torn" in err
    assert "Did not end" in (root / "run.html").read_text()


def test_the_commands_are_in_the_help(reported, capsys):
    """With what they take."""
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    shown = capsys.readouterr().out
    assert "RUN.jsonl" in shown
    assert "--output" in shown
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    shown = capsys.readouterr().out
    assert "--record RUN.jsonl" in shown
    assert "--report REPORT.html" in shown


def test_the_help_imports_no_command():
    """What a command needs (reports, jsonschema) is imported when the command runs."""
    code = (
        "import sys; from treadle.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print({'treadle.reports', 'jsonschema'} & set(sys.modules))"
    )
    done = run_program([sys.executable, "-c", code], check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_chain_of_links_too_long_to_follow_is_bad_usage(reported, recorded, root):
    """Python 3.11 follows links recursively."""
    target = root / "target.html"
    for number in range(1500):
        link = root / f"link{number}"
        link.symlink_to(target)
        target = link
    code, out, err = reported(recorded.name, "-o", str(target))

    assert (code, out) == (2, "")
    assert "Too many levels of symbolic links" in err
