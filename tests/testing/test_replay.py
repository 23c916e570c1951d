"""Recorded runs are replayed without model and tools, forked with something changed, and compared."""

import dataclasses
import io
import json

import anyio
import pytest
from tests.samples import add

from treadle import Err, Loop, Ok, OptionError, Paused, RunHandle, RunState, approve, stage, tool
from treadle.events import IterationStarted, ModelRequested, RunFinished, UserMessageAdded
from treadle.recording import Recorder, RecordingError, read_recording
from treadle.recording.reader import read_lines
from treadle.sessions import SQLiteSessions
from treadle.testing import (
    DivergedError,
    ScriptedLLM,
    call,
    calls,
    check_history,
    diff,
    fork,
    fork_sync,
    replay,
)

QUESTION = "What is 1 + 2, and 3 + 4?"


@tool(requires_approval=True)
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def script(*more):
    """A model that calls `add` twice, in two iterations, and answers."""
    steps = [calls(call("add", "c1", a=1, b=2)), calls(call("add", "c2", a=3, b=4)), "3 and 7."]
    return ScriptedLLM(*(more or steps))


def never(*_args, **_options):
    raise AssertionError("a replay calls no tool and no model")


def lifeless(loop, **options):
    """The loop with tools that cannot run, and no model."""
    tools = [
        one if one.fn is None else dataclasses.replace(one, fn=never) for one in loop.tools.values()
    ]
    return loop.with_options(tools=tools, llm_send_fn=None, **options)


ADDER = Loop(tools=[add], name="adder")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def record(path, loop=ADDER, model=None, given=QUESTION, **options):
    """Record a run; returns its result and its events."""
    events = []
    with Recorder(path) as recorder:
        observers = [recorder, events.append]
        result = loop.run_sync(given, model or script(), on_event=observers, **options)
    return result, events


# Replay


def test_a_replay_has_the_result_the_events_and_the_history(path):
    result, events = record(path)
    seen = []
    again = replay(path, lifeless(ADDER), on_event=seen.append)
    assert again == result
    assert seen == events
    assert [event.seq for event in seen] == [event.seq for event in events]
    assert again.run.as_json(with_messages=True) == result.run.as_json(with_messages=True)


def test_a_paused_run_and_what_followed_are_replayed_as_one(path):
    loop = Loop(tools=[send])
    model = script(calls(call("send", "c1", text="hello")), "Sent.")
    events = []
    with Recorder(path) as recorder:
        observers = [recorder, events.append]
        paused = loop.run_sync("Send it.", model, on_event=observers)
        decisions = {paused.pending[0].id: approve}
        result = loop.resume_sync(paused, decisions, model, on_event=observers)
    assert (type(paused), type(result)) == (Paused, Ok)

    seen = []
    assert replay(path, lifeless(loop), on_event=seen.append) == result
    assert seen == events
    assert len(read_recording(path).runs[0].segments) == 2


def test_a_pause_that_was_saved_is_resumed_in_a_replay_without_its_file(path, tmp_path):
    loop = Loop(tools=[send])
    model = script(calls(call("send", "c1", text="hello")), "Sent.")
    with Recorder(path) as recorder:
        paused = loop.run_sync("Send it.", model, on_event=recorder)
        paused.save(tmp_path / "pause.json")
        decisions = {paused.pending[0].id: approve}
        result = loop.resume_sync(tmp_path / "pause.json", decisions, model, on_event=recorder)
    assert not (tmp_path / "pause.json").exists()
    assert replay(path, lifeless(loop)) == result
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_of_a_session_is_replayed_without_the_session(path, tmp_path):
    sessions = SQLiteSessions(tmp_path / "sessions.db")
    session = sessions.session("alice")
    Loop().run_sync("My name is Alice.", lambda messages: "Hello.", session=session)
    result, _ = record(path, given="Add.", session=session)
    turns = len(session.messages())

    again = replay(path, lifeless(ADDER))
    assert again == result
    assert again.messages[0]["content"] == "My name is Alice."
    assert len(session.messages()) == turns


