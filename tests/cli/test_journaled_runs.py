"""Runs of the command in a journal: killed, shown, continued, decided, steered and cancelled by others."""

import contextlib
import io
import json
import os
import shlex
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from tests.cli.places import ProviderFolder
from tests.guides.terminal import Terminal
from tests.programs import run_program

from treadle import Loop, tool
from treadle.cli import main
from treadle.cli.arguments import make_parser
from treadle.cli.exits import UsageError
from treadle.cli.journals import CommandJournal, with_stored
from treadle.cli.stored_steps import steps_of
from treadle.durable import SQLiteJournal
from treadle.limits import LIMITS
from treadle.reports import read_recording
from treadle.testing import ScriptedLLM, call, calls, check_history

PROVIDER = """
from pathlib import Path
from treadle.providers import Provider
from treadle.testing import call, calls

ARGUMENTS = {"add": {"a": 1, "b": 2}, "wipe": {"what": "all"}}

def open_model(name, *, base_url=None, api_key=None, **opts):
    '''Calls the tools that the question names, those of one word together; then it says what it heard.'''

    def model(messages):
        with Path("asked").open("a") as file:
            file.write("x")
        texts = [message["content"] for message in messages if message["role"] == "user"]
        results = [message["content"] for message in messages if message["role"] == "tool"]
        words = texts[0].split()
        done = sum(message["role"] == "assistant" for message in messages)
        if done < len(words):
            return calls(*(call(one, **ARGUMENTS.get(one, {})) for one in words[done].split("+")))
        return f"{name} heard {', '.join(texts)}: {', '.join(results)}"

    return model

DEMO = Provider("demo", "Demo", open_model, prefixes=("demo-",), needs_key=False)
"""
TOOLS = """
import time
from pathlib import Path
from treadle import tool

def note(name):
    with Path(name).open("a") as file:
        file.write("x")

def wait(name):
    note(name)
    while not Path("gate").exists():
        time.sleep(0.02)
    return "waited"

@tool
def add(a: int, b: int) -> int:
    '''Add two numbers.'''
    note("added")
    return a + b

@tool
def pay() -> str:
    '''Wait for the gate.'''
    return wait("paid")

@tool(idempotent=True)
def probe() -> str:
    '''Wait for the gate, as often as you like.'''
    return wait("probed")

@tool(requires_approval=True)
def wipe(what: str) -> str:
    '''Wipe.'''
    note("wiped")
    return f"wiped {what}"

ALL = [add, pay, probe, wipe]
"""
PROGRAM = """
import sys
from my_tools import ALL
from treadle import Loop
from treadle.durable import SQLiteJournal
from treadle.reports import read_recording
loop = Loop(tools=ALL, name="shop", llm_send_fn="demo:shop")
number = 5
if __name__ == "__main__":
    loop.run_sync("pay", journal=SQLiteJournal("runs.db"), run_id="shop")
"""
SECONDS = 60


