"""Reading records: what was recorded comes back, what is broken is named, what a crash left is read around."""

import io
import json
import random
import re
import subprocess
import sys
import time
from unittest import mock

import pytest

from treadle import Chunk, Loop, Ok, Usage, approve
from treadle.events import RunFinished
from treadle.limits import Limits
from treadle.messages.parts import placeholder
from treadle.recording.builder import RunBuilder
from treadle.recording.model import Run
from treadle.recording.reader import (
    MAX_PROBLEMS,
    RecordingError,
    read_lines,
    read_recording,
)
from treadle.recording.recorder import Recorder
from treadle.reports.report.data import report_data
from treadle.testing import ChaosLLM, ChaosTools, ScriptedLLM, call, calls

from .samples import EVENTS, eventful, recorded, wipe

QUESTION = [{"role": "user", "content": "go"}]
HEAD = b'{"treadle_recording": 4, "treadle": "0.1.0"}\n'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


@pytest.fixture
def eventful_run(path):
    """The record of a run in which much happens, as data, and its result."""
    with Recorder(path) as recorder:
        result = eventful(recorder)
    (run,) = read_recording(path).runs
    return run, result


def test_a_run_comes_back_as_it_was(eventful_run):
    """What the result has, the record has."""
    run, result = eventful_run
    assert (run.status, run.stop_reason, run.reason) == ("ok", "answered", "")
    assert (run.agent_name, run.run_id) == ("outer", result.run.run_id)
    assert run.messages == result.messages
    assert run.usage == result.usage
    assert run.total_iterations == result.iterations == len(run.iterations)
    assert run.tool_calls_count == result.tool_calls_count
    assert run.limits["max_iterations"] == 12
    assert [tool["function"]["name"] for tool in run.tools] == [
        "add",
        "flaky",
        "broken",
        "delegate",
    ]
    assert run.duration == pytest.approx(run.ended_at - run.started_at)


def test_calls_come_back_with_what_became_of_them(eventful_run):
    """In the order of the request: those that ran, failed, were tried again, were not run."""
    run, _ = eventful_run
    told = [[(one.name, one.status, one.is_error) for one in it.calls] for it in run.iterations]
    assert told == [
        [("add", "done", False), ("flaky", "done", False), ("broken", "done", True)],
        [("add", "invalid", True), ("nobody", "invalid", True)],
        [("delegate", "done", False)],
        [("add", "done", False)],
        [("add", "no_new_evidence", False)],
        [],
    ]
    (add, flaky, _), *_ = (it.calls for it in run.iterations)
    assert add.content == "3"
    assert [(one.attempt, one.error_type) for one in flaky.retries] == [(1, "ConnectionError")]
    assert run.iterations[4].calls[0].not_run == "no_new_evidence"
    assert run.iterations[1].calls[0].problems != ()


def test_tracebacks_of_tools_come_back(eventful_run):
    """Those of failed attempts, too."""
    run, _ = eventful_run
    add, flaky, broken = run.iterations[0].calls
    assert add.traceback is flaky.traceback is None
    assert broken.traceback.endswith(
        'in broken\n    raise ValueError("it is broken")\nValueError: it is broken'
    )
    assert flaky.retries[0].traceback.endswith("ConnectionError: not yet")
    assert run.traceback is None


def test_the_traceback_of_the_cause_of_a_reason_comes_back(path):
    def model(messages):
        raise ValueError("no key")

    with Recorder(path) as recorder:
        Loop(on_event=recorder).run_sync(QUESTION, model)
    (run,) = read_recording(path).runs
    assert run.traceback.startswith("Traceback")
    assert run.traceback.endswith("ValueError: no key")


def test_what_the_model_did_comes_back(eventful_run):
    """Its answers, its failures, and when the first piece of a stream came."""
    run, _ = eventful_run
    first, second, *_, last = run.iterations
    assert first.response["content"] == "First these."
    assert [one.error for one in second.retries] == ["the model is busy"]
    assert second.started_at <= second.retries[0].at <= second.answered_at
    assert last.started_at <= last.first_chunk_at <= last.answered_at
    assert (last.response["content"], last.streamed) == ("It is forty-two.", "")
    assert last.time_to_first_token == last.timing.first_chunk - last.timing.started >= 0
    assert first.time_to_first_token is None
    assert [len(it.sent.messages) for it in run.iterations] == [2, 0, 0, 0, 0, 0]


