"""Calls that were cancelled or retried, and telemetry that fails: everything else is reported."""

import anyio
import pytest
from opentelemetry.sdk.trace import SpanProcessor

from treadle import Loop, tool
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER, double
from .watching import go


class TestMeasured:
    """Calls that the end of a run cancels are in the metrics: they may be the ones that hang."""

    def test_a_tool_that_hangs_until_the_deadline(self, driver, watch, limit):
        @tool
        async def hang():
            limit.strike()
            await anyio.sleep(60)

        options = {"max_seconds": 9, "middleware": [limit.middleware], **watch.options}
        go(driver, USER, ScriptedLLM(calls(call("hang"))), tools=[hang], **options)
        (point,) = watch.points(names.TOOL_DURATION)
        assert dict(point.attributes) == {
            "gen_ai.tool.name": "hang",
            "gen_ai.tool.type": "function",
            "error.type": "deadline_exceeded",
        }
        span = watch.one("execute_tool hang")
        assert span.attributes["error.type"] == "deadline_exceeded"
        assert span.end_time == watch.one("invoke_agent").end_time
        assert point.sum == pytest.approx((span.end_time - span.start_time) / 1e9, abs=1e-5)
        assert watch.total(names.AGENT_TOOL_CALLS) == 1

    def test_a_model_that_hangs_until_the_deadline(self, driver, watch, limit):
        async def model(messages):
            limit.strike()
            await anyio.sleep(60)

        options = {"max_seconds": 9, "middleware": [limit.middleware], **watch.options}
        go(driver, USER, model, **options)
        (point,) = watch.points(names.OPERATION_DURATION)
        assert point.attributes[names.ERROR_TYPE] == "deadline_exceeded"
        assert point.count == 1
        assert watch.points(names.TOKEN_USAGE) == []


class TestRetried:
    """A retried call of a subagent is another run, with its own span and counts."""

    def test_each_attempt_has_its_own_counts(self, driver, watch, limit):
        attempts = []

        @tool
        async def rest():
            attempts.append(1)
            if len(attempts) == 1:
                limit.strike()
                await anyio.sleep(60)

        kid = Loop(tools=[rest], name="kid")
        model = ScriptedLLM(calls(call("rest", "i")), calls(call("rest", "i")), "in")
        child = kid.as_tool("helper", "Helps.", model, timeout=9, retries=1)
        result = go(
            driver,
            USER,
            ScriptedLLM(calls(call("helper", "k1", task="a")), "out"),
            tools=[child],
            name="bot",
            middleware=[limit.middleware],
            **watch.options,
        )
        assert result.messages[-2]["content"] == "in"
        watch.check_whole(runs=1)
        ends = [kid.attributes[names.STOP_REASON] for kid in watch.named("invoke_agent kid")]
        assert ends == ["cancelled", "answered"]
        assert watch.total(names.AGENT_INFERENCE_CALLS, {names.AGENT_NAME: "kid"}) == 1 + 2
        assert watch.total(names.AGENT_TOOL_CALLS, {names.AGENT_NAME: "kid"}) == 1 + 1


class BrokenProcessor(SpanProcessor):
    def on_start(self, span, parent_context=None):
        raise ValueError("a failing processor")

    def on_end(self, span):
        raise ValueError("a failing processor")


class TestBroken:
    """Failing telemetry is logged, and the run continues."""

    @pytest.fixture(autouse=True)
    def no_errors_are_logged(self):
        """Overrides the fixture of conftest: the test expects a logged error."""

    def test_a_run_continues_if_a_span_processor_raises(self, driver, watch, caplog):
        watch.tracers.add_span_processor(BrokenProcessor())
        model = ScriptedLLM(calls(call("double", n=1)), "done")
        result = go(driver, USER, model, tools=[double], **watch.options)
        assert result.unwrap().content == "done"
        assert result.messages[2]["content"] == "2"
        assert {record.message for record in caplog.records} == {
            "telemetry failed; the run continues"
        }