class Place(ProviderFolder):
    """A folder with a scripted provider and tools, and ways to start the command on its journal."""

    def __init__(self, folder):
        files = {"demo.py": PROVIDER, "my_tools.py": TOOLS, "program.py": PROGRAM}
        super().__init__(folder, files, ["demo"])
        self.path = folder / "runs.db"
        self.journal = SQLiteJournal(self.path)
        self.environment |= {
            "TZ": "UTC",
            "HOME": str(folder / "home"),
            "XDG_DATA_HOME": "",
            "TREADLE_JOURNAL": str(self.path),
        }

    def __call__(self, *args, cwd=None, env=None, stdin=""):
        """Run the command to its end; commands that need no model run in this process, which is faster."""
        env = {**self.environment, **(env or {})}
        command = [sys.executable, "-m", "treadle", *args]
        if args[0] not in {"run", "resume"}:
            out, err, given = io.StringIO(), io.StringIO(), io.StringIO(stdin)
            with (
                mock.patch.dict(os.environ, env),
                mock.patch.object(sys, "stdin", given),
                contextlib.chdir(cwd or self.folder),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                try:
                    code = main(args)
                except SystemExit as ended:
                    code = ended.code
            return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
        return run_program(command, cwd=cwd or self.folder, env=env, input=stdin, timeout=SECONDS)

    def ask(self, question, *args, run_id="tea", **how):
        return self(*self.run_arguments(question, run_id), *args, **how)

    @staticmethod
    def run_arguments(question, run_id="tea"):
        parts = ("--tools", "my_tools:ALL", "--model", "demo:echo")
        return ("run", question, "--run-id", run_id, *parts)

    @contextlib.contextmanager
    def started(self, *args, until):
        """Start the command, and wait until a tool has made a file; kill the process in the end."""
        process = subprocess.Popen(
            [sys.executable, "-m", *args],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                end = time.monotonic() + SECONDS
                while not (self.folder / until).exists():
                    assert process.poll() is None, process.stderr.read()
                    assert time.monotonic() < end, "the tool did not start"
                    time.sleep(0.02)
                yield process
            finally:
                process.kill()

    def asking(self, question, *args, until):
        return self.started("treadle", *self.run_arguments(question), *args, until=until)

    def count(self, name):
        """How often a tool has run, or the model was asked."""
        file = self.folder / name
        return len(file.read_text()) if file.exists() else 0

    def shown(self, run_id="tea"):
        """What `treadle show` says, as data."""
        return json.loads(self("show", run_id, "--json").stdout)

    def status(self, run_id="tea"):
        return self.shown(run_id)["status"]

    def waiting(self, run_id="tea"):
        [waiting] = self.shown(run_id)["waiting"]
        return waiting["id"]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def paused(place):
    """A run that waits for approval of a call."""
    done = place.ask("wipe", "--quiet")
    assert (done.returncode, done.stdout) == (1, "")
    return place.waiting()


class TestKilled:
    def test_another_process_goes_on_with_the_id_alone(self, place):
        with place.asking("add pay add", until="paid") as process:
            process.kill()
        interrupted = place("show", "tea").stdout
        assert place.status() == "interrupted"

        done = place("resume", "tea", cwd="/")

        assert "run tea: interrupted\n" in interrupted
        assert 'add {"a": 1, "b": 2}: done in ' in interrupted
        assert "pay {}: started 20" in interrupted
        assert interrupted.endswith("no outcome\nto continue it: treadle resume tea\n")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("echo heard add pay add: 3, Unknown: ")
        assert (place.count("added"), place.count("paid")) == (2, 1)
        assert place.count("asked") == 4  # once for each iteration
        assert "pay {}: started 20" in (ended := place("show", "tea").stdout)
        assert ", and its outcome is unknown" in ended
        check_history(place.shown()["parts"][-1]["result"]["messages"])

    def test_a_call_that_may_run_twice_runs_again(self, place):
        with place.asking("probe", until="probed") as process:
            process.kill()
        place.open_gate()

        done = place("resume", "tea")

        assert done.stdout == "echo heard probe: waited\n"
        assert place.count("probed") == 2

    def test_a_person_may_be_asked_about_a_call_that_may_have_run(self, place):
        with place.asking("pay", until="paid") as process:
            process.kill()
        asked = place("resume", "tea", "--on-unknown", "ask")
        assert asked.returncode == 1
        assert "--approve " in asked.stderr
        place.open_gate()

        done = place("resume", "tea", "--approve", place.waiting())

        assert done.stdout == "echo heard pay: waited\n", done.stderr
        assert place.count("paid") == 2

    def test_the_same_command_goes_on_as_well(self, place):
        with place.asking("pay", until="paid") as process:
            process.kill()

        assert place.ask("pay").stdout.startswith("echo heard pay: Unknown: ")

    def test_a_changed_tool_is_named(self, place):
        with place.asking("add pay", until="paid") as process:
            process.kill()
        file = place.folder / "my_tools.py"
        file.write_text(file.read_text().replace("Add two numbers.", "Subtract two numbers."))

        done = place("resume", "tea", "--quiet")

        assert (done.returncode, done.stdout) == (1, "")
        assert "in iteration 1" in done.stderr
        assert "'add'" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert place.status() == "interrupted"

    def test_a_folder_that_is_gone_is_bad_usage(self, place):
        folder = place.folder / "there"
        folder.mkdir()
        place.ask("wipe", cwd=folder)
        folder.rename(place.folder / "elsewhere")

        done = place("resume", "tea")

        assert done.returncode == 2
        assert f"the folder {folder}, which cannot be entered" in done.stderr


class TestCtrlC:
    @pytest.mark.parametrize("question", ["pay", "pay+probe"], ids=["one call", "two at once"])
    def test_it_leaves_a_run_that_can_be_continued_and_says_how(self, place, question):
        with place.asking(question, until="paid") as process:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=SECONDS)

        assert (process.returncode, out) == (130, "")
        assert "Traceback" not in err
        start, _, command = err.splitlines()[-1].partition("run: ")
        assert start == "treadle: interrupted; to continue the "
        place.open_gate()
        done = place(*shlex.split(command)[1:])
        assert done.stdout.startswith(f"echo heard {question}: Unknown: ")
        assert place.count("paid") == 1

    def test_the_command_that_it_says_has_the_journal(self, place):
        with place.asking("pay", "--journal", "a b.db", until="paid") as process:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=SECONDS)

        assert err.endswith("treadle resume tea --journal 'a b.db'\n")