def test_a_run_that_continued_a_state_is_replayed_from_it(path):
    state = RunState("adder", "run-7")
    ADDER.run_sync("Hi.", lambda messages: "Hello.", state=state)
    result, _ = record(path, state=state)
    again = replay(path, lifeless(ADDER))
    assert again.run.as_json() == result.run.as_json()
    assert [node.step_index for node in again.run.nodes] == [0, 1, 2, 3]


def test_a_run_with_a_handle_is_replayed_with_what_it_was_told(path):
    handle = RunHandle()

    def steering(messages):
        handle.steer("Be quick.")
        return calls(call("add", "c1", a=1, b=2))

    result, _ = record(path, model=script(steering, "3."), handle=handle)
    assert {"role": "user", "content": "Be quick."} in result.messages
    assert replay(path, lifeless(ADDER)) == result


def test_an_error_is_replayed_as_one(path):
    result, _ = record(path, model=script(RuntimeError("down")), max_retries=0)
    again = replay(path, lifeless(ADDER))
    assert isinstance(again, Err)
    assert again.reason == result.reason
    assert str(again.reason) == "the model failed: RuntimeError: down"


def test_messages_that_are_objects_of_an_sdk_are_replayed(path):
    class Message:
        def model_dump(self, **_options):
            return {"role": "user", "content": QUESTION}

    result, _ = record(path, given=[Message()])
    assert replay(path, lifeless(ADDER)) == result


def test_a_run_of_several_is_chosen_by_its_id(path):
    with Recorder(path) as recorder:
        results = [ADDER.run_sync(QUESTION, script(), on_event=recorder) for _ in range(2)]
    for result in results:
        again = replay(path, lifeless(ADDER), run=result.run.run_id)
        assert again.run.run_id == result.run.run_id
    assert replay(read_recording(path).runs[1], lifeless(ADDER)) == results[1]
    with pytest.raises(OptionError, match="run: the recording has several runs; its runs are '"):
        replay(path, ADDER)
    with pytest.raises(OptionError, match="run: there is no such run in the recording"):
        replay(path, ADDER, run="other")


# What has changed


@stage
def last_only(ctx):
    """From the third iteration, send only the last message."""
    if ctx.iteration < 3:
        return ctx
    return ctx.with_request(messages=[{"role": "user", "content": "Well?"}])


ADD = dict(add.input_schema)
CHANGES = {
    "instructions": (
        {"instructions": "Be brief."},
        1,
        "the request to the model differs, at instructions",
        "instructions changed from None to 'Be brief.'",
    ),
    "description": (
        {"tools": [dataclasses.replace(add, description="Add.")]},
        1,
        "the request to the model differs, at tools[0].function.description",
        "tool 'add': description changed from 'Add two numbers.' to 'Add.'",
    ),
    "approval": (
        {"tools": [dataclasses.replace(add, requires_approval=lambda given: given["a"] > 2)]},
        2,
        "what happens next differs",
        "tool 'add': requires_approval changed from None to '<lambda>'",
    ),
    "options of requests": (
        {"llm_opts": {"temperature": 0.5}},
        1,
        "the request to the model differs, at options.temperature",
        "request option temperature changed from None to 0.5",
    ),
    "limit": (
        {"max_iterations": 2},
        2,
        "what happens next differs",
        "option max_iterations changed from 10 to 2",
    ),
    "stage": (
        {"stages": [last_only, ...]},
        3,
        "the request to the model differs, at messages",
        "stage 'last_only' was added as the first one",
    ),
}


@pytest.mark.parametrize(
    ("options", "iteration", "what", "change"), CHANGES.values(), ids=CHANGES.keys()
)
def test_a_change_is_reported_at_the_iteration_where_it_matters(
    path, options, iteration, what, change
):
    record(path)
    with pytest.raises(DivergedError) as caught:
        replay(path, ADDER.with_options(**options))
    text = str(caught.value)
    assert caught.value.iteration == iteration
    assert text.startswith(f"the run differs from its recording: iteration {iteration}: {what}")
    assert caught.value.changes == [change]
    assert caught.value.divergence.names == ("recorded", "now")


