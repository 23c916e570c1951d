"""The completion event as a log record: on every exit, with the trace context and identity of its run."""

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.trace import StatusCode

from treadle import Loop, Telemetry
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import EXITS, ONE, USER, double, end, go
from .watching import Watch

GOOD = {"answered", "output", "finished", "paused"}


class TestLogRecord:
    """One for each run, if there is a logger provider."""

    @pytest.mark.parametrize("stop_reason", EXITS)
    def test_on_every_exit(self, driver, stop_reason):
        watch = Watch()
        result = end(driver, stop_reason, **watch.options)
        assert result.stop_reason == stop_reason
        (record,) = watch.logs()
        assert record.event_name == record.body == "treadle.loop.complete"
        assert record.severity_number is SeverityNumber.INFO
        facts = {
            "treadle.total_iterations": result.iterations,
            "treadle.tool_calls_count": result.tool_calls_count,
            "treadle.stop_reason": stop_reason,
        }
        whose = {"gen_ai.agent.name": "bot", "treadle.run.id": result.run.run_id}
        assert dict(record.attributes) == {**facts, **whose}
        agent = watch.one("invoke_agent bot")
        assert (record.trace_id, record.span_id) == (agent.context.trace_id, agent.context.span_id)
        assert record.timestamp == agent.end_time
        (reported,) = [event for event in agent.events if event.name == names.COMPLETE]
        assert dict(reported.attributes) == facts
        assert reported.timestamp == agent.end_time
        error_type = None if stop_reason in GOOD else stop_reason
        assert agent.attributes.get("error.type") == error_type
        assert (agent.status.status_code is StatusCode.ERROR) == (error_type is not None)
        (point,) = watch.points(names.ITERATIONS_METRIC)
        assert (point.sum, point.count) == (result.iterations, 1)
        assert point.attributes == {"treadle.stop_reason": stop_reason, "gen_ai.agent.name": "bot"}

    def test_of_a_subagent(self, driver):
        watch = Watch()
        child = Loop(name="kid").as_tool("helper", "", ScriptedLLM("in"))
        model = ScriptedLLM(calls(call("helper", task="a")), "out")
        go(driver, USER, model, tools=[child], name="bot", **watch.options)
        inner, outer = watch.logs()
        assert inner.span_id == watch.one("invoke_agent kid").context.span_id
        assert outer.span_id == watch.one("invoke_agent bot").context.span_id
        assert inner.trace_id == outer.trace_id

    def test_with_a_logger_provider_only(self, driver):
        watch = Watch()
        go(
            driver,
            USER,
            ScriptedLLM(*ONE, "done"),
            tools=[double],
            name="bot",
            telemetry=Telemetry(logger_provider=watch.loggers),
        )
        (record,) = watch.logs()
        assert record.attributes["treadle.total_iterations"] == 2
        assert watch.spans == []
        assert list(watch.metrics()) == []

    def test_has_the_trace_of_the_caller_with_a_logger_provider_only(self, driver):
        watch = Watch()
        with watch.tracers.get_tracer("mine").start_as_current_span("mine") as mine:
            go(
                driver,
                USER,
                ScriptedLLM("done"),
                telemetry=Telemetry(logger_provider=watch.loggers),
            )
        (record,) = watch.logs()
        assert record.trace_id == mine.get_span_context().trace_id

    def test_none_without_a_logger_provider(self, driver):
        watch = Watch()
        end(driver, "answered", telemetry=Telemetry(tracer_provider=watch.tracers))
        assert watch.logs() == []
        assert len(watch.spans) == 2

    def test_the_span_event_is_kept_if_the_span_drops_events(self, driver):
        """An SDK keeps the latest events, 128 by default."""
        watch = Watch()

        def model(messages):
            n = len(messages)
            return calls(call("double", f"c{n}", n=n)) if n < 300 else "done"

        go(driver, USER, model, tools=[double], max_iterations=200, **watch.options).unwrap()
        agent = watch.one("invoke_agent")
        assert agent.dropped_events > 0
        assert agent.events[-1].name == names.COMPLETE
        assert agent.events[-1].attributes[names.TOTAL_ITERATIONS] > 140
