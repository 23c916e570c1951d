"""Which providers a run uses, and that it creates nothing without them."""

import sys

from opentelemetry import metrics, trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.trace import NoOpTracerProvider
from tests.programs import run_program

from treadle import Loop, Telemetry
from treadle.telemetry import active_telemetry
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER, double


def test_without_an_sdk_there_is_no_telemetry():
    assert active_telemetry() is None
    none = Telemetry(tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider())
    assert active_telemetry(none) is None


def test_one_provider_with_an_sdk_is_enough(watch):
    meters = MeterProvider(shutdown_on_exit=False)
    for chosen in ({"tracer_provider": watch.tracers}, {"meter_provider": meters}):
        assert active_telemetry(Telemetry(**chosen)) is not None


def test_no_event_is_created_without_listeners():
    """Not even an Emit effect: a middleware sees all effects."""
    from treadle.effects import Emit, map_effects

    seen = []

    def middleware(steps):
        return map_effects(steps, lambda effect: seen.append(effect) or effect)

    model = ScriptedLLM(calls(call("double", n=1)), "done")
    Loop.run_sync(USER, model, tools=[double], middleware=[middleware])
    assert seen
    assert not any(isinstance(effect, Emit) for effect in seen)


def test_the_global_providers_are_not_changed(watch):
    before = trace.get_tracer_provider(), metrics.get_meter_provider()
    Loop.run_sync(USER, lambda m: "x", **watch.options)
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


def test_global_providers_are_used_if_the_application_sets_them():
    """Even after the loop was created; with a logger provider there is a log record as well."""
    done = run_program([sys.executable, "-W", "ignore", "-c", GLOBAL])
    assert done.returncode == 0, done.stderr