class TestDecisions:
    def test_a_run_that_waits_says_what_to_do(self, place):
        done = place.ask("wipe")

        call_id = place.waiting()
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith(
            "treadle: the run waits for approval of wipe; to decide: treadle resume tea with\n"
            f'  --approve {call_id}   \'wipe\' needs approval: {{"what": "all"}}\n'
        )
        shown = place("show", "tea").stdout
        assert f"  treadle resume tea --approve {call_id}\n" in shown
        assert place("resume", "tea").returncode == 1  # nothing is decided
        assert place.count("wiped") == 0

    def test_another_process_decides_and_one_goes_on(self, place, paused):
        decided = place("decide", "tea", "--approve", paused)
        assert decided.returncode == 0
        assert "to continue the run: treadle resume tea" in decided.stderr
        assert "  approved\nto continue it: treadle resume tea\n" in place("show", "tea").stdout

        done = place("resume", "tea")

        assert done.stdout == "echo heard wipe: wiped all\n"
        assert place.count("wiped") == 1
        assert f"part 2: resumed\n  {paused}: approved\n" in place("show", "tea").stdout

    def test_resume_takes_decisions(self, place, paused):
        done = place("resume", "tea", "--deny", f"{paused}=not = today")

        assert done.stdout.startswith("echo heard wipe: Not run: ")
        assert "not = today" in done.stdout
        assert place.count("wiped") == 0

    def test_other_arguments_may_be_given(self, place, paused):
        done = place("resume", "tea", "--edit", f'{paused}={{"what": "half"}}')

        assert "wiped half" in done.stdout
        assert place.count("wiped") == 1

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            (
                ["--approve", "scripted_1"],
                "--approve: no call 'scripted_1' waits; known are scripted_1@",
            ),
            (["--deny", "other=no"], "--deny: no call 'other' waits; known are "),
            (["--edit", "{}=[1]"], "expected a JSON object, got '[1]'"),
            (["--edit", "{}=oops"], "expected a JSON object, Expecting value"),
            ([], "expected --approve, --deny or --edit; the calls that wait: "),
        ],
        ids=["without the pause", "unknown", "list", "text", "none"],
    )
    def test_a_decision_that_does_not_fit_is_bad_usage(self, place, paused, options, error):
        done = place("decide", "tea", *(one.replace("{}", paused) for one in options))

        assert done.returncode == 2
        assert error in done.stderr
        assert len(done.stderr.splitlines()) == 1

    def test_a_decision_approves_no_later_call(self, place):
        place.ask("wipe wipe", "--quiet")
        first = place.waiting()
        assert place("resume", "tea", "--approve", first).returncode == 1
        second = place.waiting()

        done = place("resume", "tea", "--approve", first)

        assert first != second
        assert done.returncode == 2
        assert f"no call '{first}' waits" in done.stderr
        assert place.count("wiped") == 1

    @pytest.mark.parametrize(("key", "wiped"), [("y", 1), ("n", 0)])
    def test_a_terminal_is_asked(self, place, key, wiped):
        command = [sys.executable, "-m", "treadle", *place.run_arguments("wipe")]
        with Terminal(command, cwd=place.folder, env=place.environment) as terminal:
            terminal.wait_for("'wipe' needs approval: ")
            terminal.wait_for("[y/n] ")
            terminal.press(f"{key}\r")
            terminal.wait_for("echo heard wipe: ")
            assert terminal.wait() == 0
        assert place.count("wiped") == wiped

    def test_an_undecided_question_of_a_terminal_waits(self, place, paused):
        command = [sys.executable, "-m", "treadle", "resume", "tea"]
        with Terminal(command, cwd=place.folder, env=place.environment) as terminal:
            terminal.wait_for("[y/n] ")
            terminal.press_until("\x03", "to decide: treadle resume tea with")
            assert terminal.wait() == 1
        assert place.waiting() == paused