def test_guards_come_back_with_what_they_are_about(eventful_run):
    """In order, each with its iteration and its call."""
    run, _ = eventful_run
    told = [(guard.kind, guard.iteration, guard.tool) for guard in run.guards]
    assert told == [
        ("invalid", 2, "add"),
        ("invalid", 2, "nobody"),
        ("not_run", 5, "add"),
        ("nudged", 5, "add"),
    ]


def test_a_run_within_a_run_comes_back_within_its_call(eventful_run):
    """As a whole run of its own."""
    run, _ = eventful_run
    (child,) = (run for call in run.calls for run in call.runs)
    (delegate,) = run.iterations[2].calls
    assert delegate.runs == [child]
    assert (child.agent_name, child.status, child.total_iterations) == ("inner", "ok", 2)
    assert [one.content for one in child.calls] == ["42"]
    assert child.messages[-1] == {"role": "assistant", "content": "It is 42."}
    assert child.run_id == f"{run.run_id}/{delegate.id}"


def test_every_kind_of_event_is_read(path):
    """The samples make no sense in this order; nothing of them is refused or unknown."""
    path.write_text(recorded(*EVENTS), encoding="ascii")
    record = read_recording(path)
    (run, *rest) = record.runs
    assert record.problems == []
    assert rest == []
    kinds = {guard.kind for guard in run.guards}
    assert kinds == {
        "not_run",
        "breaker",
        "nudged",
        "compacted",
        "not compacted",
        "limit",
        "invalid",
        "repaired",
    }
    assert run.limit == "the budget is spent: max_cost=1.5, used 2"
    assert run.iterations[0].steered == [{"role": "user", "content": "hello"}]
    assert run.iterations[0].failure == "Gone: gone"
    assert [one.detail for one in run.guards if one.kind == "repaired"] == [
        "after stage trim: dropped a blank message; joined two messages"
    ]


@pytest.mark.parametrize("name", ["budget_low", "tool_queued"])
def test_an_event_that_a_report_does_not_show_is_taken_for_no_other(name):
    """As one that was just added to the schema: it is neither a failed request nor a call that did not run."""
    builder = RunBuilder(Run("r"))
    line = {"at": 1.0, "iteration": 1, "call": {"id": "c", "name": "f", "arguments": "{}"}}
    builder.add(name, line)
    (iteration,) = builder.run.iterations
    assert (iteration.failure, builder.run.guards) == ("", [])


def test_calls_that_were_not_reached_are_there_all_the_same(path):
    """The model has asked for them, where the record stops."""
    with Recorder(path) as recorder:
        eventful(recorder)
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(place for place, line in enumerate(lines) if b'"tool_started"' in line)
    path.write_bytes(b"".join(lines[:at]))
    (run,) = read_recording(path).runs
    told = [(one.name, one.status, one.content) for one in run.calls]
    assert told == [(name, "asked", None) for name in ("add", "flaky", "broken")]


@pytest.mark.parametrize("kept", [1, 7, 20, 40])
def test_a_record_can_be_read_wherever_it_stops(path, kept):
    """A run whose record stops has not ended; what is there is there."""
    with Recorder(path, replayable=False) as recorder:
        eventful(recorder)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: kept + 1]))

    record = read_recording(path)
    (run,) = record.runs
    assert (run.status, run.stop_reason, run.ended_at) == ("did not end", "", None)
    assert record.problems == []
    assert run.duration is not None


def test_a_torn_last_line_is_left_out_and_told(path):
    """A crash may leave one, cut at any byte."""
    with Recorder(path) as recorder:
        eventful(recorder)
    whole = path.read_bytes()
    last = len(whole.splitlines())
    start = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for cut in range(start + 1, len(whole) - 1, 97):
        path.write_bytes(whole[:cut])
        record = read_recording(path)
        assert [run.status for run in record.runs] == ["did not end"]
        assert record.problems == [
            f"{path}:{last}: the line is torn, as by a crash; it was skipped"
        ]