def test_a_change_in_a_subagent_names_its_tool(path):
    def outer(**options):
        child = Loop(llm_send_fn=lambda messages: "It is 3.", **options)
        return Loop(tools=[child.as_tool("research", "Research.")])

    record(path, outer(), script(calls(call("research", "c1", task="Add.")), "3."))
    assert replay(path, outer()).output == "3."
    with pytest.raises(DivergedError) as caught:
        replay(path, outer(instructions="Be brief."))
    assert str(caught.value) == (
        "the run differs from its recording: iteration 1, within 'research': "
        "the request to the model differs, at instructions\n"
        "  recorded: null\n"
        "       now: 'Be brief.'\n"
        "  changed: tool 'research': its loop: instructions changed from None to 'Be brief.'"
    )


def test_a_change_after_a_pause_is_found_as_well(path):
    loop = Loop(tools=[send])
    model = script(calls(call("send", "c1", text="hello")), "Sent.")
    with Recorder(path) as recorder:
        paused = loop.run_sync("Send it.", model, on_event=recorder)
        loop.resume_sync(paused, {paused.pending[0].id: approve}, model, on_event=recorder)

    @stage
    def shout(ctx):
        return ctx.guide("SHOUT") if ctx.iteration == 2 else ctx

    with pytest.raises(DivergedError) as caught:
        replay(path, loop.with_options(stages=[shout, ...]))
    first, *others = str(caught.value).splitlines()
    assert first.endswith("iteration 2: the request to the model differs, at guidance")
    assert others[:2] == [
        "  recorded: null",
        "       now: 'SHOUT'",
    ]


def test_a_recording_without_its_events_is_replayed_from_its_log(path):
    """As a journal exports it: the difference is that of the effect."""
    result, _ = record(path)
    head, *lines = map(json.loads, path.read_text().splitlines())
    kept = [one for one in lines if one.get("event") in {None, "run_started", "run_finished"}]
    numbered = [{**one, "seq": seq} for seq, one in enumerate(kept, 1)]
    path.write_text("".join(f"{json.dumps(one)}\n" for one in [head, *numbered]))
    assert replay(path, lifeless(ADDER)) == result
    with pytest.raises(DivergedError) as caught:
        replay(path, ADDER.with_options(instructions="Be brief."))
    assert str(caught.value).splitlines() == [
        "the run differs from its recording: iteration 1: what happens next differs",
        """  recorded: "chat '1'\"""",
        """       now: "chat '1' with another request\"""",
        "  changed: instructions changed from None to 'Be brief.'",
    ]


# What cannot be replayed


def test_a_recording_that_was_read_without_its_log_is_told(path):
    record(path)
    recording = read_recording(path, log=False)
    assert recording.runs[0].segments[0].log == []
    assert recording.problems == []
    with pytest.raises(RecordingError, match="its log was not read"):
        replay(recording, ADDER)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.8])
def test_a_recording_that_ends_early_says_where(path, kept):
    result, _ = record(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: int(len(lines) * kept)]))
    seen = []
    with pytest.raises(RecordingError, match="its recording ends in iteration") as caught:
        replay(path, ADDER, on_event=seen.append)
    reached = max(getattr(event, "iteration", 0) for event in seen)
    assert f"ends in iteration {reached}, without the outcome of " in str(caught.value)
    assert result.run.run_id in str(caught.value)


def test_an_outcome_that_is_no_data_ends_the_log_and_not_the_run(path):
    """An async stage returns a context, which cannot be written."""

    @stage
    async def think(ctx):
        await anyio.lowlevel.checkpoint()
        return ctx

    loop = ADDER.with_options(stages=[think, ...])
    result, events = record(path, loop)
    assert isinstance(result, Ok)
    (run,) = read_recording(path).runs
    assert run.status == "ok"
    assert len(run.iterations) == 3
    with pytest.raises(RecordingError) as caught:
        replay(path, loop)
    assert str(caught.value).startswith(
        f"run {run.run_id!r} cannot be replayed to its end: its recording ends in iteration 1, "
        "without the outcome of stage 'think': the outcome of stage 'think'.tools['add'].fn: "
        "expected data, such as texts, numbers, lists and dicts, got "
    )
    assert isinstance(events[-1], RunFinished)


def test_messages_that_are_no_data_are_told(path):
    given = [{"role": "user", "content": "Hi.", "extra": {1j}}]
    record(path, given=given)
    with pytest.raises(RecordingError, match=r"messages.*got builtins:complex"):
        replay(path, ADDER)