class TestFromAnotherProcess:
    def test_a_message_reaches_a_run_that_another_process_drives(self, place):
        with place.asking("pay", "--quiet", until="paid") as process:
            sent = place("steer", "tea", "-", stdin="and hurry")
            assert (sent.returncode, sent.stdout) == (0, "")
            assert "before its next request\n" in sent.stderr
            assert "not taken yet: and hurry\n" in place("show", "tea").stdout
            place.open_gate()
            out, _ = process.communicate(timeout=SECONDS)

        assert out == "echo heard pay, and hurry: waited\n"
        shown = place("show", "tea").stdout
        assert "not taken yet" not in shown
        assert "user: and hurry\n" in shown

    def test_a_message_waits_for_a_run_that_nobody_drives(self, place, paused):
        assert "when it is resumed: treadle resume tea" in place("steer", "tea", "a").stderr

        done = place("resume", "tea", "--steer", "b", "--approve", paused)

        assert done.stdout == "echo heard wipe, a\n\nb: wiped all\n"

    def test_a_run_that_another_process_drives_is_cancelled(self, place):
        with place.asking("pay", until="paid") as process:
            assert place("cancel", "tea").stderr == "the run ends\n"
            _, err = process.communicate(timeout=SECONDS)

        assert process.returncode == 1
        assert "treadle: the run was cancelled" in err
        assert place.status() == "error"

    def test_a_run_that_waits_is_cancelled_when_it_is_resumed(self, place, paused):
        assert "when it is resumed" in place("cancel", "tea").stderr
        assert "someone has asked to cancel it\n" in place("show", "tea").stdout

        done = place("resume", "tea")

        assert done.returncode == 1
        assert "the run was cancelled" in done.stderr
        assert place.status() == "error"
        assert place.count("wiped") == 0

    def test_a_run_that_was_interrupted_is_cancelled_when_it_is_resumed(self, place):
        with place.asking("pay add", until="paid") as process:
            process.kill()
        place("cancel", "tea")

        assert place("resume", "tea").returncode == 1
        assert place.count("added") == 0

    def test_one_process_drives_and_the_other_says_which(self, place):
        with place.asking("pay", until="paid") as process:
            named = f"run 'tea' is driven by process {process.pid} on host "
            for args in (("resume", "tea"), ("delete", "tea"), place.run_arguments("pay")):
                done = place(*args, *(("--quiet",) if args[0] != "delete" else ()))
                assert (done.returncode, done.stdout) == (1, "")
                assert done.stderr.startswith(f"treadle: {named}")
                assert len(done.stderr.splitlines()) == 1
            assert f"driven by process {process.pid} on host " in place("show", "tea").stdout
            assert f"process {process.pid}" in place("runs").stdout
            place.open_gate()
            assert process.communicate(timeout=SECONDS)[0] == "echo heard pay: waited\n"

    def test_what_comes_too_late_is_reported(self, place):
        place.ask("add")

        for command in (("steer", "tea", "x"), ("cancel", "tea")):
            done = place(*command)
            assert (done.returncode, done.stderr) == (1, "treadle: run 'tea' has ended\n")
        assert place("decide", "tea", "--approve", "x").returncode == 2