def test_a_paused_run_goes_on_in_its_record(path):
    """Both parts are one run, and the time for which it waited is not counted."""

    model = ScriptedLLM(calls(call("wipe")), "It is gone.")
    loop = Loop(tools=[wipe], name="careful")
    with Recorder(path) as recorder:
        paused = loop.run_sync(QUESTION, model, on_event=recorder)
    (run,) = read_recording(path).runs
    assert (run.status, [one["name"] for one in run.pending]) == ("paused", ["wipe"])
    assert [(one.name, one.status) for one in run.calls] == [("wipe", "waiting")]
    assert "waits for a person's approval" in next(run.calls).content

    with Recorder(path, append=True) as recorder:
        waiting = paused.pending[0].id
        result = loop.resume_sync(paused, {waiting: approve}, model, on_event=recorder)

    (run,) = read_recording(path).runs
    assert (run.status, run.pending) == ("ok", [])
    assert run.messages == result.messages
    assert [(one.name, one.status) for one in run.calls] == [("wipe", "done")]
    ((before, later),) = run.pauses
    assert run.duration == pytest.approx(run.ended_at - run.started_at - (later - before))


def changed(line, **fields):
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"


ENDED = next(event for event in EVENTS if isinstance(event, RunFinished))
LINE = recorded(EVENTS[0]).splitlines()[1].encode() + b"\n"
NO_RECORDINGS = {
    "empty": ([], "it is empty"),
    "not json": ([b"hello\n"], "it is not JSON"),
    "no object": ([b"[1]\n"], "it is not a JSON object"),
    "no record": ([b'{"a": 1}\n'], "the first line is not a header"),
    "binary": ([b"\x00\xff\xfe\n"], "it is not JSON"),
    "other version": (
        [b'{"treadle_recording": 2}\n'],
        "has version 2; this treadle reads version 4",
    ),
    "odd version": ([b'{"treadle_recording": "x"}\n'], "has version 'x'"),
}


@pytest.mark.parametrize(("lines", "what"), NO_RECORDINGS.values(), ids=NO_RECORDINGS)
def test_a_file_that_is_no_recording_is_named_in_one_sentence(path, lines, what):
    path.write_bytes(b"".join(lines))
    with pytest.raises(RecordingError) as raised:
        read_recording(path)
    told = str(raised.value)
    assert told.startswith(f"{path}:1: ")
    assert what in told
    assert "\n" not in told


BROKEN = {
    "another version": (changed(LINE, v=9), "has version 9"),
    "a header of another version": (b'{"treadle_recording": 9}\n', "has version 9"),
    "no event": (b'{"v": 2}\n', "it has no 'event'"),
    "lacks a field": (
        LINE.replace(b'"agent_name"', b'"name"'),
        "run_started: missing required field 'agent_name'",
    ),
    "a field of another type": (changed(LINE, at="noon"), "at: expected number or null"),
    "cut": (LINE[:90] + b"\n", "it is not JSON"),
    "NaN": (LINE.replace(b"1.5", b"NaN"), "NaN is not valid JSON"),
    "too deep": (b"[" * 100_000 + b"\n", "it is nested too deeply"),
    "too many digits": (LINE.replace(b"1.5", b"9" * 5_000), "it is not JSON"),
}


@pytest.mark.parametrize(("line", "what"), BROKEN.values(), ids=BROKEN)
def test_a_line_that_cannot_be_read_is_a_problem_and_the_others_are_read(path, line, what):
    whole = recorded(EVENTS[0], ENDED).encode().splitlines(keepends=True)
    path.write_bytes(b"".join([whole[0], line, *whole[1:]]))
    recording = read_recording(path)
    assert [run.ended_at for run in recording.runs] == [ENDED.at]
    told = [problem for problem in recording.problems if problem.startswith(f"{path}:2: ")]
    assert len(told) == 1
    assert what in told[0]
    assert "skipped" in told[0]
    assert "\n" not in told[0]


def test_a_thousand_broken_lines_are_not_a_thousand_problems():
    recording = read_lines([HEAD, LINE, *[b"{\n"] * 1_000], "run.jsonl")
    assert len(recording.problems) == MAX_PROBLEMS + 1
    assert recording.problems[-1] == "run.jsonl: 980 more lines were skipped"


