"""A run that is interrupted while the model streams keeps the text so far."""

import threading

import anyio
import pytest

from treadle import DeadlineExceeded, Loop, RunCancelled, RunHandle, TextDelta
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import USER
from .notes import note

STREAMED = {"role": "assistant", "content": "Once upon "}


async def endless(messages):
    async def pieces():
        yield "Once "
        yield "upon "
        await anyio.sleep_forever()

    return pieces()


def blocking(messages, ended):
    yield "Once "
    yield "upon "
    ended.wait(30)


def test_at_the_deadline(way):
    result = way.run(Loop(max_seconds=0.2), endless)
    assert isinstance(result.reason, DeadlineExceeded)
    assert result.messages == [*USER, STREAMED]


def test_at_the_deadline_of_a_stream_that_blocks():
    ended = threading.Event()
    result = Loop.run_sync(USER, lambda messages: blocking(messages, ended), max_seconds=0.2)
    ended.set()
    assert result.messages == [*USER, STREAMED]


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


def test_the_conversation_can_go_on(way):
    result = way.run(Loop(max_seconds=0.2), endless)
    with ScriptedLLM("a time.") as model:
        after = Loop.run_sync([*result.messages, {"role": "user", "content": "Go on."}], model)
    assert [m["content"] for m in after.messages[-3:]] == ["Once upon ", "Go on.", "a time."]


def test_without_text_nothing_is_added(way):
    async def model(messages):
        await anyio.sleep_forever()

    result = way.run(Loop(max_seconds=0.1), model)
    assert result.messages == USER
