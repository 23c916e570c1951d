"""`treadle run`: what it prints, where, and the code it ends with."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.programs import run_program

from treadle import Ok, Response, RunState, __version__
from treadle.cli.interrupts import interrupts_end
from treadle.cli.output import as_json
from treadle.loop import RunHandle
from treadle.testing import check_history

TOOLS = '''
import asyncio, time
from treadle import Err, tool

@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@tool
def chatty() -> str:
    """Print."""
    print("from within")
    return "done"

@tool
def sleepy() -> str:
    """Hang in a thread."""
    print("asleep", flush=True)
    time.sleep(60)

@tool
async def dozy() -> str:
    """Hang on an event loop."""
    print("asleep", flush=True)
    await asyncio.sleep(60)

@tool(requires_approval=True)
def wipe() -> str:
    """Wipe everything."""
    return "gone"

@tool(terminal=True)
def finish(total: int) -> None:
    """Give the total."""

def plain(text: str) -> str:
    """Be a function, and no tool yet."""
    return text

both = [add, plain]
number = 5
'''


@pytest.fixture
def tools(root):
    """A module of tools in the folder in which the command runs."""
    (root / "my_tools.py").write_text(TOOLS)


@pytest.fixture(autouse=True)
def forgotten():
    """Each test imports its own modules."""
    yield
    for name in ("my_tools", "broken_tools", "needy_tools", "leaving_tools"):
        sys.modules.pop(name, None)


def test_the_answer_goes_to_stdout_and_the_progress_to_stderr(endpoint, spawned, calls):
    """One tool of the default toolset reads the current folder; nothing else is on stdout."""
    endpoint.script = [calls(("list_files", {"folder": "docs"})), "There is guide.md."]

    done = spawned("Which files are in docs?")

    assert (done.returncode, done.stdout) == (0, "There is guide.md.\n")
    assert "list_files" in done.stderr
    assert "\x1b" not in done.stderr
    first, second = endpoint.bodies
    assert first["messages"][-1] == {"role": "user", "content": "Which files are in docs?"}
    assert second["messages"][-1]["content"] == "guide.md"
    assert {made["function"]["name"] for made in first["tools"]} == {
        "list_files",
        "read_file",
        "search_text",
        "current_time",
        "calculate",
    }


def test_json_is_the_whole_result(endpoint, spawned, calls, tools):
    """One object on stdout, with all that the result has."""
    endpoint.script = [calls(("add", {"a": 1, "b": 2}), ("add", {"a": "x"})), "Three."]

    done = spawned("1 + 2?", "--tools", "my_tools:add", "--json", "--quiet")

    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    (made,) = shown.pop("calls")
    assert made.pop("duration") >= 0
    assert made == {
        "iteration": 1,
        "id": "call_1",
        "name": "add",
        "arguments": {"a": 1, "b": 2},
        "status": "success",
        "error": None,
    }
    messages = shown.pop("messages")
    check_history(messages)
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert shown.pop("usage")["total_tokens"] == 30
    assert len(shown.pop("run_id")) == 32
    assert shown == {
        "ok": True,
        "reason": None,
        "stop_reason": "answered",
        "content": "Three.",
        "output": None,
        "iterations": 2,
        "tool_calls_count": 1,
    }


def test_a_run_without_an_answer_ends_with_one_and_its_reason(endpoint, spawned):
    """stdout stays empty: a script that reads it must not take a reason for an answer."""
    endpoint.script = [400]

    done = spawned("Hello", "--quiet")

    assert (done.returncode, done.stdout) == (1, "")
    assert "treadle: the model failed: BadRequestError" in done.stderr
    assert "this is status 400" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_json_tells_the_reason_too(endpoint, asked):
    """Where there is no answer there is still the one object."""
    endpoint.script = [400]

    code, out, _ = asked("Hello", "--json")

    shown = json.loads(out)
    assert (code, shown["ok"], shown["stop_reason"]) == (1, False, "llm_error")
    assert "this is status 400" in shown["reason"]
    assert shown["content"] is None


def test_json_takes_what_json_does_not_know():
    """An output may be a pydantic model, or hold anything."""

    class Total(BaseModel):
        total: int

    output = {"a": Total(total=3), "b": Path("/b")}
    shown = json.loads(as_json(Ok(Response("x"), output=output, run=RunState())))

    assert shown["output"] == {"a": {"total": 3}, "b": "/b"}
    assert shown["calls"] == []


def test_a_tool_that_ends_the_run_gives_the_output(endpoint, asked, calls, tools):
    """What a terminal tool was called with is what is printed."""
    endpoint.script = [calls(("finish", {"total": 3}))] * 2

    assert asked("1 + 2?", "--tools", "my_tools:finish")[:2] == (0, '{"total": 3}\n')

    endpoint.requests.clear()
    shown = json.loads(asked("1 + 2?", "--tools", "my_tools:finish", "--json")[1])
    assert (shown["output"], shown["stop_reason"]) == ({"total": 3}, "output")


@pytest.mark.parametrize(
    ("flag", "value", "stop_reason"),
    [
        ("--max-iterations", "2", "max_iterations_reached"),
        ("--max-tool-calls", "2", "budget_exhausted"),
        ("--max-input-tokens", "15", "budget_exhausted"),
        ("--max-output-tokens", "7", "budget_exhausted"),
        ("--max-total-tokens", "20", "budget_exhausted"),
    ],
)
def test_a_limit_ends_the_run(endpoint, asked, calls, tools, flag, value, stop_reason):
    """Each is handed on to the loop; the history is whole."""
    endpoint.script = [calls(("add", {"a": turn, "b": 2})) for turn in range(6)]

    code, out, err = asked("Add on", "--tools", "my_tools:add", "--json", flag, value)

    shown = json.loads(out)
    assert (code, shown["stop_reason"]) == (1, stop_reason)
    assert shown["reason"] in err
    check_history(shown["messages"])


def test_a_call_that_needs_approval_is_told(endpoint, asked, calls, tools):
    """There is nobody to ask here; the run is over, and says so."""
    endpoint.script = [calls(("wipe", {}))]

    code, out, err = asked("Wipe it", "--tools", "my_tools:wipe", "--json")

    assert (code, json.loads(out)["stop_reason"]) == (1, "paused")
    assert "waits for approval of wipe" in err


def test_a_time_limit_ends_the_run(endpoint, asked, calls, tools):
    """A tool that hangs does not hold it up."""
    endpoint.script = [calls(("sleepy", {}))]

    code, out, _ = asked("Sleep", "--tools", "my_tools:sleepy", "--json", "--max-seconds", "0.5")

    shown = json.loads(out)
    assert (code, shown["stop_reason"]) == (1, "deadline_exceeded")
    check_history(shown["messages"])


def test_parallel_calls_are_limited(endpoint, asked, calls, tools):
    """With one at a time, the other is put off, and the model is told so."""
    endpoint.script = [calls(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2})), "Done."]

    _, out, _ = asked("Add", "--tools", "my_tools:add", "--json", "--max-parallel-calls", "1")

    shown = json.loads(out)
    assert shown["tool_calls_count"] == 1
    assert shown["messages"][-2]["content"].startswith("Not run yet")


@pytest.mark.parametrize("retries", [0, 1])
def test_the_model_is_tried_again(endpoint, asked, retries):
    """As often as was said."""
    endpoint.script = [500] * 5

    code, _, err = asked("Hello", "--max-retries", str(retries))

    assert (code, len(endpoint.bodies)) == (1, retries + 1)
    assert ("retry in" in err) == bool(retries)


def test_tools_come_from_a_module_in_the_current_folder(endpoint, spawned, calls, tools):
    """Tools, functions and lists of both; flags add up."""
    endpoint.script = [calls(("plain", {"text": "hello"})), "Done."]

    done = spawned("Go", "--tools", "my_tools:both", "--tools", "my_tools:chatty, sleepy")

    assert done.returncode == 0
    names = [made["function"]["name"] for made in endpoint.bodies[0]["tools"]]
    assert names == ["add", "plain", "chatty", "sleepy"]
    assert endpoint.bodies[1]["messages"][-1]["content"] == "hello"


def test_what_a_tool_prints_is_not_the_answer(endpoint, spawned, calls, tools):
    """It goes to stderr: stdout is one answer, or one JSON object."""
    endpoint.script = [calls(("chatty", {})), "Done."]

    done = spawned("Go", "--tools", "my_tools:chatty")

    assert done.stdout == "Done.\n"
    assert "from within" in done.stderr


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("my_tools", "expected MODULE:NAME[,NAME...], got 'my_tools'"),
        ("my_tools:", "expected MODULE:NAME"),
        (":add", "expected MODULE:NAME"),
        ("my_tools:add,,plain", "expected MODULE:NAME"),
        ("no_such:add", "no module 'no_such' in"),
        ("my_tools.inner:add", "my_tools.inner"),
        ("my_tools:ad", "module 'my_tools' has no 'ad'; did you mean 'add'?"),
        ("my_tools:number", "my_tools:number: expected a Tool, a function"),
        ("my_tools:add,add", "two tools named 'add'"),
        ("broken_tools:x", "importing 'broken_tools' failed: ZeroDivisionError"),
        ("needy_tools:x", "'needy_tools' needs the module 'no_such_module'"),
        ("leaving_tools:x", "importing 'leaving_tools' failed: SystemExit"),
    ],
)
def test_bad_tools_are_told_in_one_line(called, root, tools, spec, told):
    """No traceback, no usage to scroll past, and no model opened before."""
    (root / "broken_tools.py").write_text("1 / 0")
    (root / "needy_tools.py").write_text("import no_such_module")
    (root / "leaving_tools.py").write_text("raise SystemExit(0)")

    code, out, err = called("Go", "--tools", spec)

    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["Go", "--model", "gpt"], "model: 'gpt' is unknown; known are "),
        (["Go", "--model", "openai:m"], "OPENAI_API_KEY"),
        (["Go", "--model", "local", "--base-url", "http://x"], "error: --base-url: "),
        (
            ["Go", "--max-iterations", "0"],
            "--max-iterations: expected a whole number of at least 1",
        ),
        (["Go", "--max-seconds", "nan"], "--max-seconds"),
        (["Go", "--max-tool-calls", "many"], "invalid int value: 'many'"),
        (["Go", "--max-retries", "-1"], "--max-retries"),
        (["Go", "--max-iteratoins", "1"], "unrecognized arguments"),
        ([], "PROMPT"),
        ([" "], "expected a question"),
    ],
)
def test_bad_usage_is_told_in_one_line(called, args, told):
    """It ends with two, as argparse does."""
    if args and "--model" not in args:
        args = [*args, "--model", "openai:m", "--base-url", "http://127.0.0.1:1/v1"]

    code, out, err = called(*args)

    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("package", "model", "installs"),
    [
        ("openai", "openai:m", "pip install 'treadle[openai]'"),
        ("xllamacpp", "local", "pip install 'treadle[local]'"),
    ],
)
def test_a_missing_extra_is_told_with_the_command_that_installs_it(
    spawned, without, package, model, installs
):
    """What is asked for and not installed is bad usage, not a crash."""
    done = spawned("Go", model=model, env=without(package))

    assert (done.returncode, done.stdout) == (2, "")
    assert installs in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_weights_that_are_not_there_are_told(called, root):
    """The path of a local model is checked before anything runs."""
    pytest.importorskip("xllamacpp")

    code, _, err = called("Go", "--model", f"local:{root}/none.gguf")

    assert code == 2
    assert "none.gguf" in err


@pytest.mark.parametrize(
    ("given", "sent"), [(["--system", "Be kind."], "Be kind."), (["--system", ""], None)]
)
def test_the_system_prompt_is_sent(endpoint, asked, given, sent):
    """An empty one is none."""
    endpoint.script = ["Hello."]

    asked("Hello", *given)

    first = endpoint.bodies[0]["messages"][0]
    assert (first["content"] if first["role"] == "system" else None) == sent


def test_quiet_shows_nothing_but_the_answer(endpoint, asked):
    """Nothing on stderr where all went well."""
    endpoint.script = ["Hello."]

    assert asked("Hello", "--quiet") == (0, "Hello.\n", "")


def interrupted(command, root, ready, *args):
    """Run the command, and send it a Ctrl-C as soon as it is ready; give what came of it."""
    with subprocess.Popen(
        command(*args), cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            ready(process)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=50)  # the tool would take 60 s
        finally:
            process.kill()
    assert "Traceback" not in err
    return process.returncode, out, err


def tool_sleeps(process):
    for line in process.stderr:
        if "asleep" in line:
            return
    pytest.fail("the tool was not run")


@pytest.mark.parametrize("name", ["sleepy", "dozy"])
def test_ctrl_c_ends_a_hanging_tool_with_what_was_done(endpoint, command, root, calls, tools, name):
    """The history so far is shown, and the process does not wait for the tool."""
    endpoint.script = [calls(("add", {"a": 1, "b": 2})), calls((name, {}))]

    code, out, err = interrupted(
        command, root, tool_sleeps, "Sleep", "--tools", f"my_tools:add,{name}"
    )

    assert (code, out) == (130, "")
    assert "user: Sleep\n" in err
    assert 'assistant: calls add {"a": 1, "b": 2}\ntool: 3\n' in err
    assert f"assistant: calls {name} {{}}\ntool: Cancelled" in err
    assert err.splitlines()[-1].startswith("treadle: the run was cancelled (2 iterations")


def test_ctrl_c_with_json_gives_the_json_of_what_was_done(endpoint, command, root, calls, tools):
    """One object as ever, with a history that can be gone on from."""
    endpoint.script = [calls(("sleepy", {}))]

    code, out, _ = interrupted(
        command, root, tool_sleeps, "Sleep", "--tools", "my_tools:sleepy", "--json"
    )

    shown = json.loads(out)
    assert (code, shown["ok"], shown["stop_reason"]) == (130, False, "cancelled")
    check_history(shown["messages"])
    assert shown["calls"][0]["status"] == "failed"


def test_a_second_ctrl_c_does_not_wait():
    """The first ends the run in order; who is in a hurry presses again."""
    handle = RunHandle()
    before = signal.getsignal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), interrupts_end(handle):
        signal.raise_signal(signal.SIGINT)
        assert handle.ended.is_set
        signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is before


def test_who_ignores_interrupts_goes_on_ignoring_them():
    """As what a script started in its background does."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        handle = RunHandle()
        with interrupts_end(handle):
            signal.raise_signal(signal.SIGINT)
        assert not handle.ended.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_before_the_run_is_no_traceback(asked, monkeypatch):
    """Such as while the model is loaded."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("treadle.cli.run_command.prepared", interrupt)

    assert asked("Hello") == (130, "", "treadle: interrupted\n")


def test_a_pipe_gets_the_text_of_the_answer_and_nothing_that_a_terminal_obeys(endpoint, spawned):
    """What is piped may end in a terminal, as with `| cat`; joiners and marks belong to the text."""
    endpoint.script = [
        "\x1b[1mbold\x1b[0m\x9b2J\rx \U0001f469\u200d\U0001f467 \u202eב\u200b\ttab\nend"
    ]

    assert spawned("Go").stdout == (
        "\\x1b[1mbold\\x1b[0m\\x9b2J\\rx \U0001f469\u200d\U0001f467 \u202eב\u200b\ttab\nend\n"
    )


def test_an_answer_that_cannot_be_encoded_is_shown_in_part(endpoint, spawned):
    """Half a surrogate pair is no text, and no reason to lose the rest."""
    endpoint.script = ["one \ud800 two"]

    done = spawned("Go")

    assert (done.returncode, done.stdout) == (0, "one \\ud800 two\n")


def test_the_version_is_told():
    """`python -m treadle` is the command."""
    done = run_program([sys.executable, "-m", "treadle", "--version"], check=True)
    assert done.stdout == f"treadle {__version__}\n"


@pytest.mark.local
def test_the_local_model_lists_a_folder(spawned, one_core):
    """All of it for real, without a network: a model, a tool, an answer."""
    question = "Which files are in the folder docs?"
    done = spawned(question, "--json", model="local", timeout=300, before=one_core)

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["ok"], shown["stop_reason"]) == (True, "answered")
    assert shown["calls"][0]["name"] == "list_files"
    assert shown["calls"][0]["arguments"] == {"folder": "docs"}
    assert shown["content"].strip()
    assert {"role": "tool", "content": "guide.md"}.items() <= shown["messages"][3].items()
    check_history(shown["messages"])
