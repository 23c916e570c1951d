"""Streams in hosts: whatever a host does with one, the run ends, and the host is untouched.

Each host reads from an async generator around the stream, and leaves it in its own way.
"""

import asyncio
import contextlib
import contextvars
import gc
import time

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
import trio
from starlette.responses import StreamingResponse

from treadle import (
    Chunk,
    Loop,
    Paused,
    RunCancelled,
    RunFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    approve,
    tool,
)
from treadle.loop.event_stream import EVENTS_AHEAD
from treadle.pipeline.streams import StreamPipeline
from treadle.testing import ScriptedLLM, call, calls, check_history

LONG = 60
BACKENDS = ["asyncio", "trio"]
both = pytest.mark.parametrize("backend", BACKENDS)
# Trio warns of every generator that is garbage collected.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@pytest.fixture(autouse=True)
def _nothing_is_logged_by_the_event_loop(caplog):
    """Such as exceptions that were never retrieved, or generators that could not be closed."""
    yield
    gc.collect()
    records = [*caplog.get_records("setup"), *caplog.get_records("call")]
    assert [
        each.getMessage() for each in records if each.name.startswith(("asyncio", "trio"))
    ] == []


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
            async with StreamPipeline(self._wait_after_two).stream(
                range(9), concurrency=2
            ) as items:
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
    nurseries = trio.lowlevel.current_root_task().child_nurseries
    system = [task for nursery in nurseries for task in nursery.child_tasks]
    return [task for task in system if "treadle.effects" in task.name]


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


def words_of(model, **options):
    """A generator of words around a run."""

    async def words():
        async with Loop.stream("Hi", model, **options) as events:
            async for text in events.text():
                yield text

    return words()


@both
def test_a_stream_is_read_to_its_end_with_a_task_per_item(backend):
    async def main():
        words, read = words_of(ScriptedLLM(["It ", "is ", "5."])), []

        async def read_one():
            with contextlib.suppress(StopAsyncIteration):
                read.append(await anext(words))

        for _ in range(4):
            await in_another_task(read_one)
        await untouched()
        return read

    assert anyio.run(main, backend=backend) == ["It ", "is ", "5."]


class TestSyncCode:
    """Bridges run an event loop for one item at a time."""

    def test_reads_with_one_call_of_the_loop_per_item(self):
        with asyncio.Runner() as runner:
            words, read = words_of(ScriptedLLM(["It ", "is ", "5."], is_async=True)), []
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    read.append(runner.run(anext(words)))
        assert read == ["It ", "is ", "5."]

    @kinds
    @pytest.mark.parametrize("how", ["closes", "drops", "keeps"])
    def test_leaves_early(self, kind, how):
        streamed = Streamed(kind)
        with asyncio.Runner() as runner:
            words = streamed.words()
            runner.run(anext(words))
            if how == "closes":
                runner.run(words.aclose())
                runner.run(untouched())
                streamed.check()
            elif how == "drops":
                del words
                gc.collect()
                runner.run(untouched())
                streamed.check()
        streamed.check()

    @both
    def test_enters_through_a_portal(self, backend):
        streamed = Streamed("text")
        with (
            anyio.from_thread.start_blocking_portal(backend) as portal,
            portal.wrap_async_context_manager(
                Loop.stream("Hi", streamed._model, tools=[streamed._hang], on_event=streamed._note)
            ) as streamed.events,
        ):
            texts = streamed.events.text()
            assert [portal.call(texts.__anext__) for _ in range(2)] == ["one ", "two "]
        streamed.check()

    @both
    def test_drops_the_generator_in_another_thread(self, backend):
        streamed = Streamed("text")

        async def main():
            kept = [streamed.words()]
            await anext(kept[0])

            def drop():
                kept.clear()
                gc.collect()

            await anyio.to_thread.run_sync(drop)
            await untouched()

        anyio.run(main, backend=backend)
        streamed.check()


