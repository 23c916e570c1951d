"""OpenTelemetry: the spans, the metrics and the completion event of a run.

The loop uses the providers that it receives, and never sets a global one. In an application they export to
a collector; here they store everything in memory. This needs the extra ``otel``.
"""

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from treadle import Loop, Telemetry, tool
from treadle.testing import call, calls

spans, metrics = InMemorySpanExporter(), InMemoryMetricReader()
tracer_provider = TracerProvider()
tracer_provider.add_span_processor(SimpleSpanProcessor(spans))
meter_provider = MeterProvider(metric_readers=[metrics])


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def model(messages: list[dict[str, Any]]) -> Any:
    """Call the tool, then answer; each response has the name of the model and its tokens."""
    is_done = messages[-1]["role"] == "tool"
    message = {"role": "assistant", "content": "5"} if is_done else calls(call("add", a=2, b=3))
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    return {"model": "script-1", "choices": [{"message": message}], "usage": usage}


loop = Loop(
    name="adder",
    tools=[add],
    telemetry=Telemetry(tracer_provider=tracer_provider, meter_provider=meter_provider),
)
loop.run_sync([{"role": "user", "content": "2 + 3?"}], model)

*children, agent = spans.get_finished_spans()  # in the order in which they ended
print(f"{agent.name} ({agent.kind.name.lower()})")
for span in children:
    print(f"  {span.name} ({span.kind.name.lower()})")
for event in agent.events:
    print(event.name, dict(event.attributes or {}))

collected: Any = metrics.get_metrics_data()
for resource in collected.resource_metrics:
    for metric in sorted(resource.scope_metrics[0].metrics, key=lambda metric: metric.name):
        counted = sum(getattr(point, "count", 1) for point in metric.data.data_points)
        print(f"{metric.name} ({metric.unit}): {counted}")

tracer_provider.shutdown()
meter_provider.shutdown()
