"""The live view on terminals, in pipes and in CI: what it shows, and how it leaves them."""
# ruff: noqa: T201 - programs that print are what is looked at

import contextlib
import fcntl
import io
import logging
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import threading

import anyio
import pytest
from rich.console import Console
from tests.programs import run_program

from treadle import Loop, MissingExtraError, Paused, approve, tool
from treadle.events import ModelRequested, RunStarted
from treadle.reports import LiveView
from treadle.reports.live import can_show
from treadle.testing import ScriptedLLM, call, calls

from .emulated import Terminal
from .samples import buy

GO = [{"role": "user", "content": "Go."}]
ON_TERMINAL = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", "CI": "", "NO_COLOR": "1"}


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing at {where}"


@pytest.fixture
def live():
    """A view that is printed by the tests themselves; its clock stands still."""
    return LiveView(enabled=True, clock=lambda: 0.0)


def printed(view, width=80, height=24):
    """What rich prints of a view."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(view)
    return console.file.getvalue()


def test_a_run_is_shown_while_it_goes_on_and_when_it_is_over(live):
    seen = []

    @tool
    def peek(what: str) -> str:
        """Look at the view."""
        seen.append(printed(live))
        return what

    loop = Loop(name="shop", tools=[peek], on_event=live, max_tool_calls=4)
    loop.run_sync(GO, ScriptedLLM(calls(call("peek", what="tea")), "Done."))

    (during,) = seen
    assert "● shop  1/10  1 call " in during
    assert "    peek tea " in during
    assert "iterations ━─────── 1/10   tool calls ━━────── 1/4\n" in during
    after = printed(live)
    assert after.startswith("✓ shop  answered: 2 iterations, 1 call ")
    assert len(after.splitlines()) == 1


def test_runs_in_threads_are_shown_beside_each_other(live):
    """Each with its own numbers, however their events interleave."""
    together = threading.Barrier(8)
    seen = []

    @tool
    def meet(name: str) -> str:
        """Wait until all are here."""
        together.wait(30)
        if name == "run0":
            seen.append(printed(live, height=60))
        together.wait(30)
        return name

    def go(number):
        script = [calls(call("look", where=f"{n}")) for n in range(number)]
        script.append(calls(call("meet", name=f"run{number}")))
        loop = Loop(name=f"run{number}", tools=[look, meet], on_event=live, max_iterations=20)
        results[number] = loop.run_sync(GO, ScriptedLLM(*script, "Done."))

    results = {}
    threads = [threading.Thread(target=go, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    heads = sorted(line.split()[1:3] for line in seen[0].splitlines() if line.startswith("●"))
    assert heads == [[f"run{number}", f"{number + 1}/20"] for number in range(8)]
    ends = sorted(line.split()[1:6] for line in printed(live).splitlines()[:-1])
    assert ends == [
        [f"run{n}", "answered:", f"{n + 2}", "iterations,", f"{results[n].tool_calls_count}"]
        for n in range(8)
    ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_runs_in_tasks_are_shown_beside_each_other(live, backend):
    seen = []

    async def main():
        here, gone = [], anyio.Event()

        @tool
        async def meet(name: str) -> str:
            """Wait until all are here."""
            here.append(name)
            if len(here) == 5:
                seen.append(printed(live, height=60))
                gone.set()
            await gone.wait()
            return name

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                loop = Loop(name=f"run{number}", tools=[meet], on_event=live)
                script = ScriptedLLM(calls(call("meet", name=f"n{number}")), "Done.")
                tasks.start_soon(loop.run, GO, script)

    anyio.run(main, backend=backend)
    assert sorted(line.split()[1] for line in seen[0].splitlines() if line.startswith("●")) == [
        f"run{number}" for number in range(5)
    ]
    assert printed(live).count("answered: 2 iterations, 1 call") == 5


def test_a_run_within_a_run_is_shown_in_it(live):
    """Its tokens and its calls draw on the limits of both."""
    seen = []

    def search(_messages):
        seen.append(printed(live))
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        return {"choices": [{"message": {"content": "Two books."}}], "usage": usage}

    inner = Loop(name="researcher", on_event=live).as_tool("research", "Find out.", search)
    loop = Loop(name="editor", tools=[inner], on_event=live)
    asks = calls(call("research", task="rivers"))
    result = loop.run_sync(GO, ScriptedLLM(asks, "Done."))

    (during,) = seen
    assert "    research rivers " in during
    assert "        └ researcher  1/10  calling the model " in during
    assert "iterations ━━────── 2/10" in during
    assert result.usage.total_tokens == 15
    assert re.match("✓ editor  answered: 2 iterations, 1 call +15\\+ tokens  ", printed(live))


def test_a_run_that_pauses_says_so_until_it_goes_on(live):
    loop = Loop(name="shop", tools=[buy], on_event=live)
    paused = loop.run_sync(GO, ScriptedLLM(calls(call("buy", what="tea"))))
    assert isinstance(paused, Paused)
    assert printed(live).startswith("■ shop  paused: 1 iteration, 0 calls ")

    decisions = {pending.id: approve for pending in paused.pending}
    loop.resume_sync(paused.state, decisions, ScriptedLLM("Done."))
    assert printed(live).startswith("✓ shop  answered: 2 iterations, 1 call ")
    assert len(printed(live).splitlines()) == 1


def test_a_cancelled_run_says_so(live):
    async def main():
        with anyio.CancelScope() as scope:

            @tool
            async def hang() -> str:
                """Never come back."""
                scope.cancel()
                await anyio.sleep_forever()
                return ""

            await Loop(name="shop", tools=[hang], on_event=live).run(
                GO, ScriptedLLM(calls(call("hang")))
            )

    anyio.run(main)
    assert printed(live).startswith("■ shop  cancelled: 1 iteration, 1 call ")


def test_events_can_be_handed_to_it_one_by_one(live):
    """As those of a stream are."""

    async def main():
        async with Loop(name="shop").stream(GO, ScriptedLLM("Hello.")) as events:
            async for event in events:
                live(event)

    anyio.run(main)
    assert printed(live).startswith("✓ shop  answered: 1 iteration, 0 calls ")


# On a terminal


class Written(io.StringIO):
    """A terminal, as far as a program can tell, that keeps what was written."""

    encoding = "utf-8"

    def isatty(self):
        return True

    @property
    def screen(self):
        return Terminal(80, 24).feed(self.getvalue())


@pytest.fixture
def terminal(monkeypatch):
    for name, value in ON_TERMINAL.items():
        monkeypatch.setenv(name, value)
    return Written()


def run_once(view, answer="Hello.", **options):
    return Loop(name="shop", on_event=view, **options).run_sync(GO, ScriptedLLM(answer))


def test_the_last_picture_stays_and_the_terminal_is_as_it_was(terminal):
    with LiveView(terminal) as live:
        run_once(live)
        assert not terminal.screen.cursor_is_shown
    assert terminal.screen.text.startswith("✓ shop  answered: 1 iteration, 0 calls ")
    assert terminal.screen.cursor_is_shown
    assert (terminal.screen.row, terminal.screen.column) == (1, 0)
    assert terminal.screen.odd == []


def test_a_transient_view_leaves_nothing_but_what_was_printed(terminal):
    with LiveView(terminal, transient=True) as live:
        live.print("before")
        run_once(live)
        live.print("  after [red] \x1b[2J\u202e")
    assert terminal.screen.text == "before\n  after [red] \\x1b[2J\\u202e"
    assert terminal.screen.cursor_is_shown
    assert (terminal.screen.row, terminal.screen.column) == (2, 0)


def test_a_view_without_runs_leaves_no_line(terminal):
    with LiveView(terminal):
        pass
    assert terminal.screen.text == ""
    assert terminal.screen.row == 0
    assert terminal.screen.cursor_is_shown


def test_it_ticks_while_nothing_happens(terminal):
    """Time goes by on the screen although no event comes."""
    ticked = threading.Event()
    now = [0.0]

    def clock():
        now[0] += 1.0
        if now[0] > 20:
            ticked.set()
        return now[0]

    with LiveView(terminal, clock=clock) as live:
        observer = live.for_run()
        observer(RunStarted(agent_name="shop", run_id="r", at=0.0))
        observer(ModelRequested(iteration=1, at=0.0))
        assert ticked.wait(30)
    assert terminal.getvalue().count("calling the model") > 3


def test_a_view_can_be_live_again(terminal):
    live = LiveView(terminal)
    for _ in range(2):
        with live:
            run_once(live)
    assert terminal.screen.cursor_is_shown
    assert "2 runs: 0 running, 2 finished" in terminal.screen.text


def test_a_view_is_live_once(terminal):
    with LiveView(terminal) as live, pytest.raises(RuntimeError, match="live already"), live:
        pass
    assert terminal.screen.cursor_is_shown


def test_what_is_printed_and_logged_goes_above_it(terminal, monkeypatch):
    """Of threads at once, to stdout, to stderr, and by handlers that had their stream before."""
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    handler = logging.StreamHandler()
    log = logging.getLogger("of a test")
    monkeypatch.setattr(log, "handlers", [handler])

    @tool
    def work(name: str) -> str:
        """Print and log."""
        for number in range(30):
            if number % 5 == 0:
                live._screen.tick()  # else all of this might come before the first picture
            print(f"out {name} {number}", flush=True)
            print(f"err {name} {number}", file=sys.stderr)
            log.warning("log %s %d", name, number)
        return "done"

    def go(name):
        asks = ScriptedLLM(calls(call("work", name=name)), "Done.")
        Loop(name=name, tools=[work], on_event=live).run_sync(GO, asks)

    with LiveView() as live:
        print("half a line", end="", flush=True)
        print(", whole")
        threads = [threading.Thread(target=go, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        sys.stdout.writelines(["left ", "over"])

    assert (sys.stdout, sys.stderr, handler.stream) == (terminal, terminal, terminal)
    lines = terminal.screen.text.splitlines()
    said = {
        f"{how} {name} {number}"
        for how in ("out", "err", "log")
        for name in "abcd"
        for number in range(30)
    }
    assert lines[0] == "half a line, whole"
    assert set(lines[1:361]) == said
    assert all(line.startswith("✓ ") for line in lines[361:365])
    assert lines[365].startswith("4 runs: 0 running, 4 finished")
    assert lines[366:] == ["left over"]


def test_what_goes_to_a_file_goes_there_still(terminal, monkeypatch):
    """A program whose output is kept prints to the file, though its view is on the terminal."""
    kept = io.StringIO()
    monkeypatch.setattr(sys, "stdout", kept)
    monkeypatch.setattr(sys, "stderr", terminal)
    with LiveView() as live:
        run_once(live)
        print("an answer")
    assert kept.getvalue() == "an answer\n"
    assert "an answer" not in terminal.getvalue()


def test_who_keeps_a_stream_beyond_the_view_can_go_on_writing(terminal, monkeypatch):
    """Such as a handler that was set up while it was live."""
    monkeypatch.setattr(sys, "stderr", terminal)
    log = logging.getLogger("of a test")
    monkeypatch.setattr(log, "handlers", [])
    with LiveView() as live:
        run_once(live)
        kept = sys.stderr
        handler = logging.StreamHandler()
        log.addHandler(handler)
        log.warning("during")
    assert handler.stream is terminal
    log.warning("after")
    kept.write("half")
    kept.flush()
    assert terminal.screen.text.splitlines()[0] == "during"
    assert terminal.screen.text.splitlines()[2:] == ["after", "half"]


def test_a_stream_that_others_have_put_there_stays(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)
    other = io.StringIO()
    with LiveView():
        sys.stderr = other
    assert sys.stderr is other


def test_what_a_terminal_cannot_show_is_written_how_it_is_read(terminal, monkeypatch):
    """And does not stay in the way of what is printed next."""
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    terminal.encoding = "ascii"
    with LiveView() as live:
        Loop(name="日本", on_event=live).run_sync(GO, ScriptedLLM("x"))
        print("\u65e5 \ud800")
        print("next")
    assert terminal.screen.text.splitlines()[:2] == ["\\u65e5 \\ud800", "next"]
    assert terminal.screen.text.splitlines()[2].startswith("+ \\u65e5\\u672c  answered")


def test_a_view_within_another_shows_its_runs_there(terminal, monkeypatch):
    """Two pictures on one terminal would be drawn over each other."""
    monkeypatch.setattr(sys, "stderr", terminal)
    with LiveView() as live:
        run_once(live)
        with LiveView() as inner:
            run_once(inner)
            inner.print("said within")
        inner.print("too late")
    assert terminal.screen.text.splitlines()[0] == "said within"
    assert "too late" not in terminal.getvalue()
    assert terminal.screen.text.count("✓ shop") == 2
    assert "2 runs: 0 running, 2 finished" in terminal.screen.text


def test_an_error_goes_on_its_way_and_the_terminal_is_as_it_was(terminal):
    with pytest.raises(KeyboardInterrupt), LiveView(terminal) as live:
        run_once(live)
        raise KeyboardInterrupt
    assert terminal.screen.cursor_is_shown
    assert "treadle-live" not in {thread.name for thread in threading.enumerate()}


class Gone(Written):
    """A terminal that somebody closes."""

    is_gone = False

    def write(self, text):
        if self.is_gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_terminal_that_has_gone_does_not_end_a_run(terminal):
    gone = Gone()
    with LiveView(gone) as live:
        gone.is_gone = True
        assert run_once(live).stop_reason == "answered"


def test_names_that_are_no_text_do_not_end_a_run(live):
    """A name of a loop is whatever its author made it."""
    observer = live.for_run()
    observer(RunStarted(agent_name=17, run_id=None, at=0.0))
    assert printed(live).startswith("● 17  0/10  ")


# Where it is quiet


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, True),
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "unknown"}, False),
        ({"CI": "true"}, False),
        ({"CI": "1"}, False),
        ({"CI": "woodpecker"}, False),
        ({"CI": "false"}, True),
        ({"CI": ""}, True),
        ({"NO_COLOR": "1"}, True),
    ],
)
def test_it_is_shown_where_somebody_can_see_it(environ, expected):
    assert can_show(Written(), environ) is expected
    assert can_show(io.StringIO(), environ) is False


def test_a_closed_stream_and_none_at_all_are_no_terminals(monkeypatch):
    closed = io.StringIO()
    closed.close()
    assert can_show(closed, {}) is False
    monkeypatch.setattr(sys, "stderr", None)
    assert can_show(None, {}) is False


def test_without_colours_there_are_none(terminal, monkeypatch):
    """NO_COLOR asks for no colours, not for silence."""

    def written():
        stream = Written()
        with LiveView(stream) as live:
            run_once(live)
        return stream.getvalue()

    assert "\x1b[32m" not in written()
    assert "answered" in written()
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[32m" in written()


@pytest.mark.parametrize("enabled", [False, None])
def test_it_is_silent_where_it_is_not_shown(enabled):
    stream = io.StringIO()
    with LiveView(stream, enabled=enabled) as live:
        run_once(live)
        live.print("a line")
    assert stream.getvalue() == ""
    assert printed(live).strip() == ""


def test_it_can_be_forced(monkeypatch):
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    with LiveView(stream, enabled=True) as live:
        run_once(live)
    assert "✓ " in stream.getvalue()


PROGRAM = """
import sys, time
from treadle import Loop
from treadle.reports import LiveView
from treadle.testing import ScriptedLLM