class TestTheBlockItself:
    """Without a generator around it."""

    @both
    def test_loses_no_event_when_a_time_limit_ends_one_wait(self, backend):
        released = []

        async def model(messages):
            while not released:
                await anyio.sleep(0.001)
            return "Done."

        async def main():
            seen, scope = [], None
            async with Loop.stream("Hi", model) as events:
                while scope is None or not scope.cancelled_caught:
                    with anyio.move_on_after(0.05) as scope:
                        seen.append(await anext(events))
                released.append(True)
                seen.extend([event async for event in events])
            await untouched()
            return seen

        seen = anyio.run(main, backend=backend)
        assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
        assert seen[-1].stop_reason == "answered"

    @both
    def test_may_be_left_in_another_task(self, backend):
        streamed = Streamed("text")

        async def main():
            stack = contextlib.AsyncExitStack()
            streamed.events = await stack.enter_async_context(
                Loop.stream("Hi", streamed._model, on_event=streamed._note)
            )
            await anext(streamed.events.text())
            await in_another_task(stack.aclose)
            await untouched()
            streamed.check()

        anyio.run(main, backend=backend)

    @both
    def test_ends_with_its_object(self, backend):
        streamed = Streamed("text")

        async def main():
            block = Loop.stream("Hi", streamed._model, on_event=streamed._note)
            streamed.events = await block.__aenter__()
            await anext(streamed.events.text())
            del block
            gc.collect()
            await untouched()
            streamed.check()

        anyio.run(main, backend=backend)

    @both
    def test_ends_with_the_event_loop_although_the_run_waits_for_its_reader(self, backend):
        """The end of the run emits more events, for which it does not wait."""
        kept, finished = [], []
        pieces = ["x"] * 4 * EVENTS_AHEAD

        async def main():
            kept.append(Loop.stream("Hi", ScriptedLLM(pieces), on_event=finished.append))
            kept.append(await kept[0].__aenter__())
            await anyio.sleep(0.2)

        before = time.monotonic()
        anyio.run(main, backend=backend)
        assert time.monotonic() - before < 3
        assert kept[1].result.reason == RunCancelled()
        assert isinstance(finished[-1], RunFinished)

    @both
    def test_pauses_and_is_resumed_as_a_stream_that_is_left(self, backend):
        streamed = Streamed("tool")
        loop = Loop(tools=[tool(streamed._forever, name="hang", requires_approval=True)])

        async def main():
            async with loop.stream("Hi", streamed._model) as events:
                async for _ in events:
                    pass
            assert isinstance(events.result, Paused)

            async def resumed():
                decisions = {events.result.pending[0].id: approve}
                async with loop.resume_stream(
                    events.result, decisions, streamed._model, on_event=streamed._note
                ) as streamed.events:
                    async for event in streamed.events:
                        yield event

            async for event in resumed():
                if isinstance(event, ToolStarted):
                    break
            await untouched()
            streamed.check()

        anyio.run(main, backend=backend)
        assert streamed.ended == ["cleanup"]


class TestNested:
    @both
    def test_streams_are_left_from_the_outside(self, backend):
        outer, inner = Streamed("text"), Streamed("text")

        async def both_words():
            async for word in outer.words():
                async for other in inner.words():
                    yield word + other

        async def main():
            async for words in both_words():
                assert words == "one one "
                break
            gc.collect()
            await untouched()

        anyio.run(main, backend=backend)
        outer.check()
        inner.check()

    @both
    @pytest.mark.parametrize("is_left", [False, True])
    def test_a_tool_that_streams(self, backend, is_left):
        """It leaves its stream early; and the stream around it is left while it reads."""
        inner = Streamed("text")

        @tool
        async def ask():
            """Ask another loop."""
            async for word in inner.words():
                if not is_left:
                    return word
            return "unreachable"

        model = ScriptedLLM(calls(call("ask")), "Done.")

        async def main():
            async with Loop.stream("Hi", model, tools=[ask]) as events:
                async for event in events:
                    if is_left and isinstance(event, ToolStarted):
                        await anyio.sleep(0.1)
                        break
                    if isinstance(event, ToolFinished):
                        assert event.result.content == "one "
            gc.collect()
            await untouched()
            return events.result

        result = anyio.run(main, backend=backend)
        assert result.stop_reason == ("cancelled" if is_left else "answered")
        inner.check()