class TestEnded:
    def test_its_result_is_returned_without_a_model(self, place):
        first = place.ask("add", "--json")
        asked = place.count("asked")

        again = [place.ask("add", "--json"), place("resume", "tea", "--json")]

        assert [json.loads(one.stdout) for one in again] == [json.loads(first.stdout)] * 2
        assert json.loads(first.stdout)["run_id"] == "tea"
        assert place.count("asked") == asked

    def test_other_messages_need_another_id(self, place):
        place.ask("add")

        done = place.ask("add add", "--quiet")

        assert done.returncode == 1
        assert "it was started with other messages" in done.stderr

    def test_a_failure_is_kept(self, place):
        place.ask("add add", "--max-iterations", "1")

        done = place("resume", "tea")

        assert done.returncode == 1
        assert "no answer within max_iterations=1" in done.stderr
        assert "max_iterations_reached: " in place("show", "tea").stdout

    def test_it_can_be_deleted(self, place):
        place.ask("add")

        assert place("delete", "tea").returncode == 0
        assert place("runs").stderr == f"there are no runs in {place.path}\n"


class TestLists:
    def test_runs_have_their_status_and_what_they_wait_for(self, place):
        place.ask("add", run_id="done")
        place.ask("wipe", run_id="waits")
        place.ask("add add", "--max-iterations", "1", run_id="failed")

        lines = place("runs").stdout.splitlines()

        assert [line.split()[:4] for line in lines] == [
            ["RUN", "STATUS", "AGENT", "ITERATIONS"],
            ["failed", "error", "treadle", "run"],
            ["waits", "paused", "treadle", "run"],
            ["done", "ok", "treadle", "run"],
        ]
        assert lines[1].endswith("max_iterations_reached")
        assert lines[2].endswith("waits: wipe")
        paused = json.loads(place("runs", "--status", "paused", "--json").stdout)["runs"]
        assert [one["id"] for one in paused] == ["waits"]
        assert paused[0]["waiting"][0]["name"] == "wipe"
        assert len(place("runs", "--limit", "1").stdout.splitlines()) == 2

    def test_an_interrupted_run_is_not_a_running_one(self, place):
        with place.asking("pay", until="paid") as process:
            assert place("runs", "--status", "running").stdout.count("tea") == 1
            process.kill()

        assert place("runs", "--status", "running").stdout == ""
        assert place("runs", "--status", "interrupted").stdout.count("tea") == 1

    def test_without_runs_the_list_is_empty(self, place):
        done = place("runs")
        assert (done.returncode, done.stdout) == (0, "")
        assert json.loads(place("runs", "--json").stdout) == {"runs": []}


