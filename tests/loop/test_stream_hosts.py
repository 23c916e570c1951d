"""Streams in hosts: whatever a host does with one, the run ends, and the host is untouched.

Each host reads from an async generator around the stream, and leaves it in its own way.
"""

import asyncio
import contextlib
import gc
import time

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
import trio
from starlette.responses import StreamingResponse

from treadle import Loop, RunCancelled, RunFinished, tool
from treadle.pipeline import Pipeline
from treadle.testing import call, calls, check_history

LONG = 60
BACKENDS = ["asyncio", "trio"]
both = pytest.mark.parametrize("backend", BACKENDS)
pytestmark = [
    # trio warns of every generator that is garbage collected
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]


class Streamed:
    """A run that streams two words and then waits, and what became of it."""

    def __init__(self, kind):
        self.kind = kind
        self.ended = []
        self.finished = []
        self.events = None

    async def words(self):
        """What hosts read."""
        if self.kind == "pipeline":
            async with Pipeline(self._wait_after_two).stream(range(9), concurrency=2) as items:
                async for item in items:
                    yield f"{item} "
            return
        async with Loop.stream(
            "Hi", self._model, tools=[self._hang], on_event=self._note
        ) as events:
            self.events = events
            if self.kind == "text":
                async for text in events.text():
                    yield text
            else:
                async for event in events:
                    yield type(event).__name__

    async def _wait_after_two(self, item):
        if item >= 2:
            await self._forever()
        return item

    async def _model(self, messages):
        if self.kind == "tool":
            return calls(call("hang"))
        return self._pieces()

    async def _pieces(self):
        yield "one "
        yield "two "
        await self._forever()

    @property
    def _hang(self):
        return tool(self._forever, name="hang", description="Hangs.")

    async def _forever(self) -> str:
        try:
            await anyio.sleep(LONG)
        finally:
            self.ended.append("cleanup")
        return ""

    def _note(self, event):
        if isinstance(event, RunFinished):
            self.finished.append(event.stop_reason)

    def check(self):
        """The run ended, and was cleaned up."""
        if self.kind == "pipeline":
            return
        assert self.finished == ["cancelled"]
        assert self.events.result.reason == RunCancelled()
        check_history(self.events.messages)


KINDS = ["text", "events", "tool", "pipeline"]
kinds = pytest.mark.parametrize("kind", KINDS)


async def untouched():
    """The caller's task can go on, and no task is left."""
    for _ in range(20):
        await anyio.sleep(0.001)
    assert anyio.current_effective_deadline() == float("inf")
    for _ in range(200):
        if not tasks_left():
            return
        await anyio.sleep(0.01)
    raise AssertionError(tasks_left())


def tasks_left():
    try:
        current = asyncio.current_task()
    except RuntimeError:
        current = None
    if current is not None:
        assert current.cancelling() == 0
        return [task for task in asyncio.all_tasks() if task is not current]
    system = trio.lowlevel.current_root_task().child_nurseries[0].child_tasks
    return [task for task in system if "DetachedTask" in task.name or "carrier" in task.name]


async def in_another_task(fn):
    async with anyio.create_task_group() as group:
        group.start_soon(fn)


async def leave_by_break(words):
    async for _ in words:
        break
    del words
    gc.collect()


async def leave_in_a_cycle(words):
    await anext(words)
    cycle = [words]
    cycle.append(cycle)
    del cycle, words
    gc.collect()


async def leave_by_aclose(words):
    await anext(words)
    await words.aclose()


async def leave_by_aclose_in_another_task(words):
    await anext(words)
    await in_another_task(words.aclose)


async def leave_by_aclosing(words):
    async with contextlib.aclosing(words):
        async for _ in words:
            break


async def leave_by_an_exception(words):
    await anext(words)
    with pytest.raises(LookupError, match="of the host"):
        await words.athrow(LookupError("of the host"))


async def leave_with_a_task_per_item(words):
    async def read():
        await anext(words)

    await in_another_task(read)
    await in_another_task(read)
    await in_another_task(words.aclose)


async def leave_at_a_time_limit(words):
    """The limit is reached while the reader waits for the next event."""
    with anyio.move_on_after(0.1) as scope:
        async for _ in words:
            pass
    assert scope.cancelled_caught


async def leave_at_a_time_limit_of_one_item(words):
    scope = None
    with contextlib.suppress(StopAsyncIteration):
        while scope is None or not scope.cancelled_caught:
            with anyio.move_on_after(0.1) as scope:
                await anext(words)


async def leave_in_a_cancelled_task(words):
    async def read():
        async for _ in words:
            pass

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.sleep(0.1)
        group.cancel_scope.cancel()


async def leave_by_a_disconnect(words):
    """As a web server does, when its client has left."""
    sent = anyio.Event()

    async def receive():
        await sent.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message.get("body"):
            sent.set()

    await StreamingResponse(words)({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)


WAYS = [
    leave_by_break,
    leave_in_a_cycle,
    leave_by_aclose,
    leave_by_aclose_in_another_task,
    leave_by_aclosing,
    leave_by_an_exception,
    leave_with_a_task_per_item,
    leave_at_a_time_limit,
    leave_at_a_time_limit_of_one_item,
    leave_in_a_cancelled_task,
    leave_by_a_disconnect,
]


@both
@kinds
@pytest.mark.parametrize("leave", WAYS)
def test_a_stream_that_is_left_ends_its_run_and_nothing_else(leave, kind, backend):
    streamed = Streamed(kind)

    async def main():
        await leave(streamed.words())
        await untouched()
        streamed.check()

    before = time.monotonic()
    anyio.run(main, backend=backend)
    assert time.monotonic() - before < 10


@both
@kinds
def test_a_stream_that_is_open_at_the_end_of_the_event_loop_ends_with_it(kind, backend):
    streamed, kept = Streamed(kind), []

    async def main():
        kept.append(streamed.words())
        await anext(kept[0])

    anyio.run(main, backend=backend)
    streamed.check()
