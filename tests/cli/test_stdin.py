"""What `treadle run` reads from stdin: a pipe, a file, a terminal, nothing, or what is no text."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.programs import run_program

from treadle.cli.stdin import MAX_BYTES


@pytest.fixture
def run(command, root, endpoint):
    """Runs `treadle run` with a given stdin; gives its exit code and stderr, and the question that was sent."""
    endpoint.script = ["Done."]

    def make(*args, **how):
        options = {"timeout": 60, "capture_output": True, "cwd": root, **how}
        done = subprocess.run(command(*args, "--quiet"), check=False, **options)
        assert b"Traceback" not in done.stderr
        sent = [request["messages"][-1]["content"] for request in endpoint.bodies]
        assert len(sent) == (done.returncode == 0)
        return done.returncode, done.stderr.decode(), "".join(sent)

    return make


TEXTS = [
    ("the text", "summarise\n\nthe text"),
    ("one\n\ntwo\n", "summarise\n\none\n\ntwo\n"),
    ("\ufeffmarked", "summarise\n\nmarked"),
    ("日本 \U0001f600\u200d", "summarise\n\n日本 \U0001f600\u200d"),
    ("", "summarise"),
    (" \n\t\n", "summarise"),
]


@pytest.mark.parametrize(("text", "question"), TEXTS)
@pytest.mark.parametrize("kind", ["pipe", "file", "socket"])
def test_a_pipe_and_a_file_are_appended_to_the_question(run, tmp_path, kind, text, question):
    if kind == "pipe":
        found = run("summarise", input=text.encode())
    elif kind == "file":
        (tmp_path / "in.txt").write_text(text)
        with (tmp_path / "in.txt").open("rb") as file:
            found = run("summarise", stdin=file)
    else:
        ours, theirs = socket.socketpair()
        ours.sendall(text.encode())
        ours.close()
        found = run("summarise", stdin=theirs)
        theirs.close()
    assert found == (0, "", question)


@pytest.mark.parametrize("stdin", ["/dev/null", "terminal", "closed"])
def test_what_has_no_input_is_not_read(run, root, command, stdin):
    if stdin == "closed":
        shell = ["sh", "-c", 'exec "$@" <&-', "sh", *command("summarise", "--quiet")]
        done = subprocess.run(shell, cwd=root, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"Done.\n", b"")
        return
    ours, theirs = os.openpty()  # on which nobody types
    given = subprocess.DEVNULL if stdin == "/dev/null" else theirs
    try:
        assert run("summarise", stdin=given) == (0, "", "summarise")
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_question_may_come_from_stdin_alone(run):
    assert run("-", input=b"A long question\n") == (0, "", "A long question\n")


def test_an_empty_question_is_that_of_stdin(run):
    assert run("", input=b"A long question") == (0, "", "A long question")


BAD = [
    (b"caf\xe9", "PROMPT: expected text in utf-8 on stdin, got the byte 0xe9 at offset 3"),
    (b"\xff\xfeh\x00i\x00", "the byte 0xff at offset 0"),
    (b"a" * 100_000 + b"\xed\xa0\x80", "the byte 0xed at offset 100,000"),
    (b"x" * (MAX_BYTES + 1), "PROMPT: stdin has more than 4,000,000 bytes"),
]


@pytest.mark.parametrize("prompt", ["summarise", "-"])
@pytest.mark.parametrize(("given", "text"), BAD, ids=["latin", "utf-16", "surrogate", "long"])
def test_what_is_no_text_is_refused_before_the_run(run, prompt, given, text):
    code, err, _ = run(prompt, input=given)
    assert (code, len(err.splitlines())) == (2, 1)
    assert text in err


def test_a_pipe_without_an_end_is_bounded(run, root, command):
    """`yes | treadle run "summarise"`."""
    endless = subprocess.Popen(["yes", "again"], stdout=subprocess.PIPE)
    try:
        code, err, _ = run("summarise", stdin=endless.stdout)
    finally:
        endless.stdout.close()
        endless.wait(30)
    assert (code, len(err.splitlines())) == (2, 1)


@pytest.mark.parametrize("prompt", ["summarise", "-"])
@pytest.mark.parametrize("start", [b"", b"the start "])
def test_a_pipe_that_falls_silent_is_bounded(run, prompt, start):
    """Such as one that a service has inherited. The limit of the run bounds the wait as well."""
    reading, writing = os.pipe()
    os.write(writing, start)
    try:
        code, err, _ = run(prompt, "--max-seconds", "0.5", stdin=reading)
    finally:
        os.close(reading)
        os.close(writing)
    assert code == 2
    assert "PROMPT: stdin delivered nothing for 0.5 s and did not end" in err
    assert "< /dev/null" in err


def test_a_slow_pipe_is_waited_for_and_the_wait_is_reported(command, root, endpoint):
    endpoint.script = ["Done."]
    with subprocess.Popen(
        command("summarise"), cwd=root, stdin=-1, stdout=-1, stderr=-1, text=True
    ) as process:
        notice = process.stderr.readline()
        out, _ = process.communicate("at last", timeout=60)
    assert notice.startswith("treadle: waiting for the end of stdin; ")
    assert (process.returncode, out) == (0, "Done.\n")
    assert endpoint.bodies[0]["messages"][-1]["content"] == "summarise\n\nat last"


@pytest.mark.parametrize("args", [("run", "-"), ("steer", "tea", "-", "--journal", "runs.db")])
def test_a_closed_stdin_is_an_error_where_it_is_to_be_read(args, root, command, endpoint):
    (root / "runs.db").touch()
    model = command()[-4:] if args[0] == "run" else []
    line = [sys.executable, "-m", "treadle", *args, *model]
    shell = ["sh", "-c", 'exec "$@" <&-', "sh", *line]
    done = run_program(shell, cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected text on stdin, which is closed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


ARGUMENTS = [
    ("run", b"caf\xe9"),
    ("run", b"hi", b"--system", b"caf\xe9"),
    ("run", b"hi", b"--run-id", b"\xff"),
    ("run", b"hi", b"--tools", b"m:caf\xe9"),
    ("run", b"hi", b"--model", b"openai:\xff"),
    ("chat", b"--session", b"caf\xe9"),
    ("steer", b"tea", b"caf\xe9"),
    ("decide", b"tea", b"--deny", b"c=caf\xe9"),
    ("show", b"\xff"),
    ("memory-worker", b"--memories", b"m.db", b"--scope-separator", b"\xff"),
]


@pytest.mark.parametrize("args", ARGUMENTS, ids=lambda args: " ".join(map(str, args)))
def test_an_argument_that_is_no_text_is_refused(args, root, tmp_path):
    line = [sys.executable, "-m", "treadle", *args]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(
        line, cwd=root, env=environment, stdin=-3, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"expected text in UTF-8, got '" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [*tmp_path.glob("treadle/*")] == []


def test_the_name_of_a_file_may_have_any_bytes(command, root, endpoint):
    endpoint.script = ["Done."]
    name = os.fsencode(root) + b"/caf\xe9.jsonl"
    line = command("hi", "--record", name)
    done = subprocess.run(line, cwd=root, stdin=-3, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert Path(os.fsdecode(name)).exists()
