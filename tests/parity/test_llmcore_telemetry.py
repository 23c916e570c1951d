"""Parity with LlmCore: the telemetry and the events of a run."""

import functools

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.samples import add

from treadle import Limits, Loop, RunHandle, Telemetry, default_stages, tool
from treadle.events import IterationFinished, RunFinished, ToolFinished, ToolStarted
from treadle.stages import loop_decision
from treadle.testing import ScriptedLLM, call, calls, check_history


class Spans:
    """Spans in memory, from a separate provider for each test."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, operation):
        spans = self.exporter.get_finished_spans()
        return [s for s in spans if s.attributes["gen_ai.operation.name"] == operation]


class IterationsMetric:
    """The points of the histogram of iterations, from a separate provider for each test."""

    def __init__(self):
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def points(self):
        scopes = self.reader.get_metrics_data().resource_metrics[0].scope_metrics
        metrics = [metric for scope in scopes for metric in scope.metrics]
        (made,) = [m for m in metrics if m.name == "treadle.invoke_agent.iterations"]
        return list(made.data.data_points)


@pytest.fixture
def spans():
    return Spans()


@pytest.fixture
def iterations_metric():
    return IterationsMetric()


@tool
def search(page: int) -> str:
    raise RuntimeError("down")


@tool
async def wait_long() -> str:
    await anyio.sleep(30)
    return "late"


def exits():
    """Every way to end: script, options, stop reason, iterations, tool calls that ran."""

    def broken(ctx):
        raise KeyError("x")

    one, two = calls(call("add", a=1, b=2)), calls(call("add", a=3, b=4))
    add_one = {"tools": [add]}
    yield ["3"], add_one, "answered", 1, 0
    yield [one, two, "7"], add_one, "answered", 3, 2
    yield [one], {**add_one, "output": "add"}, "output", 1, 0
    yield [one, two], {**add_one, "max_iterations": 2}, "max_iterations_reached", 2, 2
    yield [one, two], {**add_one, "max_tool_calls": 1}, "budget_exhausted", 2, 1
    yield [one] * 4, add_one, "loop_detected", 4, 2  # twice it was suppressed, and never ran
    yield [one] * 3, {**add_one, "dedupe": "off"}, "loop_detected", 3, 3
    yield (
        [one, two, "7"],
        {**add_one, "max_iterations": 2, "limits": Limits(on_limit="finish")},
        "finished",
        3,
        2,
    )
    failing = [calls(call("search", page=page)) for page in range(3)]
    yield failing, {"tools": [search]}, "circuit_broken", 3, 3
    yield [one, TypeError("no")], add_one, "llm_error", 2, 1
    yield [""], {"stages": [loop_decision(max_blank_stops=0), ...]}, "empty_response", 1, 0
    yield [one], {**add_one, "stages": [*default_stages()[:1], broken]}, "pipeline_failed", 1, 0
    yield [], {"messages": []}, "invalid_input", 0, 0
    slow = {"tools": [wait_long], "max_seconds": 0.05}
    yield [calls(call("wait_long"))], slow, "deadline_exceeded", 1, 1


@pytest.mark.parametrize(
    ("script", "options", "stop_reason", "iterations", "tool_calls"),
    [pytest.param(*values, id=f"{values[2]}-{values[3]}-{values[4]}") for values in exits()],
)
def test_the_completion_event_is_emitted_once_on_every_exit(
    run, spans, iterations_metric, script, options, stop_reason, iterations, tool_calls
):
    """``treadle.loop.complete`` has total_iterations, tool_calls_count and the stop reason.

    LlmCore reports it on two of its exits only.
    """
    messages = options.get("messages", "Go on.")
    kept = {name: value for name, value in options.items() if name != "messages"}
    events = []
    providers = {
        "telemetry": Telemetry(
            tracer_provider=spans.provider, meter_provider=iterations_metric.provider
        )
    }
    run(messages, ScriptedLLM(*script), on_event=events.append, **kept, **providers)
    (agent,) = spans.named("invoke_agent")
    (complete,) = [event for event in agent.events if event.name == "treadle.loop.complete"]
    assert dict(complete.attributes) == {
        "treadle.total_iterations": iterations,
        "treadle.tool_calls_count": tool_calls,
        "treadle.stop_reason": stop_reason,
    }
    (finished,) = [event for event in events if isinstance(event, RunFinished)]
    assert events[-1] is finished
    assert (finished.total_iterations, finished.tool_calls_count) == (iterations, tool_calls)
    (point,) = iterations_metric.points()
    assert (point.sum, point.attributes["treadle.stop_reason"]) == (iterations, stop_reason)


def test_the_completion_event_is_emitted_when_the_run_is_cancelled(run, spans):
    """A run that is cancelled through its handle reports its completion too."""
    handle = RunHandle()

    @tool
    def give_up() -> str:
        handle.cancel()
        return "late"

    llm = ScriptedLLM(calls(call("give_up")))
    run(
        "Go.",
        llm,
        tools=[give_up],
        handle=handle,
        telemetry=Telemetry(tracer_provider=spans.provider),
    )
    (agent,) = spans.named("invoke_agent")
    (complete,) = [event for event in agent.events if event.name == "treadle.loop.complete"]
    assert complete.attributes["treadle.stop_reason"] == "cancelled"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_completion_event_is_emitted_when_the_caller_is_cancelled(spans, backend):
    """A cancellation is raised after the completion was reported; the history is valid."""
    handle, events = RunHandle(), []
    llm = ScriptedLLM(calls(call("wait_long")))

    def observe(event):
        events.append(event)
        if isinstance(event, ToolStarted):
            scope.cancel()

    options = {"tools": [wait_long], "handle": handle, "on_event": observe}
    start = functools.partial(Loop.run, [{"role": "user", "content": "Wait."}], llm, **options)

    async def give_up():
        nonlocal scope
        with anyio.CancelScope() as scope:
            await start(telemetry=Telemetry(tracer_provider=spans.provider))
            pytest.fail("the cancellation was swallowed")

    scope = None
    anyio.run(give_up, backend=backend)
    (agent,) = spans.named("invoke_agent")
    (complete,) = [event for event in agent.events if event.name == "treadle.loop.complete"]
    assert complete.attributes["treadle.stop_reason"] == "cancelled"
    assert isinstance(events[-1], RunFinished)
    check_history(handle.messages)
    assert len(handle.messages) == 3


def test_tool_calls_are_reported_with_start_and_stop_and_duration(run, spans):
    """Every tool call has a start and a stop event with its duration, and a span."""
    events = []

    @tool
    async def nap() -> str:
        await anyio.sleep(0.02)
        return "awake"

    llm = ScriptedLLM(calls(call("nap", "c1")), "Done.")
    run(
        "Nap.",
        llm,
        tools=[nap],
        on_event=events.append,
        telemetry=Telemetry(tracer_provider=spans.provider),
    )
    (start,) = [event for event in events if isinstance(event, ToolStarted)]
    (stop,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (start.call.id, stop.call.id, stop.result.content) == ("c1", "c1", "awake")
    assert stop.duration == pytest.approx(stop.at - start.at)
    assert 0.015 < stop.duration < 5
    (span,) = spans.named("execute_tool")
    assert span.attributes["gen_ai.tool.name"] == "nap"
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(stop.duration, abs=0.001)


def test_each_iteration_is_reported_once(run, spans):
    """There is one event for each iteration, and one ``chat`` span."""
    events = []
    llm = ScriptedLLM(calls(call("add", a=1, b=2)), calls(call("add", a=3, b=3)), "9")
    run(
        "Sum.",
        llm,
        tools=[add],
        on_event=events.append,
        telemetry=Telemetry(tracer_provider=spans.provider),
    )
    assert [e.iteration for e in events if isinstance(e, IterationFinished)] == [1, 2, 3]
    assert [s.attributes["treadle.iteration"] for s in spans.named("chat")] == [1, 2, 3]