def test_an_option_that_is_no_data_does_not_break_the_run(path):
    """As a placeholder of an SDK."""
    result, _ = record(path, llm_opts={"seed": object()})
    assert isinstance(result, Ok)
    with pytest.raises(RecordingError, match=r"the options of the model.*got builtins:object"):
        replay(path, ADDER)


@pytest.mark.parametrize("how", ["option", "by hand"])
def test_a_recording_without_a_log_is_told(path, how):
    with Recorder(path, replayable=how != "option") as recorder:
        observer = recorder if how == "option" else recorder.__call__
        ADDER.run_sync(QUESTION, script(), on_event=observer)
    with pytest.raises(RecordingError, match="cannot be replayed: its log was not recorded"):
        replay(path, ADDER)
    with pytest.raises(RecordingError, match="cannot be replayed: its log was not recorded"):
        fork_sync(path, ADDER, at=1, llm_send_fn=never)


def test_a_lost_line_of_the_log_is_told(path):
    record(path)
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if b'"chat","key":"2"' in line)
    path.write_bytes(b"".join([*lines[:place], *lines[place + 1 :]]))
    with pytest.raises(RecordingError, match=r"outcome of chat '2': lines of its log are missing"):
        replay(path, ADDER)


def test_a_line_of_the_log_that_was_changed_is_told(path):
    record(path)
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if b'"chat","key":"2"' in line)
    lines[place] = lines[place].replace(b'"path":[]', b'"path":["x"]')
    path.write_bytes(b"".join(lines))
    assert "effect: path[0]: expected integer, got string" in read_recording(path).problems[0]
    with pytest.raises(RecordingError, match="a line of its log cannot be read"):
        replay(path, ADDER)


def test_an_outcome_that_was_changed_is_told(path):
    record(path)
    text = path.read_text().replace('"$":"Response"', '"$":"Respond"')
    path.write_text(text)
    with pytest.raises(RecordingError, match=r"an entry of its log is malformed: .*'Respond'"):
        replay(path, ADDER)


def test_a_cancelled_run_has_no_result(path):
    async def main():
        with anyio.move_on_after(0.05), Recorder(path) as recorder:
            await Loop.run("Hi.", sleepy, on_event=recorder)

    async def sleepy(messages):
        await anyio.sleep(60)

    anyio.run(main)
    with pytest.raises(RecordingError, match="it was cancelled in iteration 1"):
        replay(path, Loop())


def test_an_async_observer_is_refused(path):
    async def observe(event):
        pass

    record(path)
    with pytest.raises(OptionError, match="on_event: expected a sync observer"):
        replay(path, ADDER, on_event=observe)


# Forks