with LiveView({options}) as live:
    Loop(name="shop", on_event=live).run_sync(
        [{{"role": "user", "content": "Go."}}], {model}
    )
print("the answer")
print("rich" in sys.modules, file=sys.stdout)
"""


def program(options="", model='ScriptedLLM("Hello.")'):
    return [sys.executable, "-c", PROGRAM.format(options=options, model=model)]


@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1"}, {"TERM": "xterm"}])
def test_in_a_pipe_it_writes_nothing_and_needs_no_rich(env):
    done = run_program(program(), env={**os.environ, **env}, check=True)
    assert (done.stdout, done.stderr) == ("the answer\nFalse\n", "")


class OnTerminal:
    """A process whose stdout and stderr are a terminal."""

    def __init__(self, command, stdin=subprocess.DEVNULL, size=None, **env):
        self._shown, terminal = pty.openpty()
        env = {**os.environ, **ON_TERMINAL, **env}
        if size is not None:  # else the environment says
            self.resize(*size)
            del env["COLUMNS"], env["LINES"]
        self.process = subprocess.Popen(
            command,
            env=env,
            stdin=stdin,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        self.written = b""

    def resize(self, lines, columns):
        """Make the terminal another size."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._shown, termios.TIOCSWINSZ, size)

    def read_until(self, text):
        """Read until some text was written, or all was."""
        with contextlib.suppress(OSError):  # Linux says EIO where the other end is closed
            while text is None or text not in self.written:
                piece = os.read(self._shown, 65536)
                if not piece:
                    break
                self.written += piece

    def end(self):
        """Read the rest; the exit code and the screen."""
        self.read_until(None)
        return self.process.wait(30), Terminal(80, 24).feed(self.written.decode())

    def close(self):
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait(30)
        if self.process.stdin is not None:
            self.process.stdin.close()
        os.close(self._shown)


