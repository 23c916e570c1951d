"""Every option of `treadle run` and `treadle chat`, alone and in pairs: each combination makes a loop."""

import io
import itertools
import sys

import pytest

from treadle.cli import main
from treadle.cli.arguments import make_parser
from treadle.limits import LIMITS

NUMBERS = {f"--{name.replace('_', '-')}": "7" for name in (*LIMITS, "max_retries")}
OF_LOOP = {
    **NUMBERS,
    "--if-unmeasured": "ignore",
    "--system": "Be brief.",
    "--tools": "option_tools:add",
}
SAMPLES = {
    "run": {
        **OF_LOOP,
        "--json": None,
        "--quiet": None,
        "--record": "run.jsonl",
        "--report": "run.html",
        "--journal": "runs.db",
        "--run-id": "a",
        "--on-unknown": "ask",
    },
    "chat": {
        **OF_LOOP,
        "--session": "a",
        "--continue": None,
        "--max-context-tokens": "5000",
        "--no-compaction": None,
    },
}
ELSEWHERE = {"--help", "--model", "--base-url", "--api-key-env", "--mcp", "--sessions"}
"""The options that the test gives itself, or that start other programs."""
EXCLUSIVE = {("--session", "--continue"), ("--max-context-tokens", "--no-compaction")}


def combinations():
    for command, samples in SAMPLES.items():
        for size in (1, 2):
            for names in itertools.combinations(samples, size):
                if names not in EXCLUSIVE:
                    given = [samples[name] for name in names]
                    pairs = zip(names, given, strict=True)
                    words = [word for pair in pairs for word in pair if word is not None]
                    yield pytest.param(command, words, id=f"{command} {' '.join(names)}")


@pytest.mark.parametrize(("command", "words"), list(combinations()))
def test_options_can_be_combined(command, words, endpoint, root, tmp_path, monkeypatch, capsys):
    (root / "option_tools.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # where runs and sessions are by default
    for name in ("TREADLE_SESSIONS", "TREADLE_JOURNAL"):
        monkeypatch.delenv(name, raising=False)
    endpoint.script = ["Hello."]
    model = ["--model", "openai:m", "--base-url", endpoint.base_url]

    code = main([command, *(["Hi"] if command == "run" else []), *words, *model])

    out, err = capsys.readouterr()
    is_unmeasured = "max_cost" in err  # the server reports no cost, which ends the run as it should
    assert code == (1 if is_unmeasured else 0), err
    assert command == "chat" or "Hello." in out


@pytest.mark.parametrize("command", list(SAMPLES))
def test_no_option_is_forgotten(command):
    (commands,) = (one for one in make_parser()._actions if one.choices)
    options = {
        action.option_strings[-1]
        for action in commands.choices[command]._actions
        if action.option_strings
    }
    assert options - ELSEWHERE == set(SAMPLES[command])