def test_a_fork_goes_on_with_a_message(path):
    record(path)
    model = script("Fourteen.")
    seen = []
    made = fork_sync(
        path, lifeless(ADDER), at=3, with_="Double the last one.", llm_send_fn=model,
        on_event=seen.append,
    )  # fmt: skip
    assert (made.output, made.iterations, made.tool_calls_count) == ("Fourteen.", 3, 2)
    check_history(made.messages)
    [sent] = model.sent
    assert sent.messages[-1] == {"role": "user", "content": "Double the last one."}
    numbers = [event.iteration for event in seen if isinstance(event, IterationStarted)]
    assert numbers == [1, 2, 3]
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    [added] = [event for event in seen if isinstance(event, UserMessageAdded)]
    assert added.iteration == 3


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_fork_goes_on_with_other_options(path, at):
    """Earlier iterations are as they were recorded; the first one may be changed too."""
    record(path)

    @tool
    def multiply(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    model = script(calls(call("multiply", "m1", a=3, b=4)), "12.")
    options = {"instructions": "Multiply.", "tools": [multiply], "llm_opts": {"seed": 1}}
    made = fork_sync(path, lifeless(ADDER), at=at, with_=options, llm_send_fn=model)
    assert (made.output, made.iterations, made.tool_calls_count) == ("12.", at + 1, at)
    assert [sent.messages[0]["content"] for sent in model.sent] == ["Multiply."] * 2
    assert [one["function"]["name"] for one in model.sent[0].opts["tools"]] == ["multiply"]
    assert model.sent[0].opts["seed"] == 1
    assert [m for m in model.sent[0].messages if m["role"] == "tool"] == [
        {"role": "tool", "tool_call_id": f"c{n}", "content": content}
        for n, content in enumerate(["3", "7"][: at - 1], 1)
    ]


def test_a_fork_has_what_is_left_of_the_limits(path):
    record(path)
    made = fork_sync(path, ADDER, at=3, with_={"max_iterations": 3}, llm_send_fn=script(
        calls(call("add", "c3", a=1, b=1)), "never"
    ))  # fmt: skip
    assert made.stop_reason == "max_iterations_reached"
    assert made.iterations == 3


def test_a_fork_has_the_tools_that_a_stage_added(path):
    @tool
    def more() -> str:
        return "more"

    def unlock(ctx):
        return ctx.with_tools(add=[more]) if ctx.iteration == 1 else ctx

    loop = Loop(tools=[add], stages=[unlock, ...])
    first = ScriptedLLM(calls(call("add", a=1, b=1)), calls(call("more")), "Done.")
    with Recorder(path) as recorder:
        loop.run_sync("Go.", first, on_event=recorder)
    made = fork_sync(path, loop, at=2, llm_send_fn=ScriptedLLM(calls(call("more")), "Well."))
    assert [one["content"] for one in made.messages if one["role"] == "tool"] == ["2", "more"]


def test_a_fork_goes_on_with_other_stages(path):
    record(path)
    model = script("Well.")
    seen = []
    made = fork_sync(
        path, ADDER, at=3, with_={"stages": [last_only, ...]}, llm_send_fn=model,
        on_event=seen.append,
    )  # fmt: skip
    assert made.output == "Well."
    assert model.sent[0].messages == [{"role": "user", "content": "Well?"}]
    assert [len(e.messages) for e in seen if isinstance(e, ModelRequested)] == [1, 3, 1]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_fork_on_an_event_loop_after_a_pause(path, backend):
    loop = Loop(tools=[send])
    model = script(calls(call("send", "c1", text="hello")), "Sent.")
    with Recorder(path) as recorder:
        paused = loop.run_sync("Send it.", model, on_event=recorder)
        loop.resume_sync(paused, {paused.pending[0].id: approve}, model, on_event=recorder)

    async def other(messages):
        await anyio.lowlevel.checkpoint()
        return "Gesendet."

    async def main():
        return await fork(path, lifeless(loop), at=2, with_="In German.", llm_send_fn=other)

    made = anyio.run(main, backend=backend)
    assert made.output == "Gesendet."
    assert [m["role"] for m in made.messages] == ["user", "assistant", "tool", "user", "assistant"]


def test_a_fork_of_a_run_of_a_session_is_not_stored(path, tmp_path):
    session = SQLiteSessions(tmp_path / "sessions.db").session("alice")
    record(path, session=session)
    before = session.messages()
    made = fork_sync(path, ADDER, at=3, with_="Shout.", llm_send_fn=script("SEVEN."))
    assert made.output == "SEVEN."
    assert session.messages() == before


WRONG = {
    "no such iteration": ({"at": 4}, "at: expected the number of an iteration of the run, which has 3"),
    "no model": ({"at": 2, "llm_send_fn": None}, "llm_send_fn: there is no model"),
    "fixed": ({"at": 2, "with_": {"handle": RunHandle()}}, "cannot change handle"),
    "unknown": ({"at": 2, "with_": {"instruction": "x"}}, "there is no option 'instruction'"),
    "message": ({"at": 2, "with_": {"message": 7}}, "expected a text or a user message, got 7"),
    "role": (
        {"at": 2, "with_": {"message": {"role": "assistant", "content": "x"}}},
        "expected a text or a user message",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "text"), WRONG.values(), ids=WRONG.keys())
def test_a_fork_that_cannot_be_made_is_refused(path, options, text):
    record(path)
    with pytest.raises(OptionError, match=text):
        fork_sync(path, ADDER, **{"llm_send_fn": never, **options})


def test_a_fork_replays_what_comes_before_it(path):
    record(path)
    with pytest.raises(DivergedError, match="iteration 1: the request to the model differs"):
        fork_sync(path, ADDER.with_options(instructions="x"), at=3, llm_send_fn=never)


# Differences


def recording_of(model, loop=ADDER, given=QUESTION):
    """A run of a recording."""
    file = io.StringIO()
    loop.run_sync(given, model, on_event=Recorder(file))
    (run,) = read_lines(file.getvalue().encode().splitlines(keepends=True), "run").runs
    return run


def test_the_same_run_twice_has_no_difference():
    """Ids, times and tokens are others."""
    runs = [recording_of(script(calls(call("add", a=1, b=2)), "3.")) for _ in range(2)]
    ids = [run.iterations[0].calls[0].id for run in runs]
    assert ids[0] != ids[1]
    assert diff(*runs) is None


STEPS = {
    "the question": (
        {"given": "What is 1 + 1?"},
        (1, "the request to the model", "messages[0].content"),
        ("What is 1 + 2, and 3 + 4?", "What is 1 + 1?"),
    ),
    "a call": (
        {"model": script(calls(call("add", "x1", a=1, b=3)), "4.")},
        (1, "the response of the model", "tool_calls[0].arguments.b"),
        (2, 3),
    ),
    "an answer": (
        {"model": script(*script()._script[:2], "3, 7.")},
        (3, "the response of the model", "content"),
        ("3 and 7.", "3, 7."),
    ),
    "a result": (
        {"loop": ADDER.with_options(tools=[dataclasses.replace(add, fn=lambda a, b: a * b)])},
        (1, "the result of 'add'", "content"),
        ("3", "2"),
    ),
    "the end": (
        {"loop": ADDER.with_options(max_iterations=1)},
        (2, "what happens next", ""),
        ("the request to the model", "the end of the run"),
    ),
}


@pytest.mark.parametrize(("other", "where", "values"), STEPS.values(), ids=STEPS.keys())
def test_the_first_difference_of_two_recordings(other, where, values):
    found = diff(recording_of(script()), recording_of(**{"model": script(), **other}))
    assert (found.iteration, found.what, found.path) == where
    assert (found.a, found.b) == values


def test_a_recording_and_a_result_are_compared_by_their_messages(path):
    result, _ = record(path)
    assert diff(path, result) is None
    other = ADDER.run_sync(QUESTION, script(*script()._script[:2], "3, 7."))
    found = diff(path, other)
    assert str(found) == (
        "iteration 3: message 5 differs, at content\n  a: '3 and 7.'\n  b: '3, 7.'"
    )
    assert diff(other, result).a == "3, 7."


def test_recordings_of_several_runs_are_compared_in_order(path, tmp_path):
    for name, answers in {"run.jsonl": ["a", "b"], "other.jsonl": ["a", "c"]}.items():
        with Recorder(tmp_path / name) as recorder:
            for answer in answers:
                Loop().run_sync("Hi.", script(answer), on_event=recorder)
    found = diff(path, tmp_path / "other.jsonl")
    assert (found.run, found.a, found.b) == (1, "b", "c")
    (tmp_path / "one.jsonl").write_text(
        "".join(
            line
            for line in path.read_text().splitlines(keepends=True)
            if json.loads(line).get("run") in {None, read_recording(path).runs[0].run_id}
        )
    )
    found = diff(path, tmp_path / "one.jsonl")
    assert (found.run, found.what) == (1, "the number of runs")


def test_the_text_of_a_difference_shows_long_values_around_it():
    long = "One fact after another. " * 20
    a = recording_of(script(f"{long}Yes. {long}"))
    b = recording_of(script(f"{long}No. {long}"))
    assert str(diff(a, b)).splitlines() == [
        "iteration 1: the response of the model differs, at content",
        "  a: …fact after another. Yes. One fact after another. One fact af…",
        "  b: …fact after another. No. One fact after another. One fact aft…",
    ]


def test_a_change_of_the_loop_is_named_with_the_difference():
    a = recording_of(script())
    b = recording_of(script(), ADDER.with_options(instructions="Be brief."))
    assert str(diff(a, b)).endswith("changed: instructions changed from None to 'Be brief.'")