@pytest.fixture
def on_terminal():
    """Runs a command on a terminal; it is over when the test is."""
    with contextlib.ExitStack() as stack:

        def run(command, **how):
            ran = OnTerminal(command, **how)
            stack.callback(ran.close)
            return ran

        yield run


def test_on_a_real_terminal_the_view_comes_and_its_last_picture_stays(on_terminal):
    code, screen = on_terminal(program()).end()
    assert code == 0
    lines = screen.text.splitlines()
    assert lines[0].startswith("✓ shop  answered: 1 iteration, 0 calls ")
    assert lines[1:] == ["the answer", "True"]
    assert screen.cursor_is_shown
    assert screen.odd == []


@pytest.mark.parametrize("env", [{"CI": "true"}, {"TERM": "dumb"}])
def test_on_a_terminal_that_nobody_looks_at_it_is_quiet(on_terminal, env):
    ran = on_terminal(program(), **env)
    assert ran.end()[0] == 0
    assert ran.written == b"the answer\r\nFalse\r\n"


RESIZED = """
import sys
from treadle import Loop
from treadle.reports import LiveView
from treadle.testing import ScriptedLLM

def model(messages):
    sys.stdin.readline()
    return "Hello."

with LiveView() as live:
    Loop(name="shop", on_event=live).run_sync([{"role": "user", "content": "Go."}], model)
"""


