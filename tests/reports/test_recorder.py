"""The record of runs: every event is a line of a known form, messages are written once, nothing is lost."""

import dataclasses
import io
import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import get_args

import anyio
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from tests.programs import run_program

from treadle import Loop, Ok, RunHandle, tool
from treadle.effects import Emit
from treadle.events import (
    Event,
    ModelRequested,
    RunFinished,
    RunStarted,
    SubagentEvent,
    ToolStarted,
)
from treadle.pipeline import stage
from treadle.recording.lines import EVENT_NAMES
from treadle.recording.reader import read_lines, read_recording, recording_schema
from treadle.recording.recorder import Recorder
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls, check_history

from .full_disk import no_room
from .samples import EVENTS, USER, add, echo, eventful, recorded, wipe

VALIDATOR = Draft202012Validator(recording_schema())
QUESTION = [{"role": "user", "content": "go"}]


def all_lines_of(path):
    """The lines of a record as they were written, without the first."""
    text = path.read_text(encoding="ascii")
    assert text.endswith("\n")
    head, *lines = map(json.loads, text.splitlines())
    assert head["treadle_recording"] == 4
    return lines


def lines_of(path):
    """Those of its lines that are events."""
    return [line for line in all_lines_of(path) if "event" in line]


def names_in(folder):
    return sorted(one.name for one in folder.iterdir())


def named(event):
    return type(event).__name__


@pytest.mark.parametrize("event", EVENTS, ids=named)
def test_every_kind_of_event_is_a_line_that_fits_the_schema(event):
    """And has no fields that the schema does not name."""
    head, line = map(json.loads, recorded(event).splitlines())

    VALIDATOR.validate(head)
    VALIDATOR.validate(line)
    parts = recording_schema()["$defs"]
    inner = event
    while isinstance(inner, SubagentEvent):
        inner = inner.event
    assert line["event"] == EVENT_NAMES[type(inner)]
    assert set(line) <= {*parts["line"]["properties"], *parts[line["event"]]["properties"]}


RENAMED = {
    ("RunStarted", "run_id"): "run",
    ("RunStarted", "state"): None,
    ("ToolStarted", "within"): "of",
    ("ToolRetried", "exception"): "traceback",
    ("ToolFinished", "exception"): "traceback",
    ("IterationFinished", "context"): "calls",
    ("RunFinished", "result"): "output",
}


@pytest.mark.parametrize(
    "event", [event for event in EVENTS if not isinstance(event, SubagentEvent)], ids=named
)
def test_every_field_of_an_event_is_in_its_line(event):
    """All but the state, which would be the whole run again; some under another name."""
    line = json.loads(recorded(event).splitlines()[1])

    for spec in dataclasses.fields(event):
        name = RENAMED.get((named(event), spec.name), spec.name)
        assert name is None or name in line, spec.name
    assert "state" not in line


def test_every_kind_of_event_has_a_part_of_the_schema():
    """And the schema has no others but custom events."""
    kinds = {name for name, part in recording_schema()["$defs"].items() if "allOf" in part}
    assert kinds == {*EVENT_NAMES.values(), "other"}
    assert set(EVENT_NAMES) | {SubagentEvent} == set(get_args(Event))
    VALIDATOR.check_schema(recording_schema())


def test_the_lines_of_a_real_run_fit_the_schema(tmp_path):
    """Those of the run within it, too, which say which call leads to it."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        result = eventful(recorder)

    lines = all_lines_of(path)
    for line in lines:
        VALIDATOR.validate(line)
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    lines = lines_of(path)
    assert {line["run"] for line in lines} == {result.run.run_id}
    within = {line["event"] for line in lines if "within" in line}
    assert {"run_started", "tool_finished", "run_finished"} <= within
    assert {"tool_retried", "model_retried", "call_not_run", "text_delta"} <= {
        line["event"] for line in lines
    }


def many(count, to):
    """A run of so many iterations."""
    numbers = iter(range(count - 1))

    def model(_messages):
        number = next(numbers, None)
        return "done" if number is None else calls(call("add", a=number, b=1))

    return Loop(tools=[add], max_iterations=count, on_event=to).run_sync(QUESTION, model)


def test_each_message_is_written_once(tmp_path):
    """However many iterations have it in their conversation."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        result = many(30, recorder)

    lines = lines_of(path)
    written = [message for line in lines for message in line.get("messages", ())]
    assert written == result.messages
    assert read_recording(path).runs[0].messages == result.messages


