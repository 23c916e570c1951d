"""The histogram, the completion event, and silence where nobody listens."""

import subprocess
import sys

import anyio
import pytest
from opentelemetry import metrics, trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.trace import NoOpTracerProvider

from treadle import Loop, tool
from treadle.telemetry import active_telemetry, names
from treadle.testing import ScriptedLLM, call, calls

USER = [{"role": "user", "content": "Hi"}]


@tool
def double(n: int):
    return n * 2


@tool(requires_approval=True)
def sign(): ...


def complete(telemetry):
    return [
        event
        for span in telemetry.spans
        for event in span.events
        if event.name == "treadle.loop.complete"
    ]


def broken(ctx):
    raise ValueError("stage")


EXITS = {
    "answered": (["done"], {}),
    "output": ([calls(call("double", n=1))], {"output": "double"}),
    "max_iterations_reached": ([calls(call("double", n=1))], {"max_iterations": 1}),
    "budget_exhausted": ([calls(call("double", n=1))], {"max_tool_calls": 0}),
    "deadline_exceeded": ([calls(call("double", n=1))], {"max_seconds": 0}),
    "circuit_broken": ([calls(call("nope"))], {"breaker_threshold": 1}),
    "loop_detected": ([calls(call("double", n=1))], {"loop_threshold": 1}),
    "llm_error": ([TypeError()], {}),
    "paused": ([calls(call("sign"))], {}),
    "finished": (
        [calls(call("double", n=1)), "so far"],
        {"max_iterations": 1, "on_limit": "finish"},
    ),
    "empty_response": ([""], {"max_blank_stops": 0}),
    "pipeline_failed": (["x"], {"stages": [broken]}),
}


@pytest.mark.parametrize("stop_reason", EXITS)
def test_every_exit_is_told_once_with_its_facts(telemetry, stop_reason):
    script, options = EXITS[stop_reason]
    result = Loop.run_sync(
        USER, ScriptedLLM(*script), tools=[double, sign], name="bot", **telemetry.options, **options
    )
    assert result.stop_reason == stop_reason
    facts = {
        "treadle.total_iterations": result.iterations,
        "treadle.tool_calls_count": result.tool_calls_count,
        "treadle.stop_reason": stop_reason,
    }
    (event,) = complete(telemetry)
    assert event.attributes == facts
    metric, (point,) = telemetry.points(names.ITERATIONS_METRIC)
    assert metric.unit == "{iteration}"
    assert (point.sum, point.count) == (result.iterations, 1)
    assert point.attributes == {"treadle.stop_reason": stop_reason, "gen_ai.agent.name": "bot"}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_run_is_told_too(telemetry, backend):
    @tool
    async def hang():
        scope.cancel()
        await anyio.sleep(10)

    async def main():
        nonlocal scope
        with anyio.CancelScope() as scope:
            model = ScriptedLLM(calls(call("hang")))
            await Loop.run(USER, model, tools=[hang], **telemetry.options)

    scope = None
    anyio.run(main, backend=backend)
    (event,) = complete(telemetry)
    assert event.attributes["treadle.stop_reason"] == "cancelled"
    assert {span.name for span in telemetry.spans} == {"invoke_agent", "chat", "execute_tool hang"}
    assert telemetry.one("execute_tool hang").attributes["error.type"] == "cancelled"
    assert telemetry.points(names.ITERATIONS_METRIC)[1][0].count == 1


def test_an_interrupted_run_is_told_too(telemetry):
    def interrupt(messages):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Loop.run_sync(USER, interrupt, **telemetry.options)
    assert complete(telemetry)[0].attributes["treadle.stop_reason"] == "cancelled"


def test_a_stream_that_is_left_early_is_told_too(telemetry):
    async def main():
        model = ScriptedLLM(*[calls(call("double", n=n)) for n in range(9)])
        async with Loop.stream(USER, model, tools=[double], **telemetry.options) as events:
            async for _ in events:
                break

    anyio.run(main)
    assert len(complete(telemetry)) == 1
    assert len(telemetry.named("invoke_agent")) == 1


def test_the_buckets_are_finer_where_runs_end(telemetry):
    for n in (0, 2):
        script = [calls(call("double", n=k)) for k in range(n)]
        Loop.run_sync(USER, ScriptedLLM(*script, "done"), tools=[double], **telemetry.options)
    _, (point,) = telemetry.points(names.ITERATIONS_METRIC)
    assert tuple(point.explicit_bounds) == names.ITERATIONS_BUCKETS
    assert tuple(point.bucket_counts[:4]) == (1, 0, 1, 0)
    assert (point.min, point.max) == (1, 3)


def test_the_histogram_works_without_a_tracer_and_the_other_way_round(telemetry):
    Loop.run_sync(USER, lambda m: "x", meter_provider=telemetry.meters)
    assert telemetry.spans == []
    assert telemetry.points(names.ITERATIONS_METRIC)[1][0].count == 1
    Loop.run_sync(USER, lambda m: "x", tracer_provider=telemetry.tracers)
    assert len(telemetry.spans) == 2
    assert telemetry.points(names.ITERATIONS_METRIC)[1][0].count == 1


def test_without_an_sdk_there_is_no_telemetry():
    assert active_telemetry() is None
    assert active_telemetry(NoOpTracerProvider(), NoOpMeterProvider()) is None


def test_with_one_of_them_there_is(telemetry):
    assert active_telemetry(telemetry.tracers) is not None
    assert active_telemetry(None, MeterProvider(shutdown_on_exit=False)) is not None


def test_where_nobody_listens_no_event_is_made():
    """Not even the effect of one: a middleware sees every effect there is."""
    from treadle.effects import Emit, map_effects

    seen = []

    def middleware(steps):
        return map_effects(steps, lambda effect: seen.append(effect) or effect)

    model = ScriptedLLM(calls(call("double", n=1)), "done")
    Loop.run_sync(USER, model, tools=[double], middleware=[middleware])
    assert seen
    assert not any(isinstance(effect, Emit) for effect in seen)


def test_the_global_providers_are_left_alone(telemetry):
    before = trace.get_tracer_provider(), metrics.get_meter_provider()
    Loop.run_sync(USER, lambda m: "x", **telemetry.options)
    assert (trace.get_tracer_provider(), metrics.get_meter_provider()) == before


GLOBAL = """
from opentelemetry import _logs, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from treadle import Loop

loop = Loop()
loop.run_sync([{"role": "user", "content": "Hi"}], lambda m: "x")
spans, logs = InMemorySpanExporter(), InMemoryLogRecordExporter()
tracers, loggers = TracerProvider(), LoggerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
trace.set_tracer_provider(tracers)
_logs.set_logger_provider(loggers)
loop.run_sync([{"role": "user", "content": "Hi"}], lambda m: "x")
assert [span.name for span in spans.get_finished_spans()] == ["chat", "invoke_agent"]
(data,) = logs.get_finished_logs()
record = data.log_record
assert record.event_name == "treadle.loop.complete"
assert record.attributes["treadle.stop_reason"] == "answered"
assert record.span_id == spans.get_finished_spans()[1].context.span_id
"""


def test_global_providers_are_used_where_the_application_has_set_them():
    """Even after the loop was made; the completion event is a log record too, where there are logs."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GLOBAL], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
