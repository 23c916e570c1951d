"""Metrics for Prometheus: a loop that runs, and the page that a Prometheus would scrape.

In an application the page is served for as long as it runs, by one line: ``start_http_server(9464)`` of
``prometheus_client``. Here it is printed. This needs the extra ``prometheus``; the guide to dashboards goes on.
"""

from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from treadle import Loop, Response, tool
from treadle.testing import call, calls


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def model(messages: list[dict[str, Any]]) -> Any:
    """Call the tool, then answer, as a completion that tells its model and its tokens."""
    is_done = messages[-1]["role"] == "tool"
    message = {"role": "assistant", "content": "5"} if is_done else calls(call("add", a=2, b=3))
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    return {"model": "script-1", "choices": [{"message": message}], "usage": usage}


def price(answer: Response) -> float:
    """What an answer costs, in US dollars."""
    return 0.0001 * answer.usage.total_tokens


registry = CollectorRegistry()
meters = MeterProvider([PrometheusMetricReader(scope_info_enabled=False, registry=registry)])
loop = Loop(name="adder", tools=[add], meter_provider=meters, cost_of=price)
loop.run_sync([{"role": "user", "content": "2 + 3?"}], model)

page = generate_latest(registry).decode()
for line in sorted(page.splitlines()):
    name = line.partition("{")[0]
    if name.endswith(("_count", "_usage_sum", "_total", "_active")):  # times differ from run to run
        print(line)
meters.shutdown()
