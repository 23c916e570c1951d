"""A stream that breaks off after listeners received text of it is not requested again."""

import anyio
import pytest
from tests.ways import DRIVEN, WAYS
from tests.whole.recorder import Recorder
from tests.whole.test_replay import replayed, same

from treadle import Chunk, Loop, ModelFailed, ModelRetried, RunCancelled, RunHandle, TextDelta, tool
from treadle.messages import CallChunk
from treadle.recording import Recorder as Recording
from treadle.reports.live import LiveView
from treadle.stages import ask_model
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import USER, of
from .notes import note


class Breaking:
    """A model whose first response is a stream that breaks off after some pieces."""

    def __init__(self, *pieces, after=()):
        self.script, self.pieces, self.sent = list(after), pieces, 0

    def __call__(self, messages):
        self.sent += 1
        if self.script:
            return self.script.pop(0)
        return self.broken() if self.pieces else "Whole."

    def broken(self):
        pieces, self.pieces = self.pieces, ()
        yield from pieces
        raise ConnectionResetError("reset")


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_after_text_was_shown_the_run_ends(way):
    model = Breaking("Once ", "upon ")
    observed = way.run(USER, model, retry_delay=0)
    assert model.sent == 1
    reason = observed.result.reason
    assert (reason.error_type, reason.attempts) == ("ConnectionResetError", 1)
    assert reason.message == (
        "reset; listeners had received 10 characters of the response, so it was not requested again "
        "(see restart_streams)"
    )
    assert reason.cause is reason.__cause__
    assert isinstance(reason.cause, ConnectionResetError)
    assert observed.result.messages == [*USER, {"role": "assistant", "content": "Once upon "}]
    assert [event.text for event in of(observed.events, TextDelta)] == ["Once ", "upon "]
    assert of(observed.events, ModelRetried) == []
    assert [event.error for event in of(observed.events, ModelFailed)] == [reason.message]


@pytest.mark.parametrize("way", DRIVEN, ids=repr)
def test_the_conversation_can_go_on(way):
    @tool
    def look() -> str:
        return "a castle"

    model = Breaking("Once ", after=[calls(call("look", "c1"))])
    result = way.run(USER, model, tools=[look]).result
    check_history(result.messages)
    assert [m["role"] for m in result.messages] == ["user", "assistant", "tool", "assistant"]
    with ScriptedLLM("upon a time.") as following:
        after = way.run([*result.messages, {"role": "user", "content": "Go on."}], following).result
    assert after.run.repairs == ()
    assert [m["content"] for m in after.messages[-3:]] == ["Once ", "Go on.", "upon a time."]


@pytest.mark.parametrize(
    "options",
    [{}, {"on_event": lambda event: None, "stages": [ask_model(restart_streams=True), ...]}],
    ids=["no listeners", "restart_streams"],
)
def test_it_is_requested_again_if(options):
    model = Breaking("Once ")
    result = Loop.run_sync(USER, model, retry_delay=0, **options)
    assert (result.unwrap().content, model.sent) == ("Whole.", 2)
    assert result.messages[-1]["content"] == "Whole."


class Discarding:
    discards_on_retry = True

    def __init__(self):
        self.text = ""

    def __call__(self, event):
        if isinstance(event, TextDelta):
            self.text += event.text
        elif isinstance(event, ModelRetried):
            self.text = ""


def discarding_function(event):
    """Show nothing."""


discarding_function.discards_on_retry = True


def test_it_is_requested_again_if_all_observers_discard_the_text(tmp_path):
    observer, model = Discarding(), Breaking("Once ")
    with Recording(tmp_path / "run.jsonl") as recording, LiveView(enabled=False) as view:
        observers = [observer, discarding_function, recording, view]
        result = Loop.run_sync(USER, model, retry_delay=0, on_event=observers)
        assert (result.unwrap().content, observer.text, model.sent) == ("Whole.", "", 2)
        other = Breaking("Once ")
        result = Loop.run_sync(USER, other, on_event=[*observers, lambda event: None])
        assert (result.stop_reason, other.sent) == ("llm_error", 1)


