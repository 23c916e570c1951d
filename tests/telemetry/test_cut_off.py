"""What was cut off, tried again, or could not be told is measured and reported all the same."""

import anyio
import pytest
from opentelemetry.sdk.trace import SpanProcessor

from treadle import Loop, tool
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .watching import go

USER = [{"role": "user", "content": "Hi"}]


@tool
def double(n: int):
    return n * 2


@tool
async def hang():
    await anyio.sleep(60)


class TestMeasured:
    """What a run's end cut off is in the metrics too: it is what hangs that has to be seen there."""

    def test_a_tool_that_hangs_until_the_time_is_up(self, driver, watch):
        go(
            driver,
            USER,
            ScriptedLLM(calls(call("hang"))),
            tools=[hang],
            max_seconds=0.4,
            **watch.options,
        )
        (point,) = watch.points(names.TOOL_DURATION)
        assert dict(point.attributes) == {
            "gen_ai.tool.name": "hang",
            "gen_ai.tool.type": "function",
            "error.type": "deadline_exceeded",
        }
        span = watch.one("execute_tool hang")
        assert point.sum == pytest.approx((span.end_time - span.start_time) / 1e9, abs=1e-5)
        assert watch.total(names.AGENT_TOOL_CALLS) == 1

    def test_a_model_that_hangs_until_the_time_is_up(self, driver, watch):
        async def model(messages):
            await anyio.sleep(60)

        go(driver, USER, model, max_seconds=0.4, **watch.options)
        (point,) = watch.points(names.OPERATION_DURATION)
        assert point.attributes[names.ERROR_TYPE] == "deadline_exceeded"
        assert point.count == 1
        assert watch.points(names.TOKEN_USAGE) == []

    def test_the_calls_of_the_metric_are_those_of_the_span(self, driver, watch):
        batch = calls(call("hang", "c1"), call("double", "c2", n=1))
        go(
            driver,
            USER,
            ScriptedLLM(batch),
            tools=[hang, double],
            max_seconds=0.15,
            **watch.options,
        )
        assert watch.one("invoke_agent").attributes[names.TOOL_CALLS_COUNT] == 2
        assert watch.total(names.AGENT_TOOL_CALLS) == 2


class TestTriedAgain:
    """A call of a loop that is tried again is another run, with a span and numbers of its own."""

    def test_each_has_its_own_numbers(self, driver, watch):
        waits = iter([60, 0])

        @tool
        async def rest():
            await anyio.sleep(next(waits))

        kid = Loop(tools=[rest], name="kid")
        model = ScriptedLLM(calls(call("rest", "i")), calls(call("rest", "i")), "in")
        child = kid.as_tool("helper", "Helps.", model, timeout=0.3, retries=1)
        result = go(
            driver,
            USER,
            ScriptedLLM(calls(call("helper", "k1", task="a")), "out"),
            tools=[child],
            name="bot",
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
        raise ValueError("a processor of somebody's")

    def on_end(self, span):
        raise ValueError("a processor of somebody's")


class TestBroken:
    """Telemetry that fails is reported to the log, and the run goes on."""

    @pytest.fixture(autouse=True)
    def nothing_goes_wrong_unseen(self):
        """It is what is looked for here."""

    def test_a_run_goes_on_where_a_processor_raises(self, driver, watch, caplog):
        watch.tracers.add_span_processor(BrokenProcessor())
        model = ScriptedLLM(calls(call("double", n=1)), "done")
        result = go(driver, USER, model, tools=[double], **watch.options)
        assert result.unwrap().content == "done"
        assert result.messages[2]["content"] == "2"
        assert {record.message for record in caplog.records} == {
            "telemetry failed; the run goes on"
        }