class TestPlace:
    def test_the_default_is_a_private_file_of_the_user(self, place):
        env = {"TREADLE_JOURNAL": ""}
        place.ask("add", env=env)

        file = place.folder / "home/.local/share/treadle/journal.db"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert place("runs", env=env).stdout.count("tea") == 1

    def test_a_run_is_stored_only_if_this_was_asked_for(self, place):
        arguments = [one for one in place.run_arguments("add") if one not in {"--run-id", "tea"}]
        assert place(*arguments, env={"TREADLE_JOURNAL": ""}).returncode == 0
        assert not place.path.exists()
        assert not (place.folder / "home").exists()

        done = place(*arguments)

        [run] = place.journal.runs()
        assert f"run {run.id} in {place.path}\n" in done.stderr

    @pytest.mark.parametrize("command", ["runs", "show", "resume", "decide", "steer", "cancel"])
    def test_a_file_that_is_missing_is_bad_usage(self, place, command):
        more = {"runs": [], "steer": ["x", "text"]}.get(command, ["x"])

        done = place(command, *more, "--journal", "missing.db")

        assert done.returncode == 2
        assert "--journal: there is no file missing.db" in done.stderr
        assert not (place.folder / "missing.db").exists()

    @pytest.mark.parametrize("command", ["show", "resume", "steer", "cancel", "delete"])
    def test_an_unknown_id_names_the_closest(self, place, command):
        place.ask("add")

        done = place(command, "tee", *(["text"] if command == "steer" else []))

        assert done.returncode == 2
        assert "there is no run 'tee'; did you mean 'tea'?" in done.stderr

    @pytest.mark.parametrize("command", ["runs", "show", "resume", "cancel"])
    @pytest.mark.parametrize(
        ("damage", "error"),
        [
            ("corrupt", "it is no journal"),
            ("newer", "expected a journal of version 1, found a journal of version 2"),
            ("foreign", "found another program's file"),
        ],
    )
    def test_a_file_that_is_no_journal_is_bad_usage(self, place, command, damage, error):
        if damage == "corrupt":
            place.path.write_bytes(b"nonsense " * 1000)
        elif damage == "newer":
            place.ask("add")
            change(place.path, "PRAGMA user_version = 2")
        else:
            change(place.path, "CREATE TABLE notes (text)")

        done = place(command, *([] if command == "runs" else ["tea"]))

        assert (done.returncode, done.stdout) == (2, "")
        assert error in done.stderr
        assert len(done.stderr.splitlines()) == 1

    @pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
    @pytest.mark.parametrize(
        "change_to",
        [
            "parts SET outcome = CAST('{}' AS BLOB)",
            'parts SET outcome = CAST(\'{"status": "ok", "result": [1]}\' AS BLOB)',
            "parts SET outcome = CAST('[' AS BLOB)",
            "parts SET start = CAST('{}' AS BLOB)",
            "parts SET start = CAST('7' AS BLOB)",
            "entries SET body = CAST('{}' AS BLOB)",
            "runs SET part = 2",
        ],
    )
    def test_contents_that_no_run_stores_are_reported(self, place, change_to, form):
        place.ask("add")
        change(place.path, f"UPDATE {change_to}")

        done = place("show", "tea", *form)

        assert (done.returncode, done.stdout) == (2, "")
        assert "run 'tea'" in done.stderr
        assert len(done.stderr.splitlines()) == 1

    def test_a_run_that_cannot_be_stored_does_not_start(self, place):
        place.path.write_bytes(b"nonsense " * 1000)

        done = place.ask("add", "--quiet")

        assert done.returncode == 1
        assert "it is no journal" in done.stderr
        assert place.count("asked") == 0


