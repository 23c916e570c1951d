"""`treadle chat` in a pseudo-terminal, and in a pipe, with a script in place of the model."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.places import ProviderFolder
from tests.guides.terminal import Terminal
from tests.programs import run_program
from tests.redis_server import redis_server, redis_url

from treadle import Loop
from treadle.cli.chat_commands import COMMANDS
from treadle.sessions import SQLiteSessions, StoredTurn, import_session
from treadle.testing import check_history

__all__ = ["redis_server", "redis_url"]

ENTER, CTRL_C, CTRL_D, TAB, UP = "\r", "\x03", "\x04", "\t", "\x1b[A"

PROVIDER = """
import asyncio, time
from pathlib import Path
from treadle.providers import Provider
from treadle.testing import call, calls

async def gated():
    yield "Once upon "
    while not Path("gate").exists():
        await asyncio.sleep(0.01)
    yield "a time"

def gated_sync():
    yield "Once upon "
    while not Path("gate").exists():
        time.sleep(0.01)
    yield "a time"

async def stubborn():
    yield "Once upon "
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        time.sleep(600)

async def broken():
    yield "Half of "
    raise ConnectionError("cut")

tried = []

def answered(messages, name):
    asked = [message["content"] for message in messages if message["role"] == "user"][-1]
    last = messages[-1]
    if str(asked).startswith(("<notes>", "<conversation>")):
        return "notes of " + str(asked.count("user: "))
    if asked == "Fail":
        raise ValueError("it does not work")
    if asked == "Story":
        return gated()
    if asked == "Sync story":
        return gated_sync()
    if asked == "Stubborn":
        return stubborn()
    if asked == "Break" and not tried:
        tried.append(asked)
        return broken()
    if asked == "Controls":
        return iter(["\\x1b]0;owned\\x07one\\ttwo\\r", "\\nthree\\r", "four\\u202e"])
    if last["role"] == "tool":
        return f"It is {last['content']}" if asked != "Add, story" else gated()
    if str(asked).startswith("Add"):
        return calls(call("add", a=1, b=2))
    if asked == "Post":
        return calls(call("post"))
    if asked == "Mail":
        return calls(call("mail", to="Ada\\x1b[2J"))
    said = [message["content"] for message in messages if message["role"] == "user"]
    if isinstance(asked, list):
        return f"{name} heard parts."
    notes = [one["content"] for one in messages if "notes of" in str(one["content"])]
    return iter([f"{name} heard ", "notes and " if notes else "", " + ".join(said), "."])

def open_model(name, *, base_url=None, api_key=None, **opts):
    if name == "slow":
        print("loading", flush=True)
        time.sleep(600)
    if name == "where":
        return lambda messages: f"at {base_url}."

    def model(messages):
        return answered(messages, name)

    if name == "small":
        model.n_ctx = 1_800
    return model

DEMO = Provider("demo", "Demo", open_model, prefixes=("demo-",), needs_key=False)
TWIN = Provider("twin", "Twin", open_model, prefixes=("twin-",), needs_key=False)
"""

TOOLS = """
import time
from pathlib import Path
from treadle import tool

@tool
def add(a: int, b: int) -> int:
    '''Add two numbers.'''
    print("noise of a tool")
    return a + b

@tool(requires_approval=True)
def mail(to: str) -> str:
    '''Send a mail.'''
    with Path("sent").open("a") as file:
        file.write("x")
    return "sent"

@tool(requires_approval=True)
def post() -> str:
    '''Send a mail, which takes a while.'''
    with Path("sent").open("a") as file:
        file.write("x")
    while not Path("gate").exists():
        time.sleep(0.01)
    return "posted"
