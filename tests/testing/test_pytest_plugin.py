"""The plugin for pytest: runs are recorded once, then replayed, and a change fails with the first difference."""

import sys

import pytest

from treadle.recording import read_recording

pytest_plugins = ["pytester"]

LOOP = '''
import json, pytest
from treadle import Loop, approve, tool
from treadle.testing import call, calls

LIVE = []  # what was called

@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    LIVE.append("add")
    return a + b

@tool(requires_approval=True)
def send(text: str) -> str:
    """Send a text."""
    LIVE.append("send")
    return "sent"

def model(messages):
    LIVE.append("model")
    if messages[-1]["role"] == "tool":
        return f"It is {messages[-1]['content']}."
    name, given = ("send", {"text": "x"}) if "Send" in messages[-1]["content"] else ("add", {"a": 1, "b": 2})
    return calls(call(name, "c1", **given))

loop = Loop(tools=[add, send], instructions="Be brief.")
'''
TEST = f"""{LOOP}
def test_add(recorded):
    result = recorded.run_sync(loop, "What is 1 + 2?", model)
    assert result.output == "It is 3."
    assert bool(LIVE) is not recorded.is_replayed
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """A folder with tests that use the plugin."""
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # a changed file may have the same size and time
    pytester.makeconftest('pytest_plugins = ["treadle.testing.pytest_plugin"]')

    def run(text=None, *options, **outcomes):
        if text is not None:
            pytester.makepyfile(test_it=text)
        result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)
        result.assert_outcomes(**outcomes)
        return result

    run.path = pytester.path
    return run


def recordings(project):
    return sorted(one.name for one in (project.path / "recordings").iterdir())


def test_a_run_is_recorded_and_then_replayed(project):
    project(TEST, passed=1)
    assert recordings(project) == ["test_add.jsonl"]
    first = (project.path / "recordings" / "test_add.jsonl").read_bytes()
    project(passed=1)
    project(None, "--replay", passed=1)
    assert (project.path / "recordings" / "test_add.jsonl").read_bytes() == first


def test_record_runs_live_again(project):
    project(TEST, passed=1)
    changed = TEST.replace("Be brief.", "Be very brief.")
    project(changed, failed=1)
    project(changed, "--record", passed=1)
    project(changed, "--replay", passed=1)
    (run,) = read_recording(project.path / "recordings" / "test_add.jsonl").runs
    assert run.iterations[0].instructions == "Be very brief."


def test_replay_never_runs_live(project):
    result = project(TEST, "--replay", errors=1)
    result.stdout.fnmatch_lines(
        ["*there is no recording recordings/test_add.jsonl; make it with pytest --record*"]
    )
    assert not (project.path / "recordings").exists()


def test_both_options_exclude_each_other(project):
    result = project(TEST, "--replay", "--record", errors=1)
    result.stdout.fnmatch_lines(["*--record and --replay exclude each other*"])


SHOUT = """
shout = lambda ctx: ctx.guide("!") if ctx.iteration == 2 else ctx
loop = loop.with_options(stages=[shout, ...])
def test_add("""
CHANGES = {
    "prompt": (
        ("Be brief.", "Be kind."),
        [
            "the run differs from recordings/test_add.jsonl: *1: the request to the model*instructions",
            "  recorded: 'Be brief.'",
            "       now: 'Be kind.'",
            "  changed: instructions changed from 'Be brief.' to 'Be kind.'",
            "If this is intended, record it again with pytest --record.",
        ],
    ),
    "tool": (
        ("Add two numbers.", "Add."),
        [
            "*iteration 1: the request to the model differs, at tools[[]0].function.description",
            "  recorded: 'Add two numbers.'",
            "       now: 'Add.'",
            "  changed: tool 'add': description changed from 'Add two numbers.' to 'Add.'",
        ],
    ),
    "stage": (
        ("def test_add(", SHOUT),
        [
            "*iteration 2: the request to the model differs, at guidance",
            "  recorded: null",
            "       now: '!'",
            "  changed: stage 'lambda' was added as the first one",
        ],
    ),
    "question": (
        ("What is 1 + 2?", "What is 2 + 1?"),
        [
            "*before the first iteration: messages given to the run differs",
            "  recorded: 'What is 1 + 2?'",
            "       now: 'What is 2 + 1?'",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "lines"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_fails_with_the_first_difference(project, change, lines):
    project(TEST, passed=1)
    result = project(TEST.replace(*change), failed=1)
    result.stdout.fnmatch_lines(lines, consecutive=True)
    assert "Traceback" not in result.stdout.str()


SEVERAL = f"""{LOOP}
import anyio

def test_pause(recorded):
    first = recorded.run_sync(loop, "Send it.", model, name="sender")
    other = recorded.run_sync(loop, "What is 1 + 2?", model)
    events = []
    decisions = {{first.pending[0].id: approve}}
    second = recorded.resume_sync(loop, first, decisions, model, on_event=events.append)
    assert (other.output, second.output) == ("It is 3.", "It is sent.")
    assert events[-1].stop_reason == "answered"
    assert events[0].agent_name == "sender"

@pytest.mark.parametrize("word", ["a/b", "a b"])
def test_async(recorded, word):
    async def main():
        first = await recorded.run(loop, f"Send {{word}}.", model)
        return await recorded.resume(loop, first, {{first.pending[0].id: approve}}, model)
    assert anyio.run(main).output == "It is sent."

class TestIt:
    def test_add(self, recorded):
        assert recorded.run_sync(loop, "What is 1 + 2?", model).output == "It is 3."
"""


def test_several_runs_pauses_and_parameters_have_their_recordings(project):
    project(SEVERAL, passed=4)
    names = recordings(project)
    assert names[0] == "TestIt.test_add.jsonl"
    assert names[3] == "test_pause.jsonl"
    assert len({name.partition("-")[2] for name in names[1:3]}) == 2
    project(
        SEVERAL.replace("def model(messages):", "def model(messages):\n    raise KeyError"),
        passed=4,
    )


COUNTS = {
    "more": (
        ("    assert result", "    recorded.run_sync(loop, 'What is 1 + 2?', model)\n    assert result"),
        {"failed": 1},
        "the test makes more runs than were recorded in recordings/test_add.jsonl",
    ),
    "fewer": (
        ('    result = recorded.run_sync(loop, "What is 1 + 2?", model)\n', "    return\n"),
        {"passed": 1, "errors": 1},
        "the test makes fewer runs than were recorded in recordings/test_add.jsonl",
    ),
    "fewer after a failure": (
        ('    result = recorded.run_sync(loop, "What is 1 + 2?", model)\n', "    assert 0\n"),
        {"failed": 1},
        "*assert 0*",
    ),
    "another resume": (
        ("    assert result.", "    recorded.resume_sync(loop, result, {}, model)\n    assert result."),
        {"failed": 1},
        "the test resumes a run that was not resumed in recordings/test_add.jsonl",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "outcomes", "line"), COUNTS.values(), ids=COUNTS.keys())
def test_other_runs_than_were_recorded_fail(project, change, outcomes, line):
    project(TEST, passed=1)
    project(TEST.replace(*change), **outcomes).stdout.fnmatch_lines([line])
