"""The current span in all user code of a run, and outside of it."""

import time

import anyio
import pytest
from opentelemetry import trace

from treadle import Loop, RunHandle, stage, tool
from treadle.effects import Call, Mode
from treadle.events import TextDelta
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER
from .watching import go


def here(seen, place):
    """Note the current span."""
    span = trace.get_current_span()
    seen.append((place, getattr(span, "name", None)))


def stages_that_note(seen, who):
    """Stages of every form that note the current span."""

    @stage
    def plain(ctx):
        here(seen, f"{who} plain")
        return ctx

    @stage
    def steps(ctx):
        here(seen, f"{who} steps")
        yield Call(here, seen, f"{who} call", mode=Mode.THREAD)
        here(seen, f"{who} steps")
        return ctx

    @stage
    async def later(ctx):
        here(seen, f"{who} later")
        await anyio.sleep(0)
        here(seen, f"{who} later")
        return ctx

    return [plain, steps, later, *default_stages()]


def reported(seen):
    return {(place, name) for place, name in seen}


class TestStages:
    """In a stage of any form, the span of the run is current."""

    def test_of_the_run(self, driver, watch):
        seen = []
        go(
            driver,
            USER,
            ScriptedLLM("x"),
            stages=stages_that_note(seen, "bot"),
            name="bot",
            **watch.options,
        )
        places = ("plain", "steps", "call", "later")
        assert reported(seen) == {(f"bot {place}", "invoke_agent bot") for place in places}
        assert len(seen) == 6

    @pytest.mark.parametrize("listens", [False, True])
    @pytest.mark.parametrize("count", [1, 2])
    def test_of_a_subagent_with_and_without_listeners(self, driver, watch, listens, count):
        """After it, the span of the parent run is current again."""
        seen = []
        options = {"on_event": lambda event: here(seen, "observer")} if listens else {}
        kid = Loop(stages=stages_that_note(seen, "kid"), name="kid", **options)
        child = kid.as_tool("helper", "Helps.", lambda messages: "in")
        asked = calls(*(call("helper", f"k{n}", task=f"{n}") for n in range(count)))
        go(
            driver, USER, ScriptedLLM(asked, "out"), tools=[child], name="bot",
            stages=stages_that_note(seen, "bot"), **watch.options,
        )  # fmt: skip
        places = ("plain", "steps", "call", "later")
        wanted = {
            (f"{who} {place}", f"invoke_agent {who}") for who in ("bot", "kid") for place in places
        }
        assert reported(seen) == wanted | ({("observer", None)} if listens else set())

    def test_with_a_time_limit_and_a_handle(self, driver, watch):
        seen = []
        go(
            driver, USER, ScriptedLLM("x"), stages=stages_that_note(seen, "bot"), name="bot",
            max_seconds=60, handle=RunHandle(), **watch.options,
        )  # fmt: skip
        assert {name for _, name in seen} == {"invoke_agent bot"}


class TestTools:
    """In a tool, the span of its call is current: in a thread, in a task, with a time limit."""

    def test_each_of_several(self, driver, watch):
        seen = []

        def note(place, n):
            span = trace.get_current_span()
            seen.append((place, span.name, span.attributes["gen_ai.tool.call.id"][-1] == str(n)))

        @tool
        def sync(n: int):
            note("sync", n)

        @tool
        async def later(n: int):
            await anyio.sleep(0.001)
            note("later", n)

        @tool(timeout=10)
        async def limited(n: int):
            await anyio.sleep(0.001)
            note("limited", n)

        @tool
        def coroutine(n: int):
            return later.fn(n)

        made = [sync, later, limited, coroutine]
        batch = calls(*(call(t.name, f"{t.name}{n}", n=n) for n in range(2) for t in made))
        go(driver, USER, ScriptedLLM(batch, "x"), tools=made, max_seconds=60, **watch.options)
        assert sorted(seen) == sorted(
            [("sync", "execute_tool sync", True), ("later", "execute_tool later", True)] * 2
            + [("limited", "execute_tool limited", True)] * 2
            + [("later", "execute_tool coroutine", True)] * 2
        )

    def test_a_call_id_that_looks_like_one_of_a_subagent(self, driver, watch):
        """Models make up ids: one may look like the key of a subagent's call."""
        seen = []

        @tool
        def work(who: str):
            here(seen, who)

        kid = Loop(tools=[work], name="kid")
        script = ScriptedLLM(calls(call("work", "x", who="kid")), "in")
        child = kid.as_tool("helper", "Helps.", script)
        batch = calls(call("helper", "k", task="a"), call("work", "k/x", who="bot"))
        go(
            driver,
            USER,
            ScriptedLLM(batch, "out"),
            tools=[child, work],
            name="bot",
            **watch.options,
        )
        by_parent = {}
        for span in watch.named("execute_tool work"):
            by_parent[watch.names_around(span)[1]] = span
        assert set(by_parent) == {"invoke_agent kid", "invoke_agent bot"}
        assert sorted(seen) == [("bot", "execute_tool work"), ("kid", "execute_tool work")]