def change(path, statement):
    """Change a file behind the back of the journal."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


class TestPrograms:
    def test_a_run_of_a_program_is_continued_with_its_loop(self, place):
        with place.started("program", until="paid") as process:
            process.kill()
        unnamed = place("resume", "shop")
        assert unnamed.returncode == 2
        assert "name its loop: --loop MODULE:NAME" in unnamed.stderr

        done = place("resume", "shop", "--loop", "program:loop")

        assert done.stdout.startswith("shop heard pay: Unknown: ")
        assert place("runs").stdout.count("shop") == 2  # its id and its agent

    @pytest.mark.parametrize(
        ("loop", "error"),
        [
            ("program", "--loop: expected MODULE:NAME, got 'program'"),
            ("program:lop", "--loop: module 'program' has no 'lop'; did you mean 'loop'?"),
            ("program:number", "--loop: program:number is not a Loop, but int"),
            ("nowhere:loop", "--loop: no module 'nowhere' in "),
        ],
    )
    def test_a_loop_that_is_none_is_bad_usage(self, place, paused, loop, error):
        done = place("resume", "tea", "--loop", loop)

        assert done.returncode == 2
        assert error in done.stderr


class TestOptions:
    """What a run stores of the options of the command."""

    @staticmethod
    def stored(*args):
        """What is stored of some arguments of `treadle run`."""
        starts = []

        class Journal:
            def open(self, run_id, start):
                starts.append(start)

        CommandJournal(Journal(), make_parser().parse_args(["run", "Hi", *args])).open(
            "x", {"a": 1}
        )
        assert starts[0]["a"] == 1
        return starts[0]["command"]

    @staticmethod
    def merged(stored, *args):
        return with_stored(make_parser().parse_args(["resume", "x", *args]), stored)

    def test_all_that_makes_the_loop_is_stored(self):
        given = ["--tools", "t:a", "--mcp", "uvx server", "--max-cost", "2", "--on-unknown", "ask"]
        stored = self.stored("--model", "m", "--base-url", "http://h/v1", *given)

        merged = self.merged(stored)

        assert (merged.model, merged.base_url, merged.tools) == ("m", "http://h/v1", ["t:a"])
        assert (merged.mcp, merged.max_cost, merged.on_unknown) == (["uvx server"], 2.0, "ask")
        assert stored["folder"] == str(Path.cwd())

    def test_options_that_are_given_win_and_another_model_has_another_server(self):
        stored = self.stored("--model", "m", "--base-url", "http://h", "--api-key-env", "K")

        assert self.merged(stored, "--model", "n").base_url is None
        assert self.merged(stored, "--model", "m").api_key_env == "K"
        assert self.merged(stored, "--base-url", "http://i").base_url == "http://i"

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("--base-url", "https://me:hunter22@example.org/v1"),
            ("--base-url", "https://example.org/v1?key=hunter22"),
            ("--mcp", "server --token hunter22 --fast"),
            ("--mcp", "server --api-key=hunter22"),
            ("--mcp", "env API_KEY=hunter22 server"),
            ("--mcp", "https://example.org/mcp?token=hunter22"),
        ],
    )
    def test_no_credential_is_stored(self, option, value):
        stored = self.stored(option, value)

        assert "hunter22" not in json.dumps(stored)
        with pytest.raises(UsageError, match=f"{option}: .* give {option} again"):
            self.merged(stored)
        assert value in str(vars(self.merged(stored, option, value)))

    def test_a_command_without_a_credential_is_stored_as_it_is(self):
        command = "server  --dir 'a b'  --key-file x"
        assert self.stored("--mcp", command)["mcp"] == [command]

    def test_every_option_of_the_loop_is_stored(self):
        """One that `treadle run` gains is one that `treadle resume` needs."""
        run, resume = (
            set(vars(make_parser().parse_args([name, "x"]))) for name in ("run", "resume")
        )
        only_run = {"prompt", "system", "run_id"}
        only_resume = {"id", "approve", "deny", "edit", "steer", "loop"}
        assert run - resume == only_run
        assert resume - run == only_resume
        others = {"json", "quiet", "record", "report", "journal", "command", "parser", "module"}
        numbers = {*LIMITS, "max_retries"}
        stored = self.stored(*(f"--{name.replace('_', '-')}=1" for name in numbers))
        assert numbers < set(stored)
        assert run - only_run - others - numbers == {
            "model",
            "base_url",
            "api_key_env",
            "tools",
            "mcp",
            "unmeasured",
            "on_unknown",
        }


class TestSteps:
    """What the log of a run says about its calls."""

    @staticmethod
    def steps(tmp_path, loop, *script):
        journal = SQLiteJournal(tmp_path / "runs.db")
        loop.run_sync("hi", ScriptedLLM(*script), journal=journal, run_id="a")
        return [step.as_json() for step in steps_of(journal.part("a"))]

    def test_calls_of_a_subagent_are_within_its_call(self, tmp_path):
        @tool
        def add(a: int) -> int:
            """Add."""
            return a + 1

        model = ScriptedLLM(calls(call("add", a=7, call_id="x")), "inner")
        inner = Loop(tools=[add], llm_send_fn=model).as_tool(name="helper", description="Help.")
        loop = Loop(tools=[add, inner])
        both = calls(call("add", a=1, call_id="x"), call("helper", task="t", call_id="y"))

        steps = self.steps(tmp_path, loop, both, "outer")

        made = [
            (step.get("within"), step.get("iteration"), step.get("name"), step["content"])
            for step in steps
        ]
        assert sorted(made, key=str) == sorted(
            [
                (None, 1, None, None),
                (None, None, "add", "2"),
                ("y", 1, None, None),
                ("y", None, "add", "8"),
                ("y", 2, None, "inner"),
                (None, 2, None, "outer"),
            ],
            key=str,
        )
        arguments = {
            step["within"]: step["arguments"]
            for step in steps
            if "within" in step and "name" in step
        }
        assert arguments == {"y": '{"a": 7}'}

    @pytest.mark.parametrize("ids", [("x", "x"), ("", "")], ids=["same", "missing"])
    def test_calls_are_found_if_the_ids_of_the_model_are_not_unique(self, tmp_path, ids):
        @tool
        def one() -> int:
            """One."""
            return 1

        @tool
        def two() -> int:
            """Two."""
            return 2

        loop = Loop(tools=[one, two])
        script = [
            calls({**call(name), "id": given})
            for name, given in zip(("one", "two"), ids, strict=True)
        ]

        steps = self.steps(tmp_path, loop, *script, "done")

        found = [(step["name"], step["content"]) for step in steps if "name" in step]
        assert found == [("one", "1"), ("two", "2")]

    def test_a_request_that_failed_is_shown(self, tmp_path):
        loop = Loop(max_retries=1, retry_delay=0)

        steps = self.steps(tmp_path, loop, ConnectionError("cut"), "done")

        assert [step.get("error") for step in steps] == ["ConnectionError: cut", None]


def test_a_run_is_exported_as_a_recording_that_a_report_shows(place):
    place.ask("add wipe", "--quiet")
    place("resume", "tea", "--approve", place.waiting())

    done = place("show", "tea", "--export", "tea.jsonl")

    assert (done.returncode, done.stdout) == (0, "tea.jsonl\n")
    [run] = read_recording(place.folder / "tea.jsonl").runs
    assert run.run_id == "tea"
    assert place("report", "tea.jsonl").returncode == 0
    (place.folder / "other.txt").write_text("not a recording")
    for target, error in (("other.txt", "--export: "), ("no/tea.jsonl", "cannot write no/tea")):
        refused = place("show", "tea", "--export", target)
        assert refused.returncode == 2
        assert error in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert (place.folder / "other.txt").read_text() == "not a recording"


def test_a_recording_of_the_rest_of_a_run_is_rendered(place):
    with place.asking("add pay", until="paid") as process:
        process.kill()

    done = place("resume", "tea", "--record", "rest.jsonl", "--report", "rest.html")

    assert done.returncode == 0, done.stderr
    assert (place.folder / "rest.html").read_text().startswith("<!doctype html>")
    assert place("report", "rest.jsonl").returncode == 0