def test_a_record_grows_with_the_iterations_and_not_with_their_square():
    """A thousand iterations take ten times as many bytes as a hundred."""
    sizes = []
    for count in (100, 1000):
        stream = io.StringIO()
        many(count, Recorder(stream))
        sizes.append(len(stream.getvalue()) / count)
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)


def test_a_request_that_differs_from_the_history_is_a_view_of_it():
    """As after compaction: messages of its own, and ranges of the history, which stays as it is."""
    histories = [
        [{"role": "user", "content": name} for name in names] for names in ("abcd", "axyde", "ax")
    ]
    started = [ModelRequested(iteration=n, at=1.0, messages=h) for n, h in enumerate(histories, 1)]

    lines = [json.loads(line) for line in recorded(EVENTS[0], *started).splitlines()[2:]]

    changes = [
        (line["messages_from"], [one["content"] for one in line["messages"]]) for line in lines
    ]
    views = [
        line["view"]
        and [part if isinstance(part, list) else part["content"] for part in line["view"]]
        for line in lines
    ]
    assert changes == [(0, list("abcd")), (4, []), (4, [])]
    assert views == [None, [[0, 1], "x", "y", [3, 4], "e"], [[0, 1], "x"]]


@stage
def trim(ctx):
    """Send only the last message, with a hint."""
    if ctx.iteration == 1:
        return ctx
    return ctx.with_request(messages=[USER, *ctx.messages[-2:]]).guide("hurry")


def test_a_recording_has_each_request_as_it_was_sent(tmp_path):
    """The system message, the view that a stage made, and the guidance of one request."""
    path = tmp_path / "run.jsonl"
    model = ScriptedLLM(calls(call("echo", text="x")), calls(call("echo", text="y")), "done")
    with Recorder(path) as recorder:
        loop = Loop(
            tools=[echo],
            stages=[trim, *default_stages()],
            instructions="be kind",
            on_event=recorder,
        )
        result = loop.run_sync(QUESTION, model)

    (run,) = read_recording(path).runs
    first, second, third = run.iterations
    assert run.messages == result.messages
    assert [one.instructions for one in run.iterations] == ["be kind"] * 3
    assert [one.guidance for one in run.iterations] == [None, "hurry", "hurry"]
    assert first.view is None  # not edited: the conversation so far
    assert (first.sent.start, first.sent.messages) == (0, QUESTION)
    assert second.view == [USER, *result.messages[1:3]]
    assert third.view == [USER, *result.messages[3:5]]
    for iteration, request in zip(run.iterations, model.sent, strict=True):
        system, *sent = request.messages
        assert system == {"role": "system", "content": iteration.instructions}
        conversation = iteration.view or iteration.sent.messages
        assert sent[: len(conversation) - 1] == conversation[:-1]
        assert ("hurry" in json.dumps(sent)) is (iteration.guidance == "hurry")


def test_requests_that_no_stage_edited_have_no_view(tmp_path):
    """The first one neither, though nothing was written before it; nor one whose input was repaired."""
    path = tmp_path / "run.jsonl"
    orphan = {"role": "tool", "tool_call_id": "gone", "content": "x"}
    with Recorder(path) as recorder:
        many(3, recorder)
        Loop(on_event=recorder).run_sync([*QUESTION, orphan], ScriptedLLM("done"))

    requests = [line for line in lines_of(path) if line["event"] == "model_requested"]
    assert [line["view"] for line in requests] == [None] * len(requests)
    assert [run.iterations[0].sent.messages[0] for run in read_recording(path).runs] == [
        QUESTION[0]
    ] * 2


