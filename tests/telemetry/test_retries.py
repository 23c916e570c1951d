"""Failed attempts are events of the span, and streamed responses have a time to first chunk."""

import time

import anyio
from opentelemetry.trace import StatusCode
from tests.samples import OverloadedError

from treadle import Chunk, tool
from treadle.stages import _attempts as calling
from treadle.stages import loop_decision
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER
from .watching import go


def broken():
    yield "Hel"
    raise ConnectionError("lost")


class TestModel:
    """A model call is one span, including its retries."""

    def test_each_failed_attempt_is_an_event(self, driver, watch):
        model = ScriptedLLM(OverloadedError("busy"), lambda messages: broken(), "Hi")
        go(driver, USER, model, retry_delay=0.002, **watch.options)
        chat = watch.one("chat")
        assert [event.name for event in chat.events] == ["treadle.model.retry"] * 2
        for n, (event, kind) in enumerate(
            zip(chat.events, ["OverloadedError", "ConnectionError"], strict=True), 1
        ):
            delay = event.attributes["treadle.delay"]
            assert dict(event.attributes) == {
                "treadle.iteration": 1,
                "error.type": kind,
                "treadle.attempt": n,
                "treadle.delay": delay,
            }
            assert 0 < delay <= 0.002 * 2 ** (n - 1)
            assert chat.start_time < event.timestamp < chat.end_time
        assert chat.status.status_code is StatusCode.UNSET

    def test_they_are_counted_by_error_type(self, driver, watch):
        model = ScriptedLLM(OverloadedError(), OverloadedError(), ConnectionError(), "Hi")
        go(driver, USER, model, retry_delay=0, **watch.options)
        counted = {p.attributes["error.type"]: p.value for p in watch.points(names.MODEL_RETRIES)}
        assert counted == {"OverloadedError": 2, "ConnectionError": 1}

    def test_the_last_error_is_that_of_the_span(self, driver, watch):
        model = ScriptedLLM(OverloadedError("busy"), ConnectionError("gone"))
        go(driver, USER, model, retry_delay=0, max_retries=1, **watch.options)
        chat = watch.one("chat")
        assert len(chat.events) == 1
        assert chat.attributes["error.type"] == "ConnectionError"
        assert chat.status.description == "ConnectionError"

    def test_without_chat_spans_they_are_events_of_the_run(self, driver, watch):
        model = ScriptedLLM(OverloadedError("busy"), "Hi")
        go(driver, USER, model, retry_delay=0, **watch.reporting(model_calls=False))
        assert watch.one("invoke_agent").events[0].name == "treadle.model.retry"
        assert watch.total(names.MODEL_RETRIES) == 1


class TestTool:
    """A tool call is one span, including its retries."""

    def test_each_failed_attempt_is_an_event(self, driver, watch, limit, monkeypatch):
        monkeypatch.setattr(calling, "RETRY_DELAY", 0.002)
        failures = iter([OSError("one"), None])

        @tool(retries=2, timeout=9)
        async def flaky():
            for failure in failures:
                if failure is None:
                    limit.strike()
                    await anyio.sleep(60)
                raise failure
            return "at last"

        model = ScriptedLLM(calls(call("flaky", "c1")), "done")
        options = {"middleware": [limit.middleware], **watch.options}
        result = go(driver, USER, model, tools=[flaky], **options)
        assert result.messages[2]["content"] == "at last"
        span = watch.one("execute_tool flaky")
        assert [(event.name, dict(event.attributes)) for event in span.events] == [
            (
                "treadle.tool.retry",
                {"error.type": kind, "treadle.attempt": n, "treadle.delay": delay},
            )
            for n, (kind, delay) in enumerate([("OSError", 0.002), ("timeout", 0.004)], 1)
        ]
        assert span.status.status_code is StatusCode.UNSET
        assert [point.count for point in watch.points(names.TOOL_DURATION)] == [1]


def slow_stream(before, after=0.0):
    def pieces(messages):
        time.sleep(before)
        yield "Hel"
        time.sleep(after)
        yield "lo"

    return pieces


class TestFirstChunk:
    """The time from the start of the last attempt to the first chunk."""

    def test_it_is_an_attribute_and_a_metric(self, driver, watch):
        go(driver, USER, slow_stream(0.05, 0.05), **watch.options)
        chat = watch.one("chat")
        took = chat.attributes["gen_ai.response.time_to_first_chunk"]
        assert 0.05 <= took <= (chat.end_time - chat.start_time) / 1e9 - 0.05
        assert chat.attributes["gen_ai.request.stream"] is True
        assert watch.total(names.FIRST_CHUNK_DURATION) == took

    def test_a_response_that_is_not_streamed_has_none(self, driver, watch):
        go(driver, USER, ScriptedLLM("Hello"), **watch.options)
        chat = watch.one("chat")
        assert names.TIME_TO_FIRST_CHUNK not in chat.attributes
        assert "gen_ai.request.stream" not in chat.attributes
        assert watch.points(names.FIRST_CHUNK_DURATION) == []

    def test_an_empty_stream_has_none(self, driver, watch):
        def empty(messages):
            yield from ()

        go(driver, USER, empty, stages=[loop_decision(max_blank_stops=0), ...], **watch.options)
        assert names.TIME_TO_FIRST_CHUNK not in watch.one("chat").attributes
        assert watch.points(names.FIRST_CHUNK_DURATION) == []

    def test_it_is_that_of_the_last_attempt(self, driver, watch):
        """Earlier attempts and the delay, of at least 0.15 s, are not part of it."""

        def first(messages):
            time.sleep(0.2)
            yield "Hel"
            time.sleep(0.2)
            raise ConnectionError("lost")

        model = ScriptedLLM(first, slow_stream(0.03))
        go(driver, USER, model, retry_delay=0.2, **watch.options)
        chat = watch.one("chat")
        took = chat.attributes[names.TIME_TO_FIRST_CHUNK]
        assert 0.03 <= took <= (chat.end_time - chat.start_time) / 1e9 - (0.2 + 0.2 + 0.15)
        assert [point.count for point in watch.points(names.FIRST_CHUNK_DURATION)] == [1]

    def test_a_whole_response_after_an_interrupted_stream_has_none(self, driver, watch):
        go(
            driver,
            USER,
            ScriptedLLM(lambda messages: broken(), "Hi"),
            retry_delay=0,
            **watch.options,
        )
        assert names.TIME_TO_FIRST_CHUNK not in watch.one("chat").attributes
        assert watch.points(names.FIRST_CHUNK_DURATION) == []

    def test_each_model_call_has_its_own(self, driver, watch):
        @tool
        def double(n: int):
            return n * 2

        model = ScriptedLLM([Chunk("a")], calls(call("double", n=1)))
        asked = ScriptedLLM(calls(call("double", n=1)), slow_stream(0.02), "x")
        assert go(driver, USER, asked, tools=[double], **watch.options).iterations == 2
        first, second = watch.named("chat")
        assert names.TIME_TO_FIRST_CHUNK not in first.attributes
        assert second.attributes[names.TIME_TO_FIRST_CHUNK] >= 0.02
        assert model.left == 2

    def test_it_is_that_of_the_response(self, driver, watch):
        result = go(driver, USER, slow_stream(0.02, 0.01), **watch.options)
        took = watch.one("chat").attributes[names.TIME_TO_FIRST_CHUNK]
        assert took == result.response.time_to_first_token
