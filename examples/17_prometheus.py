"""Metrics for Prometheus: run a loop, and print the page that Prometheus scrapes.

An application serves the page with one line, ``start_http_server(9464)`` of ``prometheus_client``. This
example prints it. It needs the extra ``prometheus``; docs/guide-dashboards.md has the next steps.
"""

from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from treadle import Limits, Loop, Response, Telemetry, Usage, tool
from treadle.testing import call, calls


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


def price(answer: Response) -> float:
    """The cost of a response, in US dollars."""
    return 0.0001 * (answer.usage or Usage()).total_tokens


registry = CollectorRegistry()
meters = MeterProvider([PrometheusMetricReader(scope_info_enabled=False, registry=registry)])
loop = Loop(
    name="adder",
    tools=[add],
    telemetry=Telemetry(meter_provider=meters),
    limits=Limits(cost_of=price),
)
loop.run_sync([{"role": "user", "content": "2 + 3?"}], model)

page = generate_latest(registry).decode()
for line in sorted(page.splitlines()):
    name = line.partition("{")[0]
    if name.endswith(("_count", "_usage_sum", "_total", "_active")):  # durations vary
        print(line)
meters.shutdown()
