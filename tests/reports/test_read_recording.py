"""Reading records: what was recorded comes back, what is broken is named, what a crash left is read around."""

import dataclasses
import json

import pytest

from treadle import Loop, Ok, approve, tool
from treadle.events import ModelRequested, RunFinished
from treadle.limits import Limits
from treadle.reports.recording.reader import RecordingError, read_lines, read_recording
from treadle.reports.recording.recorder import Recorder
from treadle.testing import ChaosLLM, ChaosTools, ScriptedLLM, call, calls

from .samples import EVENTS, eventful, recorded, wipe

QUESTION = [{"role": "user", "content": "go"}]
HEAD = b'{"treadle_recording": 1, "treadle": "0.1.0"}\n'


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
        [("add", "suppressed", False)],
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
    assert [len(it.sent.messages) for it in run.iterations] == [2, 0, 0, 0, 0, 0]


def test_guards_come_back_with_what_they_are_about(eventful_run):
    """In order, each with its iteration and its call."""
    run, _ = eventful_run
    told = [(guard.kind, guard.iteration, guard.tool) for guard in run.guards]
    assert told == [
        ("invalid", 2, "add"),
        ("invalid", 2, "nobody"),
        ("suppressed", 5, "add"),
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
        "suppressed",
        "deferred",
        "refused",
        "breaker",
        "nudged",
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
    with Recorder(path) as recorder:
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


def test_a_request_that_differs_from_the_history_comes_back_as_its_view(path):
    """The history stays as it is."""
    histories = [
        [{"role": "user", "content": one} for one in names] for names in ("abcd", "axy", "ax")
    ]
    events = [
        ModelRequested(iteration=number, at=1.0, messages=history)
        for number, history in enumerate(histories, 1)
    ]
    path.write_text(recorded(EVENTS[0], *events), encoding="ascii")
    (run,) = read_recording(path).runs
    assert run.messages == histories[0]
    assert [iteration.view for iteration in run.iterations] == [None, *histories[1:]]


def test_each_try_of_a_call_that_is_a_run_comes_back(path):
    """A call of a loop that is tried again is another run."""
    failing = iter([ConnectionError("no"), "yes"])

    def model(_messages):
        answer = next(failing)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @tool(retries=1)
    def ask() -> str:
        """Ask."""
        result = Loop(name="inner", max_retries=0).run_sync(QUESTION, model, on_event=recorder)
        return result.unwrap().text

    with Recorder(path) as recorder:
        Loop(tools=[ask]).run_sync(QUESTION, ScriptedLLM(calls(call("ask")), "done"))
    assert [run.status for run in read_recording(path).runs] == ["error", "ok"]


def test_records_can_be_put_one_behind_another(path):
    """As by ``cat``: each part has a first line of its own, and counts its runs anew."""
    parts = []
    for _ in range(3):
        with Recorder(path) as recorder:
            Loop(on_event=recorder).run_sync(QUESTION, ScriptedLLM("hello"))
        parts.append(path.read_bytes())
    path.write_bytes(b"".join(parts))
    assert [run.status for run in read_recording(path).runs] == ["ok"] * 3


def changed(line, **fields):
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"


LINE = recorded(EVENTS[0]).splitlines()[1].encode() + b"\n"
BROKEN = {
    "empty": ([], 1, "it is empty"),
    "not json": ([b"hello\n"], 1, "it is not JSON"),
    "no object": ([b"[1]\n"], 1, "it is not a JSON object"),
    "no record": ([b'{"a": 1}\n'], 1, "the first line is not a header"),
    "binary": ([b"\x00\xff\xfe\n"], 1, "it is not JSON"),
    "later version": (
        [b'{"treadle_recording": 2}\n'],
        1,
        "has version 2; this treadle reads version 1",
    ),
    "odd version": ([b'{"treadle_recording": "x"}\n'], 1, "has version 'x'"),
    "line of another version": ([HEAD, changed(LINE, v=9)], 2, "has version 9"),
    "no event": ([HEAD, LINE, b'{"v": 1}\n'], 3, "it has no 'event'"),
    "lacks a field": (
        [HEAD, LINE.replace(b'"agent_name"', b'"name"')],
        2,
        "run_started: missing required field 'agent_name'",
    ),
    "a field of another type": ([HEAD, changed(LINE, at="noon")], 2, "at: expected number or null"),
    "torn within": ([HEAD, LINE[:40] + b"\n", LINE], 2, "it is not JSON"),
    "NaN": ([HEAD, LINE.replace(b"1.5", b"NaN"), LINE], 2, "NaN is not valid JSON"),
    "too deep": ([HEAD, b"[" * 100_000 + b"\n", LINE], 2, "it is nested too deeply"),
}


@pytest.mark.parametrize(("lines", "number", "what"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_named_with_its_file_and_line(path, lines, number, what):
    """In one sentence."""
    path.write_bytes(b"".join(lines))
    with pytest.raises(RecordingError) as raised:
        read_recording(path)
    told = str(raised.value)
    assert told.startswith(f"{path}:{number}: ")
    assert what in told
    assert "\n" not in told


def test_a_file_that_is_not_there_is_an_error_of_the_system(path):
    with pytest.raises(FileNotFoundError):
        read_recording(path)


def test_what_a_later_treadle_adds_is_read_around():
    """Fields are ignored; events are told once."""
    lines = [HEAD, changed(LINE, mood="good"), changed(LINE, event="cheered", no=1)]
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


ENDED = next(event for event in EVENTS if isinstance(event, RunFinished))


def test_two_processes_that_append_to_one_file_do_not_mix_their_runs(path):
    """Both count their runs from 1, and their lines interleave."""
    first, second = (
        recorded(
            *(dataclasses.replace(one, run_id=run_id) if one is EVENTS[0] else one for one in run)
        )
        for run_id, run in (("a", [EVENTS[0], ENDED]), ("b", [EVENTS[0], ENDED]))
    )
    mixed = [
        line for pair in zip(first.splitlines(), second.splitlines(), strict=True) for line in pair
    ]
    path.write_text("\n".join(mixed) + "\n", encoding="ascii")

    recording = read_recording(path)

    assert [run.run_id for run in recording.runs] == ["a", "b"]
    assert "did not end" not in [run.status for run in recording.runs]
    assert recording.problems == []


def test_a_repair_after_a_stage_names_the_stage(path):
    header, started, *_ = recorded(EVENTS[0]).splitlines()
    repair = {
        **json.loads(started),
        "seq": 2,
        "event": "history_repaired",
        "repairs": ["an orphan"],
    }
    lines = [header, started, json.dumps({**repair, "stage": "trim"}), json.dumps(repair)]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")

    (run,) = read_recording(path).runs

    assert run.repairs == ("an orphan",)  # of the caller's messages
    assert [(guard.kind, guard.detail) for guard in run.guards] == [
        ("repaired", "after stage trim: an orphan")
    ]


def test_a_request_that_the_model_was_sent_comes_back_with_its_time_and_view(path):
    header, started, *_ = recorded(EVENTS[0]).splitlines()
    line = {**json.loads(started), "seq": 2, "at": 7.0, "event": "model_requested", "iteration": 1}
    words = [{"role": "user", "content": one} for one in "abc"]
    line |= {"guidance": "be brief", "messages_from": 0, "messages": words}
    line |= {"view": [[0, 1], {"role": "user", "content": "x"}, [2, 3]]}
    path.write_text("\n".join([header, started, json.dumps(line)]) + "\n", encoding="ascii")

    (run,) = read_recording(path).runs

    (iteration,) = run.iterations
    assert (iteration.asked_at, iteration.guidance) == (7.0, "be brief")
    assert [one["content"] for one in iteration.view] == ["a", "x", "c"]
    assert run.messages == words