def test_missing_lines_are_a_problem():
    """As after a writer that overwrote another's lines."""
    lines = recorded(*EVENTS).encode().splitlines(keepends=True)
    recording = read_lines([*lines[:3], *lines[4:]], "run.jsonl")
    assert recording.problems == ["run.jsonl: lines of the run run-1 are missing"]
    assert len(recording.runs) == 1


def test_what_a_later_treadle_adds_is_read_around():
    """Fields are ignored; events are told once."""
    lines = [HEAD, changed(LINE, mood="good"), changed(LINE, event="cheered")]
    record = read_lines([*lines, lines[-1]], "run.jsonl")
    assert [run.agent_name for run in record.runs] == ["agent"]
    assert record.problems == [
        "run.jsonl: skipped events of a kind that this treadle does not know: cheered"
    ]


def test_numbers_beyond_all_bounds_are_none():
    """JSON can write what no float can hold; nothing is infinite for it."""
    line = LINE.replace(b'"at":1.0', b'"at":1e999')
    assert line != LINE
    (run,) = read_lines([HEAD, line], "run.jsonl").runs
    assert run.started_at is None


@pytest.mark.parametrize("seed", range(40))
def test_whatever_models_and_tools_do_the_record_has_it(path, seed):
    """The messages and the end of the result, with a model and tools that misbehave in every way."""
    tools = ChaosTools(seed)
    limits = Limits(max_iterations=12, max_tool_calls=60)
    with Recorder(path) as recorder:
        model = ChaosLLM(seed, turns=10, longest=5_000, most_calls=50)
        loop = Loop(tools=tools, limits=limits, retry_delay=0.0, on_event=recorder)
        result = loop.run_sync(QUESTION, model)

    record = read_recording(path)
    run = record.runs[0]
    assert record.problems == []
    assert recorder.failure is None
    assert run.messages == json.loads(json.dumps(result.messages))
    assert run.status == ("ok" if isinstance(result, Ok) else "error")
    assert run.stop_reason == result.stop_reason
    assert run.total_iterations == result.iterations
    assert run.tool_calls_count == result.tool_calls_count
    assert run.usage == result.usage


def writers(count):
    """The lines of so many recorders, the first of each a header; all of them record the same run id."""
    return [recorded(*EVENTS).encode().splitlines(keepends=True) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_lines_of_several_writers_interleave_and_tear_and_lose_nothing_else(seed):
    """Any line may be cut where its writer died; the line of another writer may follow it directly."""
    dice = random.Random(seed)
    left, mixed, torn = [[*lines] for lines in writers(4)], [], 0
    expected = [read_lines(lines, "one").runs[0] for lines in left]
    while any(left):
        lines = dice.choice([one for one in left if one])
        line = lines.pop(0)
        if mixed and dice.random() < 0.1:  # one more writer, which dies within its first event
            *_, started = recorded(EVENTS[0]).encode().splitlines(keepends=True)
            cut = started[: dice.randrange(1, len(started) - 1)]
            line, torn = cut + dice.choice([b"\n", b""]) + line, torn + 1
        mixed.extend(line.splitlines(keepends=True))

    recording = read_lines(mixed, "run.jsonl")

    assert sorted(map(repr, recording.runs)) == sorted(map(repr, expected))
    assert len(recording.problems) == min(torn, MAX_PROBLEMS + 1)  # the last one counts the others


def test_a_torn_header_is_skipped():
    """The writer of a new file died, and another appended to it."""
    lines = writers(1)[0]
    for cut in (4, 30):
        for end in (b"\n", b""):
            text = lines[0][:cut] + end + b"".join(lines)
            recording = read_lines(text.splitlines(keepends=True), "run.jsonl")
            assert len(recording.runs) == 1
            assert recording.problems == [mock.ANY]


APPENDING = """
import sys
from treadle import Loop, tool
from treadle.reports import Recorder
from treadle.testing import ScriptedLLM, call, calls

@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

me, count, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
question = [{"role": "user", "content": f"{me} " * 2_000}]
inner = Loop(tools=[add]).as_tool("ask", "Ask.", lambda m: f"I am {me}")
with Recorder(path, append=True) as recorder:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        model = ScriptedLLM(calls(call("ask", "same", task=me)), f"{me} {number}")
        Loop(name=me, tools=[inner], on_event=recorder).run_sync(question, model)
"""


def test_processes_that_append_to_one_file_do_not_mix_their_runs(path):
    """Each run has its own calls, subagents and messages, though the ids of their calls are the same."""
    names, count = ("ann", "bob", "cid"), 12
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", APPENDING, name, str(count), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name in names
    ]
    for process in processes:
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        process.stdin.write(b"go\n")
        process.stdin.close()
    for process in processes:
        assert process.wait(60) == 0
        process.stdout.close()

    recording = read_recording(path)

    assert recording.problems == []
    by_name = {name: [run for run in recording.runs if run.agent_name == name] for name in names}
    for name, runs in by_name.items():
        assert [run.messages[-1]["content"] for run in runs] == [
            f"{name} {n}" for n in range(count)
        ]
        for run in runs:
            assert run.messages[0]["content"] == f"{name} " * 2_000
            ((child,),) = (call.runs for call in run.calls)
            assert child.messages[-1]["content"] == f"I am {name}"
    assert len(recording.runs) == len(names) * count