def test_the_first_request_may_be_edited_too(tmp_path):
    """Its view is what the stage made; the conversation is the caller's messages."""

    @stage
    def summarize(ctx):
        return ctx.with_request(messages=[{"role": "user", "content": "in short"}])

    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        loop = Loop(stages=[summarize, *default_stages()], on_event=recorder)
        result = loop.run_sync(QUESTION, ScriptedLLM("done"))

    (run,) = read_recording(path).runs
    (iteration,) = run.iterations
    assert iteration.view == [{"role": "user", "content": "in short"}]
    assert iteration.sent.messages == QUESTION
    assert run.messages == result.messages


def test_messages_that_cannot_be_compared_are_written_again():
    """A value of somebody else's must not keep the line from being written."""

    class Moody:
        def __eq__(self, other):
            raise RuntimeError("not now")

        __hash__ = None

    first, second = (
        ModelRequested(iteration=n, at=1.0, messages=[{"role": "user", "content": Moody()}])
        for n in (1, 2)
    )
    lines = [json.loads(line) for line in recorded(EVENTS[0], first, second).splitlines()[2:]]
    assert [len(line["messages"]) for line in lines] == [1, 0]
    assert [len(line["view"] or ()) for line in lines] == [0, 1]


class Strange(BaseModel):
    size: float = math.inf


def test_an_output_that_is_no_json_is_recorded(tmp_path):
    """What a stage decides on may be any object."""
    odd = Strange()

    @stage
    def end(ctx):
        return ctx.done(odd)

    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        result = Loop(stages=[end], on_event=recorder).run_sync(QUESTION, ScriptedLLM("x"))

    assert isinstance(result, Ok)
    assert read_recording(path).runs[0].output == {"size": "inf"}


def test_lone_surrogates_and_line_ends_do_not_break_the_file(tmp_path):
    """They are escapes in it, and come back as they were."""
    path = tmp_path / "run.jsonl"
    text = "\ud800 \x00 \x1b[2J \u2028 \r\n end"
    with Recorder(path) as recorder:
        model = ScriptedLLM(calls(call("echo", text=text)), text)
        Loop(tools=[echo], on_event=recorder).run_sync(QUESTION, model)

    (run,) = read_recording(path).runs
    (made,) = run.calls
    assert run.iterations[-1].response["content"] == text
    assert json.loads(made.arguments)["text"] == text