class TestWhatReachesTheRun:
    @both
    def test_context_variables_of_the_caller(self, backend):
        variable = contextvars.ContextVar("variable", default="unset")

        @tool
        def read() -> str:
            """Read the variable."""
            variable.set("by the tool")
            return variable.get()

        seen = []

        def listener(_):
            seen.append(variable.get())

        async def main():
            variable.set("by the caller")
            model = ScriptedLLM(calls(call("read")), "Done.")
            async with Loop.stream("Hi", model, tools=[read], on_event=listener) as events:
                async for _ in events:
                    pass
            return variable.get()

        assert anyio.run(main, backend=backend) == "by the caller"
        assert set(seen) == {"by the caller"}


class TestWhatReachesTheReader:
    """Errors of the run."""

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    @pytest.mark.parametrize("where", ["reading", "at the end"])
    @both
    def test_an_exception_of_the_run_is_raised_after_the_events(self, backend, where, error):
        """A middleware that fails is none of the failures that a run handles."""
        seen, reached = [], []

        def failing(steps):
            yield from steps
            raise error("of the run")

        async def words():
            async with Loop.stream("Hi", ScriptedLLM("Five."), middleware=[failing]) as events:
                if where == "at the end":
                    await anyio.sleep(0.05)
                    reached.append(True)
                    return
                async for event in events:
                    seen.append(event)
                    yield event
                raise AssertionError("unreachable")

        async def main():
            with pytest.raises(error, match="of the run"):
                async for _ in words():
                    pass
            await untouched()

        anyio.run(main, backend=backend)
        if where == "reading":
            assert isinstance(seen[-1], RunFinished)
        else:
            assert reached == [True]


class TestText:
    def texts(self, model, **options):
        async def main():
            async with Loop.stream("Hi", model, **options) as events:
                return [text async for text in events.text()], events.result

        return asyncio.run(main())

    def test_is_that_of_the_answer_as_it_is_streamed(self):
        texts, result = self.texts(ScriptedLLM(["It ", "", "is ", "5."]))
        assert texts == ["It ", "is ", "5."]
        assert "".join(texts) == result.unwrap().content

    def test_is_whole_if_the_model_does_not_stream(self):
        assert self.texts(ScriptedLLM("It is 5."))[0] == ["It is 5."]

    def test_has_no_reasoning(self):
        pieces = [Chunk(extra={"reasoning": "Easy."}), Chunk("Five.")]
        assert self.texts(ScriptedLLM(pieces))[0] == ["Five."]

    def test_separates_responses(self):
        first = {**calls(call("len", obj=[1])), "content": "Let me look."}
        for last in ("One.", ["One", "."]):
            texts, _ = self.texts(ScriptedLLM(first, last), tools=[len])
            assert "".join(texts) == "Let me look.\n\nOne."

    def test_has_no_separator_after_responses_without_text(self):
        texts, _ = self.texts(ScriptedLLM(calls(call("len", obj=[1])), "One."), tools=[len])
        assert texts == ["One."]

    def test_leaves_out_subagents(self):
        helper = Loop().as_tool("helper", "Helps.", ScriptedLLM(["of the ", "subagent"]))
        model = ScriptedLLM(calls(call("helper", task="x")), ["Do", "ne."])
        assert self.texts(model, tools=[helper])[0] == ["Do", "ne."]

    def test_continues_where_the_events_were_read(self):
        async def main():
            async with Loop.stream("Hi", ScriptedLLM(["It ", "is ", "5."])) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
                return [text async for text in events.text()]

        assert asyncio.run(main()) == ["is ", "5."]