def test_a_pause_that_two_processes_resumed_is_two_runs(path):
    """The parts have the same run id; their lines interleave."""
    loop, script = Loop(tools=[wipe], name="careful"), (calls(call("wipe")), "It is gone.")
    with Recorder(path) as recorder:
        paused = loop.run_sync(QUESTION, ScriptedLLM(*script), on_event=recorder)
    streams = [io.StringIO(), io.StringIO()]  # one run stands in for both
    decisions, recorders = {paused.pending[0].id: approve}, [*map(Recorder, streams)]
    loop.resume_sync(paused, decisions, ScriptedLLM("It is gone."), on_event=recorders)
    resumed = [stream.getvalue().encode().splitlines(keepends=True) for stream in streams]
    with path.open("ab") as file:
        for pair in zip(*resumed, strict=True):
            file.writelines(pair)

    first, second = read_recording(path).runs

    assert first.run_id == second.run_id
    assert (len(first.pauses), len(second.pauses)) == (1, 0)
    for run in (first, second):
        assert (run.status, run.messages[-1]["content"]) == ("ok", "It is gone.")
        assert [one.status for one in run.calls] == ["done"]


def test_progress_and_content_parts_come_back_as_text(path):
    """The latest message of a call, and the placeholder of an image, whose data is in the messages alone."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

    def shoot():
        """Take a picture."""
        yield "focus"
        yield image

    model = ScriptedLLM(calls(call("shoot", "c1")), "Done.")
    with Recorder(path) as recorder:
        Loop.run_sync("Hi", model, tools=[shoot], on_event=recorder)
    (shot,) = read_recording(path).runs[0].iterations[0].calls
    assert shot.progress == shot.content == placeholder(image)
    (line,) = (one for one in path.read_text().splitlines() if '"tool_finished"' in one)
    assert "iVBORw0KGgo" not in line
    shown = report_data(read_recording(path))
    assert "iVBORw0KGgo" not in json.dumps(shown)


def test_the_measurements_of_a_response_come_back(path):
    """As they are on the response of the result."""

    def model(messages):
        time.sleep(0.01)
        yield Chunk("Forty-")
        time.sleep(0.01)
        yield Chunk("two.", usage=Usage(3, 4), finish_reason="stop")

    with Recorder(path) as recorder:
        response = Loop(on_event=recorder).run_sync(QUESTION, model).response
    [[iteration]] = [run.iterations for run in read_recording(path).runs]
    assert iteration.timing == response.timing
    assert iteration.tokens_per_second == response.tokens_per_second > 0


def test_a_record_of_an_earlier_version_has_no_measurements(path):
    with Recorder(path) as recorder:
        Loop(on_event=recorder).run_sync(QUESTION, lambda messages: "x")
    path.write_text(re.sub(r',"times":\[[^]]*\]', "", path.read_text()))
    [[iteration]] = [run.iterations for run in read_recording(path).runs]
    assert iteration.response["content"] == "x"
    assert iteration.timing is iteration.time_to_first_token is iteration.tokens_per_second is None