class TestModels:
    """In a model, the chat span is current: whole or streamed, sync or async."""

    def streams(self, seen):
        def pieces(messages):
            for piece in "abc":
                here(seen, "model")
                yield piece

        async def pieces_later(messages):
            for piece in "abc":
                here(seen, "model")
                await anyio.sleep(0)
                here(seen, "model")
                yield piece

        def whole(messages):
            here(seen, "model")
            return "abc"

        async def whole_later(messages):
            await anyio.sleep(0)
            here(seen, "model")
            return "abc"

        return [pieces, pieces_later, whole, whole_later]

    @pytest.mark.parametrize("bound", [{}, {"max_seconds": 60}])
    @pytest.mark.parametrize("form", range(4))
    def test_the_chat_span_is_current_in_every_form_of_model(self, driver, watch, form, bound):
        seen = []
        result = go(driver, USER, self.streams(seen)[form], **bound, **watch.options)
        assert result.unwrap().content == "abc"
        assert {name for _, name in seen} == {"chat"}

    @pytest.mark.parametrize("form", range(4))
    def test_without_chat_spans_the_span_of_the_run_is_current(self, driver, watch, form):
        seen = []
        go(driver, USER, self.streams(seen)[form], **watch.reporting(model_calls=False))
        assert {name for _, name in seen} == {"invoke_agent"}


class TestOutside:
    """In other code, no span of a run is current."""

    def test_not_in_listeners(self, driver, watch):
        seen = []

        async def later(event):
            await anyio.sleep(0)
            here(seen, "later")

        @tool
        def work():
            return 1

        kid = Loop(tools=[work], on_event=[lambda e: here(seen, "kid"), later])
        child = kid.as_tool("helper", "Helps.", ScriptedLLM(calls(call("work")), "in"))
        go(
            driver, USER, ScriptedLLM(calls(call("helper", task="a")), "out"), tools=[child],
            on_event=[lambda e: here(seen, "bot"), later], on_iteration=lambda c: here(seen, "bot"),
            on_complete=lambda c: here(seen, "bot"), **watch.options,
        )  # fmt: skip
        assert len(seen) > 30
        assert {name for _, name in seen} == {None}

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_not_between_the_events_of_a_stream_or_after_it(self, watch, backend):
        seen = []

        @tool
        async def work():
            await anyio.sleep(0)

        async def main():
            model = ScriptedLLM(calls(call("work")), ["a", "b"])
            async with Loop.stream(USER, model, tools=[work], **watch.options) as events:
                async for _ in events:
                    here(seen, "between")
            here(seen, "after")

        anyio.run(main, backend=backend)
        assert len(seen) > 8
        assert {name for _, name in seen} == {None}

    def test_the_current_span_of_the_caller_is_unchanged(self, driver, watch):
        seen = []
        with watch.tracers.get_tracer("mine").start_as_current_span("mine"):
            go(driver, USER, lambda m: "x", on_event=lambda e: here(seen, "bot"), **watch.options)
            here(seen, "after")
        assert {name for _, name in seen} == {"mine"}
        assert watch.names_around(watch.one("chat")) == ("chat", "invoke_agent", "mine")


@pytest.mark.parametrize("driver", ["sync", "asyncio", "trio"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("ends", ["well", "midway"])
def test_a_streaming_model_may_keep_a_span_open_between_chunks(
    watch, driver, is_async, ends, caplog
):
    """Even if each chunk is read in another thread or task; no other code finds the span."""
    mine = watch.tracers.get_tracer("mine")
    handle, seen = RunHandle(), []

    def pieces(messages):
        with mine.start_as_current_span("mine"):
            yield from "abc"

    async def pieces_later(messages):
        with mine.start_as_current_span("mine"):
            for piece in "abc":
                await anyio.sleep(0)
                yield piece

    def on_event(event):
        here(seen, "bot")
        if ends == "midway" and isinstance(event, TextDelta):
            handle.cancel()

    model = pieces_later if is_async else pieces
    go(driver, USER, model, handle=handle, on_event=on_event, **watch.options)
    deadline = time.monotonic() + 30
    while not watch.named("mine") and time.monotonic() < deadline:
        time.sleep(0.001)  # an abandoned stream is closed a moment later, in its own thread
    assert watch.names_around(watch.one("mine")) == ("mine", "chat", "invoke_agent")
    assert {name for _, name in seen} == {None}
    assert "detach" not in caplog.text