@pytest.mark.parametrize("way", WAYS, ids=repr)
@pytest.mark.parametrize(
    "piece",
    [
        Chunk(tool_calls=(CallChunk(0, "c1", "look", '{"n": '),)),
        Chunk(extra={"reasoning": "Hm."}),
        Chunk(model="m"),
    ],
    ids=["call", "reasoning", "model"],
)
def test_without_text_it_is_requested_again(way, piece):
    model = Breaking(piece)
    observed = way.run(USER, model, retry_delay=0)
    assert (observed.result.unwrap().content, model.sent) == ("Whole.", 2)
    assert [event.attempt for event in of(observed.events, ModelRetried)] == [1]


@pytest.mark.parametrize("way", WAYS, ids=repr)
@pytest.mark.parametrize("text", ["", "Let me look. "], ids=["retried", "shown"])
def test_the_calls_of_a_broken_stream_never_run(way, text):
    ran = []

    @tool
    def look(n: int = 0) -> str:
        ran.append(n)
        return "seen"

    whole = Chunk(tool_calls=(CallChunk(0, "c1", "look", '{"n": 1}'),))
    model = Breaking(
        text or Chunk(model="m"), whole, Chunk(tool_calls=(CallChunk(1, "c2", "look"),))
    )
    observed = way.run(USER, model, tools=[look], retry_delay=0)
    assert ran == []
    assert observed.result.tool_calls_count == 0
    check_history(observed.result.messages)
    assert all("tool_calls" not in message for message in observed.result.messages)


@pytest.mark.parametrize("driven", DRIVEN, ids=repr)
def test_a_replay_ends_in_the_same_way(driven):
    recorder = Recorder()
    observed = driven.run(USER, Breaking("Once ", "upon "), middleware=[recorder])
    assert observed.result.stop_reason == "llm_error"
    same(observed, replayed(USER, {}, recorder.log))


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_a_subagent_shows_text_to_the_listeners_of_its_parent(way):
    """`SubagentEvent` carries the text, so the request of the subagent is not repeated either."""
    inner = Breaking("Once ")
    helper = Loop(retry_delay=0).as_tool("helper", "Helps.", inner)
    model = ScriptedLLM(calls(call("helper", "c1", task="Go.")), "Done.")
    observed = way.run(USER, model, tools=[helper])
    assert inner.sent == 1
    assert "the response, so it was not requested again" in observed.result.messages[2]["content"]


# A run that is interrupted while the model streams keeps the text so far.


STREAMED = {"role": "assistant", "content": "Once upon "}


async def endless(messages):
    async def pieces():
        yield "Once "
        yield "upon "
        await anyio.sleep_forever()

    return pieces()


def test_when_it_is_cancelled(way):
    handle = RunHandle()

    def cancel(event):
        if isinstance(event, TextDelta) and event.text == "upon ":
            handle.cancel()

    result = way.run(Loop(on_event=cancel), endless, handle=handle)
    assert result.reason == RunCancelled()
    assert result.messages == [*USER, STREAMED]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_when_its_task_is_cancelled(backend):
    """Nothing is returned; the handle has it."""
    handle = RunHandle()

    async def main():
        with anyio.move_on_after(0.2):
            await Loop.run(USER, endless, handle=handle)

    anyio.run(main, backend=backend)
    assert handle.messages == handle.result.messages == [*USER, STREAMED]


def test_after_the_calls_of_earlier_iterations(way):
    answers = iter([calls(call("note", "a", n=1))])

    async def model(messages):
        return next(answers, None) or await endless(messages)

    result = way.run(Loop(tools=[note], max_seconds=0.3), model)
    check_history(result.messages)
    assert [m["role"] for m in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.messages[-1] == STREAMED


def test_without_text_nothing_is_added(way):
    async def model(messages):
        await anyio.sleep_forever()

    result = way.run(Loop(max_seconds=0.1), model)
    assert result.messages == USER
