"""A run that is interrupted while the model streams keeps the text so far."""

import anyio
import pytest

from treadle import Loop, RunCancelled, RunHandle, TextDelta
from treadle.testing import call, calls, check_history

from .conftest import USER
from .notes import note

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
