"""OpenTelemetry across workers: a run is one trace, and metrics count each call once, also if it is replayed."""

import pytest
from opentelemetry import trace
from temporalio.client import Client
from temporalio.contrib.opentelemetry import TracingInterceptor
from tests.telemetry.watching import Watch

from treadle import Loop, tool
from treadle.telemetry.names import OPERATION_NAME
from treadle.testing import ScriptedLLM, call, calls

from . import running


@pytest.fixture
def watch():
    return Watch()


def traced(server, watch, loop, *, of_temporal, **worker):
    """Run a loop inside a span of a program."""

    async def start(_):
        tracer = watch.tracers.get_tracer("program")
        interceptors = [TracingInterceptor(tracer)] if of_temporal else []
        client = await Client.connect(server.address, interceptors=interceptors)
        with tracer.start_as_current_span("program"):
            async with running.serving(client, loop, **worker) as queue:
                run = await running.started(client, loop, queue)
                return await run.result()

    return running.run(server, start)


def of_kind(watch, operation):
    return [one for one in watch.spans if one.attributes.get(OPERATION_NAME) == operation]


def counted(point):
    return point.count if hasattr(point, "count") else point.value


def loop_of(watch, **options):
    @tool
    def work(n: int) -> int:
        """Work."""
        tracer = watch.tracers.get_tracer("tool")
        with tracer.start_as_current_span(f"inside {n}"):
            return n

    model = ScriptedLLM(
        calls(call("work", "c1", n=1), call("work", "c2", n=2)),
        calls(call("work", "c3", n=3)),
        "Done.",
    )
    return Loop(llm_send_fn=model, tools=[work], name="worker", **watch.options, **options)


@pytest.mark.parametrize("cached", [0, 100], ids=["replayed", "remembered"])
def test_a_run_has_the_spans_and_metrics_of_one_run(cached, watch, temporal_server):
    loop = loop_of(watch)
    result = traced(temporal_server, watch, loop, of_temporal=True, max_cached_workflows=cached)
    assert result.output == "Done."
    agent = watch.one("invoke_agent worker")
    assert len(of_kind(watch, "chat")) == 3
    tools = of_kind(watch, "execute_tool")
    assert len(tools) == 3
    for span in tools:
        assert watch.names_around(span)[:2] == ("execute_tool work", "invoke_agent worker")
    program = watch.one("program")
    assert {span.context.trace_id for span in watch.spans} == {program.context.trace_id}
    assert agent.status.status_code is not trace.StatusCode.ERROR
    points = {metric.name: metric.data.data_points for metric in watch.metrics()}
    assert {name: sum(map(counted, found)) for name, found in points.items()} == {
        "gen_ai.client.operation.duration": 3,
        "gen_ai.execute_tool.duration": 3,
        "gen_ai.invoke_agent.duration": 1,
        "gen_ai.invoke_agent.inference_calls": 1,
        "gen_ai.invoke_agent.tool_calls": 1,
        "treadle.invoke_agent.active": 0,
        "treadle.invoke_agent.iterations": 1,
    }


def test_the_spans_of_a_tool_are_inside_those_of_its_activity(watch, temporal_server):
    traced(temporal_server, watch, loop_of(watch), of_temporal=True)
    assert watch.names_around(watch.one("inside 3")) == (
        "inside 3",
        "RunActivity:treadle.execute_tool",
        "StartActivity:treadle.execute_tool",
        "StartWorkflow:treadle.run",
        "program",
    )
    assert watch.names_around(watch.one("invoke_agent worker"))[1:] == (
        "StartWorkflow:treadle.run",
        "program",
    )


def test_without_the_interceptor_of_temporal_a_run_has_a_trace_of_its_own(watch, temporal_server):
    traced(temporal_server, watch, loop_of(watch), of_temporal=False)
    agent = watch.one("invoke_agent worker")
    assert agent.parent is None
    assert len(of_kind(watch, "execute_tool")) == 3