"""


class Place(ProviderFolder):
    """A folder with a scripted provider, tools and sessions, and ways to start the chat there."""

    def __init__(self, folder):
        super().__init__(folder, {"demo.py": PROVIDER, "my_tools.py": TOOLS}, ["demo", "twin"])
        self.store = SQLiteSessions(folder / "sessions.db")
        self.environment |= {"COLUMNS": "200", "TREADLE_SESSIONS": str(folder / "sessions.db")}

    def command(self, *args, session="s", tools="add,mail"):
        named = ["--session", session] if session else []
        parts = ["--tools", f"my_tools:{tools}", "--model", "demo:echo"]
        return [sys.executable, "-m", "treadle", "chat", *named, *parts, *args]

    def start(self, *args, env=None, **how):
        return Terminal(
            self.command(*args, **how), cwd=self.folder, env={**self.environment, **(env or {})}
        )

    def visit(self, *args, **how):
        return left(self.start(*args, **how))

    def pipe(self, text, *args, env=None, **how):
        return run_program(
            self.command(*args, **how),
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            input=text,
        )

    @property
    def mails(self):
        return self.count("sent")

    def texts(self, session="s"):
        """The messages of a session as roles and texts; they are valid."""
        messages = self.store.session(session).messages()
        if messages:
            check_history(messages)
        return [f"{message['role']}: {message['content']}" for message in messages]

    def names(self):
        return [info.id for info in self.store.sessions()]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def say(terminal, *inputs):
    """Type inputs, each at a prompt."""
    for text in inputs:
        terminal.wait_for("> ")
        terminal.press(text + ENTER)


@contextlib.contextmanager
def left(terminal):
    """A chat that the user leaves at the end of the block."""
    with terminal:
        yield terminal
        terminal.wait_for("> ")
        terminal.press(CTRL_D)
        assert terminal.wait() == 0


def ask_for_mail(terminal):
    """The model calls a tool that needs approval."""
    say(terminal, "Mail")
    terminal.wait_for("[y/n] ")


def test_a_conversation_is_stored_and_another_process_continues_it(place):
    with place.visit() as terminal:
        terminal.wait_for("session s (new), model demo:echo")
        say(terminal, "one")
        terminal.wait_for("echo heard one.\n(1 iteration, 0 tool calls, ")
        say(terminal, "two")
        terminal.wait_for("echo heard one + two.")
    with place.visit() as terminal:
        terminal.wait_for("session s (4 messages)")
        say(terminal, "three")
        terminal.wait_for("echo heard one + two + three.")
    assert place.texts()[-2:] == ["user: three", "assistant: echo heard one + two + three."]


def test_the_default_is_a_new_session_and_an_option_continues_the_last(place):
    for _ in range(2):
        assert place.pipe("one\n", session=None).stdout == "echo heard one.\n"
        time.sleep(1)  # its name has the seconds
    assert len(place.names()) == 2
    assert all(time.strptime(name, "%Y-%m-%d-%H%M%S") for name in place.names())

    assert place.pipe("two\n", "-c", session=None).stdout == "echo heard one + two.\n"

    assert len(place.names()) == 2


def test_text_is_shown_as_it_arrives(place):
    with place.visit() as terminal:
        say(terminal, "Story")
        terminal.wait_for("Once upon ")
        place.open_gate()
        terminal.wait_for("a time\n(1 iteration")


@pytest.mark.parametrize("story", ["Story", "Sync story"])
def test_ctrl_c_interrupts_an_answer_and_its_text_is_stored(place, story):
    with place.visit() as terminal:
        say(terminal, story)
        terminal.wait_for("Once upon ")
        terminal.press(CTRL_C)
        terminal.wait_for("[interrupted")
        assert place.texts() == [f"user: {story}", "assistant: Once upon "]
        say(terminal, "Go on")
        terminal.wait_for(f"echo heard {story} + Go on.")


def test_ctrl_c_keeps_the_results_of_tools_that_ended(place):
    with place.visit() as terminal:
        say(terminal, "Add, story")
        terminal.wait_for("Once upon ")
        terminal.press(CTRL_C)
        terminal.wait_for("[interrupted")
    assert place.texts()[2:] == ["tool: 3", "assistant: Once upon "]


def test_a_second_ctrl_c_at_once_leaves(place):
    with place.start() as terminal:
        say(terminal, "Stubborn")
        terminal.wait_for("Once upon ")
        terminal.press(CTRL_C)
        time.sleep(0.5)
        terminal.press_until(CTRL_C, "treadle: interrupted")
        assert terminal.wait() == 130


def test_ctrl_c_at_the_prompt_discards_the_line(place):
    with place.visit() as terminal:
        terminal.wait_for("> ")
        terminal.press("nonsense")
        terminal.wait_for("nonsense")
        terminal.press_until(CTRL_C, "> ")
        terminal.press("one" + ENTER)
        terminal.wait_for("echo heard one.")


def test_tools_are_shown_with_their_state(place):
    with place.visit() as terminal:
        say(terminal, "Add")
        terminal.wait_for('  add {"a": 1, "b": 2}\n')
        terminal.wait_for('  add {"a": 1, "b": 2}: done in ')
        terminal.wait_for("It is 3\n(2 iterations, 1 tool call, ")


def test_text_that_a_retry_discards_is_declared_void(place):
    with place.visit() as terminal:
        say(terminal, "Break")
        terminal.wait_for("Half of \n[the answer broke off: the text above is void")
        terminal.wait_for("echo heard Break.")
    assert place.texts()[1:] == ["assistant: echo heard Break."]


def test_an_error_is_shown_and_the_chat_goes_on(place):
    with place.visit() as terminal:
        say(terminal, "Fail")
        terminal.wait_for("it does not work")
        say(terminal, "one")
        terminal.wait_for("echo heard Fail")
        terminal.wait_for("one.")


def test_no_control_character_of_a_model_reaches_the_terminal(place):
    with place.visit() as terminal:
        say(terminal, "Controls")
        terminal.wait_for("\\x1b]0;owned\\x07one\ttwo\nthree\\rfour\\u202e\n")
        say(terminal, "/history")
        terminal.wait_for("assistant: \\x1b]0;owned\\x07one")
        ask_for_mail(terminal)
        terminal.press("n" + ENTER)
    assert "\x1b" not in terminal.screen
    assert "\x07" not in terminal.screen


class TestInput:
    def test_a_backslash_at_the_end_of_a_line_continues_it(self, place):
        with place.visit() as terminal:
            say(terminal, "one\\")
            terminal.wait_for("\n. ")
            terminal.press("two" + ENTER)
            terminal.wait_for("echo heard one\ntwo.")

    def test_a_paste_of_several_lines_is_one_input(self, place):
        with place.start(env={"TERM": "xterm"}) as terminal:
            terminal.wait_for("> ")
            terminal.press("\x1b[200~one\rtwo\x1b[201~")
            terminal.wait_for("two")
            terminal.press(" three" + ENTER)
            terminal.wait_for("echo heard one\ntwo three.")

    def test_the_arrow_keys_bring_back_the_inputs_of_the_session(self, place):
        place.pipe("one\ntwo\n")
        with place.visit() as terminal:
            say(terminal, UP + UP)
            terminal.wait_for("echo heard one + two + one.")

    def test_tab_completes_commands_and_the_names_of_sessions(self, place):
        place.pipe("one\n", session="alice in wonderland")
        with place.visit() as terminal:
            terminal.wait_for("> ")
            terminal.press("/swi" + TAB)
            terminal.wait_for("/switch")
            terminal.press(" ali" + TAB)
            terminal.wait_for("ce in wonderland")
            terminal.press(ENTER)
            terminal.wait_for("session alice in wonderland (2 messages)")


class TestPipe:
    def test_each_line_is_a_question_and_only_answers_are_on_stdout(self, place):
        done = place.pipe("one\n\nAdd\n")
        assert (done.returncode, done.stdout) == (0, "echo heard one.\nIt is 3\n")
        assert "add" in done.stderr
        assert "noise of a tool" in done.stderr
        assert ">" not in done.stdout

    def test_there_are_no_commands(self, place):
        """The text may come from anywhere, and must not delete or write anything."""
        assert place.pipe("/quit\n").stdout == "echo heard /quit.\n"

    def test_without_an_answer_the_exit_code_is_one(self, place):
        done = place.pipe("Fail\none\n")
        assert (done.returncode, done.stdout) == (1, "echo heard Fail\n\none.\n")
        assert "it does not work" in done.stderr

    def test_a_call_that_needs_approval_waits_for_a_terminal(self, place):
        for text in ("Mail\none\n", "two\n"):
            done = place.pipe(text)
            assert (done.returncode, done.stdout) == (1, "")
            assert "waits for approval of mail: decide in a terminal, treadle chat --session s" in (
                done.stderr
            )
        assert place.texts()[0] == "user: Mail"
        assert place.mails == 0

    def test_sessions_that_cannot_be_read_are_reported_in_one_line(self, place):
        (place.folder / "sessions.db").write_text("no database at all")
        done = place.pipe("one\n")
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1

    def test_a_terminal_may_be_asked_while_the_answers_go_to_a_file(self, place):
        command = " ".join(["exec", *place.command(), ">answers"])
        chat = Terminal(["sh", "-c", command], cwd=place.folder, env=place.environment)
        with left(chat) as terminal:
            say(terminal, "one")
            terminal.wait_for("(1 iteration")
        assert (place.folder / "answers").read_text() == "echo heard one.\n"

    def test_a_reader_that_goes_ends_it(self, place):
        with subprocess.Popen(
            place.command(),
            cwd=place.folder,
            env=place.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            process.stdout.close()
            process.stdin.write("one\n")
            process.stdin.close()
            assert process.wait(60) == 1
            assert "Traceback" not in process.stderr.read()
        assert place.texts() == ["user: one", "assistant: echo heard one."]


class TestApproval:
    @pytest.mark.parametrize(("key", "mails"), [("y", 1), ("n", 0)])
    def test_a_call_runs_only_if_the_user_says_so(self, place, key, mails):
        with place.visit() as terminal:
            say(terminal, "Mail")
            assert '"to": "Ada\\u001b[2J"' in terminal.wait_for("[y/n] ")
            terminal.press("what?" + ENTER)
            terminal.wait_for("[y/n] ")
            terminal.press(key + ENTER)
            terminal.wait_for("It is ")
        assert place.mails == mails

    @pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
    def test_the_question_is_asked_again_after_a_restart(self, place, key):
        with place.visit() as terminal:
            ask_for_mail(terminal)
            terminal.press_until(key, "[not decided")
        with place.visit() as terminal:
            terminal.wait_for("[y/n] ")
            terminal.press("y" + ENTER)
            terminal.wait_for("It is sent")
        assert place.mails == 1
        assert place.texts()[-2:] == ["tool: sent", "assistant: It is sent"]

    def test_the_question_outlives_kill_9(self, place):
        with place.start() as terminal:
            ask_for_mail(terminal)
        with place.visit() as terminal:
            terminal.wait_for("[y/n] ")
            terminal.press("n" + ENTER)
            terminal.wait_for("It is ")
        assert place.mails == 0

    @pytest.mark.parametrize(
        ("key", "mails", "told"),
        [("y", 2, "It is posted"), ("n", 1, "may have run already"), (CTRL_D, 1, "[not decided")],
        ids=["yes", "no", "undecided"],
    )
    def test_after_a_kill_it_says_that_an_approved_call_may_have_run(self, place, key, mails, told):
        with place.start(tools="post") as terminal:
            say(terminal, "Post")
            terminal.wait_for("[y/n] ")
            terminal.press("y" + ENTER)
            self.wait_for_mails(place, 1)
        place.open_gate()
        with place.visit(tools="post") as terminal:
            terminal.wait_for("[y/n] ")
            terminal.press("y" + ENTER)
            terminal.wait_for("what was approved may have run")
            terminal.wait_for("Run it all the same? [y/n] ")
            terminal.press(key if key == CTRL_D else key + ENTER)
            terminal.wait_for(told)
        assert place.mails == mails

    def test_of_two_terminals_one_continues(self, place):
        with place.visit(tools="post") as first:
            say(first, "Post")
            first.wait_for("[y/n] ")
            with place.visit(tools="post") as second:
                second.wait_for("[y/n] ")
                first.press("y" + ENTER)
                self.wait_for_mails(place, 1)
                second.press("y" + ENTER)
                second.wait_for("which is still running; a message continues without")
                place.open_gate()
                first.wait_for("It is posted\n(2 iterations, 1 tool call, ")
                say(second, "/history")
                second.wait_for("assistant: It is posted")
        assert place.mails == 1

    @staticmethod
    def wait_for_mails(place, count):
        end = time.monotonic() + 60
        while place.mails < count:
            assert time.monotonic() < end, "the tool did not run"
            time.sleep(0.02)

    def test_a_message_goes_on_without_the_call(self, place):
        with place.visit() as terminal:
            ask_for_mail(terminal)
            terminal.press_until(CTRL_C, "[not decided")
            say(terminal, "one")
            terminal.wait_for("echo heard Mail + one.")
        assert place.mails == 0
        assert place.store.session("s").pause() is None

    def test_a_call_whose_tool_is_gone_is_not_run(self, place):
        place.pipe("Mail\n")
        (place.folder / "my_tools.py").write_text(TOOLS.replace("def mail", "def post"))
        with place.visit(tools="add,post") as terminal:
            terminal.wait_for("[y/n] ")
            terminal.press("y" + ENTER)
            terminal.wait_for("[the waiting calls cannot run: ")
            say(terminal, "one")
            terminal.wait_for("echo heard Mail + one.")
        assert place.mails == 0

    def test_what_was_typed_before_the_question_is_no_answer(self, place):
        with place.start() as terminal:
            say(terminal, "Story")
            terminal.wait_for("Once upon ")
            terminal.press("Mail" + ENTER)
            terminal.press("y" + ENTER)
            place.open_gate()
            terminal.wait_for("[y/n] ")
            terminal.press("n" + ENTER)
            terminal.wait_for("It is ")
        assert place.mails == 0


class TestCommands:
    def test_every_command_has_a_test(self):
        tested = " ".join(name for name in dir(TestCommands) if name.startswith("test_"))
        assert [name for name in COMMANDS if f"_{name}_" not in tested] == []

    def test_the_guide_describes_every_command(self):
        guide = Path(__file__).parents[2] / "docs" / "guide-cli.md"
        rows = guide.read_text(encoding="utf-8").splitlines()
        for name, command in COMMANDS.items():
            usage = f"/{name} {command.argument}".strip()
            assert f"| `{usage}` | {command.help} |" in rows

    def test_help_lists_all_commands(self, place):
        with place.visit() as terminal:
            say(terminal, "/help")
            shown = terminal.wait_for("Ctrl-C interrupts")
            assert all(f"/{name}" in shown for name in COMMANDS)

    def test_quit_leaves(self, place):
        with place.start() as terminal:
            say(terminal, "/quit")
            assert terminal.wait() == 0

    def test_new_and_switch_change_the_session(self, place):
        with place.visit() as terminal:
            say(terminal, "one", "/new b", "two")
            terminal.wait_for("echo heard two.")
            say(terminal, "/switch s")
            terminal.wait_for("session s (2 messages)")
            say(terminal, "three")
            terminal.wait_for("echo heard one + three.")
            say(terminal, "/new b")
            terminal.wait_for("there is a session 'b' already")
            say(terminal, "/switch bb")
            terminal.wait_for("there is no session 'bb'")
            say(terminal, "/new", "four")
            terminal.wait_for("echo heard four.")
        assert len(place.names()) == 3

    def test_switch_asks_about_a_call_that_waits(self, place):
        place.pipe("Mail\n", session="b")
        with place.visit() as terminal:
            say(terminal, "/switch b")
            terminal.wait_for("[y/n] ")
            terminal.press("y" + ENTER)
            terminal.wait_for("It is sent")

    def test_sessions_lists_them(self, place):
        place.pipe("one\n", session="b")
        with place.visit() as terminal:
            say(terminal, "one", "/sessions")
            terminal.wait_for("* s  ")
            assert "2 messages" in terminal.wait_for("\n  b  ")

    def test_history_shows_the_last_messages(self, place):
        with place.visit() as terminal:
            say(terminal, "one", "two", "/history 3")
            terminal.wait_for("/history 3\n")
            assert terminal.wait_for("> ") == (
                "assistant: echo heard one.\nuser: two\nassistant: echo heard one + two.\n> "
            )
            terminal.press("/history x" + ENTER)
            terminal.wait_for("expected a number of messages, got 'x'")

    def test_undo_removes_the_last_exchange(self, place):
        with place.visit() as terminal:
            say(terminal, "one", "Add", "/undo")
            terminal.wait_for("[removed: Add]")
            say(terminal, "two")
            terminal.wait_for("echo heard one + two.")
            say(terminal, "/undo", "/undo", "/undo")
            terminal.wait_for("there is no message of yours")
        assert place.texts() == []

    def test_retry_asks_again(self, place):
        with place.visit() as terminal:
            say(terminal, "one", "Story")
            terminal.wait_for("Once upon ")
            terminal.press(CTRL_C)
            place.open_gate()
            say(terminal, "/retry")
            terminal.wait_for("Once upon a time")
        assert place.texts()[2:] == ["user: Story", "assistant: Once upon a time"]

    def test_undo_and_retry_take_a_message_with_attachments(self, place):
        parts = [{"type": "text", "text": "Look"}]
        session = place.store.session("s")
        Loop.run_sync("one", lambda _: "Hello.", session=session)
        Loop.run_sync([{"role": "user", "content": parts}], lambda _: "Hm.", session=session)
        with place.visit() as terminal:
            say(terminal, "/retry")
            terminal.wait_for("(1 iteration")
            assert session.messages()[2:] == [
                {"role": "user", "content": parts},
                {"role": "assistant", "content": "echo heard parts."},
            ]
            say(terminal, "/undo")
            terminal.wait_for("[removed: a message with attachments]")
        assert place.texts() == ["user: one", "assistant: Hello."]

    def test_retry_asks_about_a_call_that_waits(self, place):
        with place.visit() as terminal:
            ask_for_mail(terminal)
            terminal.press_until(CTRL_C, "[not decided")
            say(terminal, "/retry")
            terminal.wait_for("[y/n] ")
            terminal.press("y" + ENTER)
            terminal.wait_for("It is sent")

    def test_fork_continues_in_a_copy(self, place):
        with place.visit() as terminal:
            say(terminal, "one", "/fork b", "two")
            terminal.wait_for("echo heard one + two.")
            say(terminal, "/fork s")
            terminal.wait_for("there is a session 's' already")
        assert (len(place.texts("s")), len(place.texts("b"))) == (2, 4)

    def test_compact_summarises_now(self, place):
        with place.visit() as terminal:
            say(terminal, "one", "/compact")
            terminal.wait_for("[nothing to summarise")
            say(terminal, *["x" * 500] * 3, "/compact")
            terminal.wait_for("[earlier messages were summarised for the model: about ")
            say(terminal, "last")
            assert "one" not in terminal.wait_for(" + last.").partition("echo heard")[2]
            say(terminal, "/usage")
            terminal.wait_for("5 turns, 5 iterations")
        assert len(place.texts()) == 10

    def test_compact_leaves_a_call_that_waits(self, place):
        with place.visit() as terminal:
            ask_for_mail(terminal)
            terminal.press_until(CTRL_C, "[not decided")
            say(terminal, "/compact")
            terminal.wait_for("[a call waits for approval; /retry asks about it]")
        assert place.store.session("s").pause() is not None

    def test_export_writes_a_new_file_only(self, place):
        with place.visit() as terminal:
            say(terminal, "one", "/export out.jsonl")
            terminal.wait_for("[written to out.jsonl]")
            say(terminal, "/export demo.py")
            terminal.wait_for("demo.py exists")
            say(terminal, "/export no/such/folder")
            terminal.wait_for("cannot write no/such/folder")
        assert (place.folder / "demo.py").read_text() == PROVIDER
        file = place.folder / "out.jsonl"
        assert file.stat().st_mode & 0o077 == 0
        imported = import_session(place.store, file.read_text().splitlines(), "copy")
        assert imported.messages() == place.store.session("s").messages()

    def test_model_changes_the_model(self, place):
        with place.visit() as terminal:
            say(terminal, "/model")
            terminal.wait_for("\ndemo:echo\n")
            say(terminal, "/model demo:other", "one")
            terminal.wait_for("other heard one.")
            say(terminal, "/model dmo:x")
            terminal.wait_for("[")
            say(terminal, "two")
            terminal.wait_for("other heard one + two.")

    def test_another_model_of_the_same_provider_keeps_the_server(self, place):
        with place.visit("--model", "demo:where", "--base-url", "http://127.0.0.1:1") as terminal:
            say(terminal, "one")
            terminal.wait_for("at http://127.0.0.1:1.")
            say(terminal, "/model demo:where", "two")
            terminal.wait_for("at http://127.0.0.1:1.")
            say(terminal, "/model twin:where", "three")
            terminal.wait_for("at None.")

    def test_ctrl_c_during_a_command_goes_back_to_the_prompt(self, place):
        with place.visit() as terminal:
            say(terminal, "/model demo:slow")
            terminal.wait_for("loading")
            terminal.press_until(CTRL_C, "> ")  # Linux may drop what is shown at that moment
            terminal.press("one" + ENTER)
            terminal.wait_for("echo heard one.")

    def test_tools_lists_them(self, place):
        with place.visit() as terminal:
            say(terminal, "/tools")
            terminal.wait_for("add: Add two numbers.\nmail: Send a mail.\n")

    def test_usage_counts_a_paused_turn_once(self, place):
        with place.visit() as terminal:
            say(terminal, "Add", "Mail")
            terminal.wait_for("[y/n] ")
            terminal.press("y" + ENTER)
            say(terminal, "/usage")
            terminal.wait_for("2 turns, 4 iterations, 2 tool calls\n")

    def test_delete_asks_first_and_starts_a_new_session(self, place):
        with place.visit() as terminal:
            say(terminal, "one", "/delete")
            terminal.wait_for("Delete session 's'? [y/n] ")
            terminal.press("n" + ENTER)
            terminal.wait_for("not deleted")
            say(terminal, "/delete")
            terminal.wait_for("[y/n] ")
            terminal.press("y" + ENTER)
            terminal.wait_for("(new)")
        assert place.names() == []

    def test_an_unknown_command_is_not_sent(self, place):
        with place.visit() as terminal:
            say(terminal, "/histroy")
            terminal.wait_for("/histroy: there is no such command; did you mean '/history'?")
            say(terminal, "/switch")
            terminal.wait_for("/switch: expected NAME")
            say(terminal, "/tools x")
            terminal.wait_for("/tools: expected nothing after it")
            say(terminal, " /etc/hosts")
            terminal.wait_for("echo heard /etc/hosts.")


class TestConflict:
    def test_a_turn_is_stored_in_a_copy_where_the_chat_continues(self, place):
        place.pipe("one\n")
        place.pipe("taken\n", session="s-2")
        with place.visit() as terminal:
            say(terminal, "Story")
            terminal.wait_for("Once upon ")
            Loop.run_sync("two", lambda _: "Hello.", session=place.store.session("s"))
            place.open_gate()
            terminal.wait_for("a time\n[another program has changed session 's' meanwhile")
            terminal.wait_for("'s-3', where the chat continues")
            say(terminal, "three")
            terminal.wait_for("echo heard one + Story + three.")
        first = ["user: one", "assistant: echo heard one."]
        assert place.texts("s") == [*first, "user: two", "assistant: Hello."]
        assert [turn.start for turn in place.store.session("s-3").turns()] == [0, 2, 4]
        assert place.texts("s-3")[:4] == [*first, "user: Story", "assistant: Once upon a time"]

    @pytest.mark.parametrize("is_made_again", [False, True])
    def test_a_session_that_was_deleted_meanwhile_goes_on_in_a_copy(self, place, is_made_again):
        place.pipe("one\n")
        with place.visit() as terminal:
            say(terminal, "Story")
            terminal.wait_for("Once upon ")
            place.store.session("s").delete()
            if is_made_again:
                place.store.append("s", 0, [StoredTurn(0, [])] * 3, {})
            place.open_gate()
            terminal.wait_for("'s-2', where the chat continues")
        assert place.texts("s-2") == [
            *("user: one", "assistant: echo heard one."),
            *("user: Story", "assistant: Once upon a time"),
        ]
        assert place.texts("s") == []

    def test_a_turn_that_cannot_be_stored_is_stored_later(self, place):
        place.pipe("one\n")
        file, moved = place.folder / "sessions.db", place.folder / "moved"
        with place.visit() as terminal:
            say(terminal, "Story")
            terminal.wait_for("Once upon ")
            file.rename(moved)
            file.write_text("no database at all")
            place.open_gate()
            terminal.wait_for("a time\n[not stored: ")
            say(terminal, "lost?")
            terminal.wait_for("[")
            moved.rename(file)
            say(terminal, "two")
            terminal.wait_for("echo heard one + Story + two.")
        assert len(place.texts()) == 6

    def test_a_turn_that_was_never_stored_is_reported_at_the_end(self, place):
        place.pipe("one\n")
        file = place.folder / "sessions.db"
        with place.start() as terminal:
            say(terminal, "Story")
            terminal.wait_for("Once upon ")
            file.unlink()
            file.write_text("no database at all")
            place.open_gate()
            say(terminal, "/quit")
            terminal.wait_for("treadle: the last turn is not stored: ")
            assert terminal.wait() == 1


def test_kill_9_leaves_the_last_whole_turn(place):
    with place.start() as terminal:
        say(terminal, "one", "Add, story")
        terminal.wait_for("Once upon ")
    assert place.texts() == ["user: one", "assistant: echo heard one."]


class TestCompaction:
    LONG = "\n".join(f"{number} {'x' * 500}" for number in range(6))

    def test_a_long_conversation_is_summarised_for_the_model_only(self, place):
        done = place.pipe(self.LONG, "--max-context-tokens", "900")
        assert "[earlier messages were summarised for the model: about " in done.stderr
        assert "0 xxx" not in done.stdout.splitlines()[-1]
        assert len(place.texts()) == 12

        done = place.pipe("last\n")  # another process continues with the summary
        assert done.stdout.startswith("echo heard notes and ")
        assert "0 xxx" not in done.stdout
        assert "summarised" not in done.stderr

    def test_a_model_with_a_small_context_is_sent_less(self, place):
        done = place.pipe(self.LONG, "--model", "demo:small")
        assert "[earlier messages were summarised for the model: about " in done.stderr

    def test_an_option_turns_it_off(self, place):
        done = place.pipe(self.LONG, "--no-compaction", "--model", "demo:small")
        assert done.stdout.splitlines()[-1].count(" + ") == 5

    def test_a_limit_that_is_none_is_bad_usage(self, place):
        done = place.pipe("one\n", "--max-context-tokens", "0")
        assert (done.returncode, done.stdout) == (2, "")
        assert "max_tokens" in done.stderr


@pytest.mark.local
def test_the_local_model_talks(place, one_core):
    command = [*one_core, sys.executable, "-m", "treadle", "chat", "--session", "s"]
    asked = "What is 7 * 6?"
    with left(Terminal(command, cwd=place.folder, env=place.environment)) as terminal:
        say(terminal, asked)
        terminal.wait_for('calculate {"expression": "7 * 6"}: done in ')
        assert "42" in terminal.wait_for("(2 iterations, 1 tool call, ")
        say(terminal, "Thank you.")
        terminal.wait_for(" iteration")
    assert place.texts()[:3] == [f"user: {asked}", "assistant: None", "tool: 42"]


class TestPlace:
    @pytest.mark.parametrize("is_set", [True, False])
    def test_sessions_are_in_a_private_file_of_the_user(self, place, is_set):
        env = {"TREADLE_SESSIONS": "", "HOME": str(place.folder), "XDG_DATA_HOME": ""}
        if is_set:
            env["XDG_DATA_HOME"] = str(place.folder / "data")
        assert place.pipe("one\n", env=env).returncode == 0
        data = place.folder / ("data" if is_set else ".local/share")
        file = data / "treadle" / "sessions.db"
        assert [info.id for info in SQLiteSessions(file).sessions()] == ["s"]
        assert file.stat().st_mode & 0o077 == 0
        assert file.parent.stat().st_mode & 0o077 == 0

    def test_sessions_may_be_in_a_redis(self, place, redis_url):
        for text, answer in (("one", "echo heard one."), ("two", "echo heard one + two.")):
            done = place.pipe(text, "-c", "--sessions", redis_url, session=None)
            assert (done.returncode, done.stdout) == (0, f"{answer}\n")
        assert place.names() == []

    def test_a_redis_that_does_not_answer_is_bad_usage(self, place):
        done = place.pipe("one\n", "--sessions", "redis://127.0.0.1:1/0")
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1

    def test_an_option_names_another_file(self, place):
        assert place.pipe("one\n", "--sessions", "other.db").returncode == 0
        other = SQLiteSessions(place.folder / "other.db")
        assert [info.id for info in other.sessions()] == ["s"]
        assert place.names() == []
