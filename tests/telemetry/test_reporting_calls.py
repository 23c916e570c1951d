"""Events that a call emits while it runs: telemetry handles them, and listeners find no span of treadle's."""

import anyio
import pytest
from opentelemetry import trace

from treadle.effects import Call, Emit, Mode, drive, drive_sync
from treadle.events import (
    FirstChunk,
    ModelRequested,
    ModelResponded,
    RunFinished,
    RunStarted,
    SubagentEvent,
    ToolStarted,
)
from treadle.messages import Response, ToolCall
from treadle.telemetry import active_telemetry, names

AT = 1_700_000_000.0
STARTED = RunStarted(agent_name="bot", run_id="r1", at=AT)
FINISHED = RunFinished(
    stop_reason="answered", total_iterations=1, tool_calls_count=0, result=None, at=AT + 9
)
MODES = ("inline", "thread", "async")


def current():
    """The name of the current span; None if there is none."""
    return getattr(trace.get_current_span(), "name", None)


def model_in(mode, seen):
    """A model that is called in a mode, and emits its first chunk with the reporter that it receives."""

    def model(question, reporter):
        seen["model before"] = current()
        event = FirstChunk(iteration=1, at=AT + 2)
        reporter.emit(event if question == "plain" else SubagentEvent(call_id="c1", event=event))
        seen["model after"] = current()
        return question

    async def model_later(question, reporter):
        await anyio.sleep(0)
        emitted = reporter.emit(FirstChunk(iteration=1, at=AT + 2))
        if emitted is not None:
            await emitted
        seen["model before"] = seen["model after"] = current()
        return question

    return model_later if mode == "async" else model


def performed(driver, steps, listener):
    """Perform steps under a driver."""
    if driver == "sync":
        return drive_sync(steps, listener)
    return anyio.run(lambda: drive(steps, listener), backend=driver)


@pytest.mark.parametrize("mode", MODES)
def test_a_chunk_that_the_model_call_emits_is_on_its_span(driver, mode, watch):
    seen = {}

    def steps():
        yield Emit(STARTED)
        yield Emit(ModelRequested(iteration=1, at=AT + 1))
        model = model_in(mode, seen)
        answer = yield Call(model, "plain", mode=Mode(mode), label="chat", key="1", reporting=True)
        response = Response(answer, times=(AT + 1, AT + 3, AT + 2))
        yield Emit(ModelResponded(iteration=1, response=response, at=AT + 3, duration=2))
        yield Emit(FINISHED)
        return answer

    def listener(event):
        seen[type(event)] = current()

    async def listener_later(event):
        listener(event)
        await anyio.sleep(0)
        seen["later"] = current()

    # An inline function cannot await an async listener.
    listeners = (listener, listener if mode == "inline" else listener_later)
    for listens in listeners:
        result = performed(
            driver, active_telemetry(watch.options["telemetry"]).middleware(steps()), listens
        )
        assert result == "plain"
    for chat in watch.named("chat"):
        assert chat.attributes[names.TIME_TO_FIRST_CHUNK] == 1
    assert watch.total(names.FIRST_CHUNK_DURATION) == 2
    assert seen.pop("model before") == seen.pop("model after") == "chat"
    assert FirstChunk in seen
    assert set(seen.values()) == {None}  # all of them are of listeners
    watch.check_whole(runs=2)


def test_a_chunk_from_a_subagent_is_on_the_span_of_the_subagent(driver, watch):
    seen = {}

    def inside(event):
        return Emit(SubagentEvent(call_id="c1", event=event))

    def steps():
        yield Emit(STARTED)
        yield Emit(ToolStarted(iteration=1, call=ToolCall("c1", "kid", "{}"), at=AT))
        yield inside(RunStarted(agent_name="kid", run_id="r1/c1", at=AT))
        yield inside(ModelRequested(iteration=1, at=AT + 1))
        model = model_in("thread", seen)
        answer = yield Call(model, "x", mode=Mode.THREAD, label="chat", key="c1/1", reporting=True)
        response = Response(answer, times=(AT + 1, AT + 3, AT + 2))
        yield inside(ModelResponded(iteration=1, response=response, at=AT + 3, duration=2))
        yield inside(FINISHED)
        yield Emit(FINISHED)

    performed(driver, active_telemetry(watch.options["telemetry"]).middleware(steps()), None)
    chat = watch.one("chat")
    assert watch.names_around(chat)[:2] == ("chat", "invoke_agent kid")
    assert chat.attributes[names.TIME_TO_FIRST_CHUNK] == 1
    assert seen == {"model before": "chat", "model after": "chat"}