def test_after_a_resize_the_next_picture_fits(on_terminal):
    """Each redraw uses the current size."""
    ran = on_terminal([sys.executable, "-c", RESIZED], stdin=subprocess.PIPE, size=(24, 60))
    ran.read_until(b"calling the model")
    ran.resize(24, 30)
    ran.written = b""
    ran.read_until("…".encode())
    ran.process.stdin.write(b"\n")
    ran.process.stdin.close()
    assert ran.end()[0] == 0
    last = Terminal(30, 24).feed(ran.written.decode()[-300:]).text.splitlines()[-1]
    assert last.startswith("✓ shop  answered: 1 i")
    assert len(last) < 30


def test_an_interrupt_leaves_the_terminal_in_order(on_terminal):
    """The traceback stands below the last picture, and the cursor is there again."""
    ran = on_terminal(program(model="lambda messages: time.sleep(60)"))
    ran.read_until(b"calling the model")
    ran.process.send_signal(signal.SIGINT)
    code, screen = ran.end()
    assert code != 0
    assert screen.cursor_is_shown
    lines = screen.text.splitlines()
    assert lines[0].startswith(("● shop  1/10  calling the model ", "■ shop  cancelled: "))
    assert lines[-1] == "KeyboardInterrupt"
    assert screen.odd == []


