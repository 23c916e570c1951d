"""OpenTelemetry's SDK in memory, given to runs as providers; nothing global is touched."""

import anyio
import pytest

from treadle import Loop, tool
from treadle.testing import ScriptedLLM

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from .watching import DRIVERS, Watch


@pytest.fixture(params=DRIVERS)
def driver(request):
    return request.param


@pytest.fixture
def watch():
    return Watch()


class Telemetry:
    """Providers for a run, and what it reported to them."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
        self.started = []
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.options = {"tracer_provider": self.tracers, "meter_provider": self.meters}

    @property
    def spans(self):
        """The spans that have ended, by their start; those that started at once, by their end."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time)

    def named(self, name):
        return [span for span in self.spans if span.name == name]

    def one(self, name):
        (span,) = self.named(name)
        return span

    def points(self, name):
        """The data points of a metric, with the metric."""
        data = self.reader.get_metrics_data()
        if data is None:
            return None, []
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        return metric, list(metric.data.data_points)
        return None, []


@pytest.fixture(autouse=True)
def nothing_goes_wrong_unseen(caplog):
    """Telemetry that fails, and a context that cannot be left, are only logged: a run goes on all the same."""
    yield
    for record in caplog.get_records("call"):
        assert not record.name.startswith(("treadle.telemetry", "opentelemetry")), record


@pytest.fixture
def telemetry():
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


@tool
def double(n: int):
    return n * 2


@tool
def fail():
    raise ValueError("x" * 5000)


@pytest.fixture(params=["sync", "asyncio", "trio"])
def run(request, telemetry):
    """Run a script, or a model, under each driver, with tools that work and fail."""

    def run(*script, **options):
        messages = [{"role": "user", "content": "Hi"}]
        options = {"tools": [double, fail], "retry_delay": 0, **telemetry.options, **options}
        model = script[0] if callable(script[0]) else ScriptedLLM(*script)
        if request.param == "sync":
            return Loop.run_sync(messages, model, **options)
        return anyio.run(lambda: Loop.run(messages, model, **options), backend=request.param)

    return run