def test_several_runs_at_once_go_into_one_file(tmp_path):
    """Each line is whole, and each run is told apart, though two of them have the same id."""
    path = tmp_path / "runs.jsonl"
    with Recorder(path) as recorder:
        threads = [threading.Thread(target=many, args=(20, recorder)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(2):
            recorder(RunStarted(agent_name="twin", run_id="same", at=1.0))

    runs = read_recording(path).runs
    assert [run.total_iterations for run in runs if run.agent_name != "twin"] == [20] * 8
    assert [run.run_id for run in runs if run.agent_name == "twin"] == ["same", "same"]
    assert all(len(run.messages) == 40 for run in runs if run.agent_name != "twin")


def test_each_line_is_in_the_file_before_the_run_goes_on(tmp_path):
    """An observer that comes after the recorder finds what the recorder was told."""
    path = tmp_path / "run.jsonl"
    missing = []

    def look(event):
        name = EVENT_NAMES[type(event)]
        if lines_of(path)[-1]["event"] != name:
            missing.append(name)

    with Recorder(path) as recorder:
        many(3, [recorder, look])
    assert missing == []


CRASH = """
import os, sys
from treadle import Loop, tool
from treadle.recording.recorder import Recorder
from treadle.testing import ScriptedLLM, call, calls

@tool
def crash() -> str:
    "End the process."
    os._exit(7)

Loop(tools=[crash], on_event=Recorder(sys.argv[1])).run_sync(
    [{"role": "user", "content": "go"}], ScriptedLLM(calls(call("crash"))))
"""


def test_a_process_that_dies_leaves_a_record_that_can_be_read(tmp_path):
    """It has all up to the call that killed it, and says that the run did not end."""
    path = tmp_path / "run.jsonl"
    done = subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False, timeout=60)

    assert done.returncode == 7
    record = read_recording(path)
    (run,) = record.runs
    assert (run.status, record.problems) == ("did not end", [])
    assert [(made.name, made.status) for made in run.calls] == [("crash", "running")]


def test_a_cancelled_task_leaves_a_whole_record(tmp_path):
    """Nothing is returned then; the calls are answered in the record all the same."""
    path = tmp_path / "run.jsonl"

    @tool
    async def doze() -> str:
        """Never end."""
        await anyio.sleep(60)

    async def main():
        def at_the_call(event):
            if isinstance(event, ToolStarted):
                scope.cancel()

        with Recorder(path) as recorder, anyio.CancelScope() as scope:
            model = ScriptedLLM(calls(call("doze")), is_async=True)
            await Loop(tools=[doze], on_event=[recorder, at_the_call]).run(QUESTION, model)

    anyio.run(main)

    (run,) = read_recording(path).runs
    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    assert len(run.messages) == 3
    (made,) = run.calls
    assert (made.status, made.content) == ("cancelled", run.messages[-1]["content"])
    check_history(run.messages)


def test_a_run_that_was_ended_through_its_handle_is_recorded_to_its_end(tmp_path):
    """The reason is told, and the messages are those of the result."""
    path = tmp_path / "run.jsonl"
    handle = RunHandle()

    @tool
    def stop() -> str:
        """End the run."""
        handle.cancel()
        return "too late"

    with Recorder(path) as recorder:
        model = ScriptedLLM(calls(call("stop")), "never said")
        result = Loop(tools=[stop], on_event=recorder).run_sync(QUESTION, model, handle=handle)

    (run,) = read_recording(path).runs
    assert (run.status, run.stop_reason) == ("error", "cancelled")
    assert run.reason == str(result.reason)
    assert run.messages == result.messages


def test_a_text_stream_is_written_to_and_left_open():
    """Its owner closes it."""
    stream = io.StringIO()
    with Recorder(stream) as recorder:
        many(2, recorder)
    told = stream.getvalue()
    many(2, recorder)  # closed: nothing is written any more

    assert not stream.closed
    assert stream.getvalue() == told
    assert len(told.splitlines()) > 8


@pytest.mark.parametrize("replayable", [True, False])
def test_a_full_disk_is_told_once_and_the_run_goes_on(caplog, replayable):
    """The recorder says what went wrong, and writes nothing more, so that at most the last line is torn."""

    class Full(io.StringIO):
        left = 5

        def write(self, text):
            self.left -= 1
            if self.left <= 0:
                super().write(text[: len(text) // 2])
                raise OSError(28, "No space left on device")
            return super().write(text)

    stream = Full()
    recorder = Recorder(stream, replayable=replayable)
    result = many(10, recorder)

    assert isinstance(result, Ok)
    assert isinstance(recorder.failure, OSError)
    lines = stream.getvalue().splitlines()
    assert (len(lines) > 5) is replayable
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(lines[-1])
    told = [one for one in caplog.records if one.name in {"treadle.loop", "treadle.recording"}]
    assert [one.levelname for one in told] == ["ERROR"]


def test_a_record_can_be_gone_on_with(tmp_path):
    """The runs of both are in it; without append= it is written anew."""
    path = tmp_path / "run.jsonl"
    for append in (False, True):
        with Recorder(path, append=append) as recorder:
            many(2, recorder)
    assert len(read_recording(path).runs) == 2
    with Recorder(path) as recorder:
        many(2, recorder)
    assert len(read_recording(path).runs) == 1


def test_what_is_appended_to_a_torn_record_starts_on_a_line_of_its_own(tmp_path):
    """The torn line is left out, and told."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        many(2, recorder)
    path.write_bytes(path.read_bytes()[:-30])
    with Recorder(path, append=True) as recorder:
        many(3, recorder)

    record = read_recording(path)
    assert [run.status for run in record.runs] == ["did not end", "ok"]
    assert len(record.problems) == 1


@pytest.mark.parametrize("append", [False, True])
def test_nothing_is_written_to_a_file_that_is_no_recording(tmp_path, append):
    """Whether it is to be appended to or replaced."""
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\n")
    with pytest.raises(ValueError, match=r"notes\.txt is not a recording"):
        Recorder(path, append=append)
    assert path.read_text() == "buy milk\n"
    assert names_in(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("append", [False, True])
def test_a_new_recording_is_private(tmp_path, append):
    """The umask takes away from that, and adds nothing."""
    for umask, mode in ((0, 0o600), (0o277, 0o400)):
        path = tmp_path / f"{umask}.jsonl"
        before = os.umask(umask)
        try:
            Recorder(path, append=append).close()
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("append", [False, True])
def test_a_link_to_a_recording_stays_a_link(tmp_path, append):
    """Also one that leads to a file that does not exist yet."""
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "run.jsonl", tmp_path / "there" / "real.jsonl"
    link.symlink_to(target)
    for _ in range(2):
        with Recorder(link, append=append) as recorder:
            many(2, recorder)
        assert link.is_symlink()
        assert not target.is_symlink()
    assert len(read_recording(target).runs) == (2 if append else 1)
    assert names_in(tmp_path / "there") == ["real.jsonl"]


def test_a_pipe_and_a_device_are_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(
        OSError, match="No such device"
    ):  # no process reads it, and it does not wait for one
        Recorder(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with Recorder(pipe) as recorder:
        many(2, recorder)
    written = os.read(reading, 1_000_000).splitlines(keepends=True)
    os.close(reading)
    assert read_lines(written, "pipe").runs[0].status == "ok"
    Recorder("/dev/null").close()


def test_a_recording_is_not_replaced_if_the_disk_is_full(tmp_path):
    """The new one has its header when it takes the place of the old one."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        many(2, recorder)
    before = path.read_bytes()
    with no_room(), pytest.raises(OSError, match="File too large"):
        Recorder(path)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["run.jsonl"]
    with pytest.raises(OSError, match="No space left"):
        Recorder("/dev/full")


def test_the_events_of_a_stream_can_be_handed_on_by_hand(tmp_path):
    """A recorder takes events one by one, of one run after another."""
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path)

    async def main():
        async with Loop.stream(QUESTION, ScriptedLLM("hello", is_async=True)) as events:
            async for event in events:
                recorder(event)

    for _ in range(2):
        anyio.run(main)
    recorder.close()
    assert [run.status for run in read_recording(path).runs] == ["ok", "ok"]


def test_pieces_of_text_can_be_left_out(tmp_path):
    """The answer is there all the same."""
    path = tmp_path / "run.jsonl"
    with Recorder(path, deltas=False) as recorder:
        Loop(on_event=recorder).run_sync(QUESTION, ScriptedLLM(["a", "b"]))
    assert "text_delta" not in {line["event"] for line in lines_of(path)}
    assert read_recording(path).runs[0].iterations[0].response["content"] == "ab"


def test_an_event_of_somebody_elses_is_kept_as_it_is(tmp_path):
    """A stage may tell what it likes."""

    @dataclasses.dataclass
    class Mine:
        note: str

    @stage
    def tell(ctx):
        yield Emit(Mine("noted"))
        return ctx

    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        loop = Loop(stages=[tell, *default_stages()], on_event=recorder)
        loop.run_sync(QUESTION, ScriptedLLM("x"))
    (other,) = read_recording(path).runs[0].others
    assert (other["kind"], other["data"]) == ("Mine", {"note": "noted"})


def test_a_paused_run_does_not_write_its_state(tmp_path):
    """It is signed, long, and not needed to look at the run; the calls that wait are written."""

    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        paused = Loop(tools=[wipe], on_event=recorder).run_sync(
            QUESTION, ScriptedLLM(calls(call("wipe")))
        )
    assert not {"repeats", "pauses"} & {*lines_of(path)[-1]}
    assert "repeats" in paused.state
    assert "repeats" not in path.read_text()
    (run,) = read_recording(path).runs
    assert [one["id"] for one in run.pending] == [one.id for one in paused.pending]


def test_a_finished_event_without_a_start_is_recorded():
    """A run that failed is told to the log alone, and so may be to others; no message is lost by it."""
    event = EVENTS[-2]
    assert isinstance(event, RunFinished)
    line = json.loads(recorded(event).splitlines()[1])
    assert line["messages"] == [USER, {"role": "assistant", "content": "hi"}]


def test_the_schema_is_part_of_the_package():
    """So that an installed treadle can read records."""
    import treadle.recording

    folder = Path(treadle.recording.__file__).parent
    assert json.loads((folder / "recording.schema.json").read_text()) == recording_schema()


FORKS = """
import os, sys, threading, time
from treadle import Loop
from treadle.reports import Recorder
from treadle.testing import ScriptedLLM

recorder = Recorder(sys.argv[1])
loop = Loop(on_event=recorder)
loop.run_sync("warm up", ScriptedLLM("done"))  # a fork during the first import of a module hangs Python itself
stop = threading.Event()

def busy():
    while not stop.is_set():
        loop.run_sync("of the parent", ScriptedLLM("done"))

threads = [threading.Thread(target=busy) for _ in range(4)]
for thread in threads:
    thread.start()
hung = 0
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        loop.run_sync("of the child", ScriptedLLM("done"))
        os._exit(0)
    until = time.monotonic() + 10
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            hung += 1
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            break
        time.sleep(0.01)
stop.set()
for thread in threads:
    thread.join()
print(hung)
"""

FORK_WITHIN = """
import os, sys
from treadle import Loop, tool
from treadle.reports import Recorder
from treadle.testing import ScriptedLLM, call, calls

@tool
def split() -> str:
    "Fork; both processes go on with the run."
    pids.append(os.fork())
    return "child" if pids[-1] == 0 else "parent"

pids = []
model = ScriptedLLM(calls(call("split")), "done")
Loop(tools=[split], on_event=Recorder(sys.argv[1])).run_sync("go", model)
if pids[0] == 0:
    os._exit(0)
os.waitpid(pids[0], 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_was_forked_while_threads_write_records_as_well(tmp_path):
    path = tmp_path / "run.jsonl"
    program = [sys.executable, "-c", FORKS, path]
    done = run_program(program, check=True)
    recording = read_recording(path)
    children = [run for run in recording.runs if "of the child" in str(run.messages)]

    assert done.stdout == "0\n"
    assert recording.problems == []
    assert [run.status for run in children] == ["ok"] * 10
    assert {run.status for run in recording.runs} == {"ok"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_that_two_processes_continue_is_two_runs_of_a_recording(tmp_path):
    path = tmp_path / "run.jsonl"
    program = [sys.executable, "-c", FORK_WITHIN, path]
    subprocess.run(program, timeout=60, check=True)
    runs = read_recording(path).runs

    assert [run.status for run in runs] == ["ok", "ok"]
    results = [call.content for run in runs for call in run.calls if call.content]
    assert sorted(results) == ["child", "parent"]