WITHOUT_RICH = textwrap.dedent("""
    import sys
    sys.modules["rich"] = None
    from treadle import MissingExtraError
    from treadle.reports import LiveView
    with LiveView():
        print("quiet")
    try:
        LiveView(enabled=True)
    except MissingExtraError as error:
        print(error)
""")


def test_without_rich_it_says_what_to_install_and_only_where_it_is_needed():
    done = run_program([sys.executable, "-c", WITHOUT_RICH], check=True)
    assert done.stdout == (
        "quiet\nrich is not installed; install it with: pip install 'treadle[cli]'\n"
    )
    assert issubclass(MissingExtraError, ImportError)


def test_it_does_not_hold_up_those_who_do_not_look():
    """Importing it brings in nothing to draw with."""
    code = "import sys, treadle.reports; print('rich' in sys.modules)"
    done = run_program([sys.executable, "-c", code], check=True)
    assert done.stdout == "False\n"


def test_what_would_look_the_same_is_not_drawn_again(terminal):
    """Neither between runs, nor while a run goes on and no number changes."""
    with LiveView(terminal, clock=lambda: 0.0) as live:
        tick = live._screen.tick
        for begin in (lambda: run_once(live), lambda: live.for_run()(started())):
            begin()
            tick()
            written = terminal.getvalue()
            tick()
            tick()
            assert terminal.getvalue() == written


def started():
    return RunStarted(agent_name="shop", run_id="r", at=0.0)
