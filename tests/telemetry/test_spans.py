"""Spans: one for the run, one for each call of the model, one for each tool; all of them end."""

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from treadle import Err, Loop, RunHandle, tool
from treadle.telemetry import names
from treadle.testing import call, calls

USER = [{"role": "user", "content": "Hi"}]
COMPLETION = {
    "id": "x1",
    "model": "m1",
    "choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}


class OverloadedError(Exception):
    status_code = 503


def test_a_run_has_three_kinds_of_spans_under_one_parent(run, telemetry):
    run(calls(call("double", "a", n=1), call("double", "b", n=2)), COMPLETION, name="bot")
    agent = telemetry.one("invoke_agent bot")
    assert (agent.parent, agent.kind) == (None, SpanKind.INTERNAL)
    kinds = {span.name: span.kind for span in telemetry.spans}
    assert kinds == {
        "invoke_agent bot": SpanKind.INTERNAL,
        "chat": SpanKind.CLIENT,
        "chat m1": SpanKind.CLIENT,
        "execute_tool double": SpanKind.INTERNAL,
    }
    children = [span for span in telemetry.spans if span is not agent]
    assert len(children) == 4
    assert all(span.parent.span_id == agent.context.span_id for span in children)


def test_the_run_has_its_facts(run, telemetry):
    result = run(calls(call("double", n=1)), "done", name="bot")
    agent = telemetry.one("invoke_agent bot")
    assert agent.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "bot",
        "treadle.run.id": result.run.run_id,
        "treadle.total_iterations": 2,
        "treadle.tool_calls_count": 1,
        "treadle.stop_reason": "answered",
    }
    assert agent.status.status_code is StatusCode.UNSET


def test_a_run_without_a_name_has_none(run, telemetry):
    run("Hi")
    agent = telemetry.one("invoke_agent")
    assert names.AGENT_NAME not in agent.attributes


def test_a_call_of_the_model_has_its_facts_and_tokens(run, telemetry):
    run(COMPLETION)
    assert telemetry.one("chat m1").attributes == {
        "gen_ai.operation.name": "chat",
        "treadle.iteration": 1,
        "gen_ai.response.model": "m1",
        "gen_ai.response.id": "x1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
    }


def test_what_a_provider_did_not_say_is_not_reported(run, telemetry):
    run("Hi")
    assert telemetry.one("chat").attributes == {
        "gen_ai.operation.name": "chat",
        "treadle.iteration": 1,
    }


def test_a_tool_has_its_facts_and_no_arguments(run, telemetry):
    run(calls(call("double", "c1", n=1)), "done")
    assert telemetry.one("execute_tool double").attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "double",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "treadle.iteration": 1,
    }


def test_a_call_that_never_ran_has_no_span(run, telemetry):
    run(calls(call("nope"), call("double", n="x")), "done")
    assert sorted(span.name for span in telemetry.spans) == ["chat", "chat", "invoke_agent"]


def test_tries_are_events_of_one_span(run, telemetry):
    run(OverloadedError("busy"), OverloadedError("busy"), "Hi")
    chat = telemetry.one("chat")
    assert [event.name for event in chat.events] == [names.MODEL_RETRY] * 2
    assert chat.events[0].attributes == {
        "error.type": "OverloadedError",
        "treadle.attempt": 1,
        "treadle.delay": 0.0,
        "treadle.iteration": 1,
    }
    assert chat.status.status_code is StatusCode.UNSET


class TestFailures:
    """Every failure has its `error.type`."""

    def test_of_the_model(self, run, telemetry):
        assert isinstance(run(TypeError("broken")), Err)
        for name, kind in (("chat", "TypeError"), ("invoke_agent", "llm_error")):
            span = telemetry.one(name)
            assert span.attributes["error.type"] == kind
            assert span.status.status_code is StatusCode.ERROR

    def test_of_a_tool_by_its_kind_alone(self, run, telemetry):
        run(calls(call("fail")), "done")
        span = telemetry.one("execute_tool fail")
        assert span.attributes["error.type"] == "tool_error"
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "tool_error"  # what it said is content
        assert "error.type" not in telemetry.one("invoke_agent").attributes

    def test_of_a_tool_that_took_too_long(self, run, telemetry):
        @tool(timeout=0.01)
        async def hang():
            await anyio.sleep(10)

        run(calls(call("hang")), "done", tools=[hang])
        assert telemetry.one("execute_tool hang").attributes["error.type"] == "timeout"

    def test_of_a_tool_that_was_cancelled_while_the_run_goes_on(self, run, telemetry):
        handle = RunHandle()

        @tool
        async def hang():
            handle.cancel_all()
            await anyio.sleep(10)

        run(calls(call("hang")), "done", tools=[hang], handle=handle)
        span = telemetry.one("execute_tool hang")
        assert span.attributes["error.type"] == "cancelled"
        assert span.end_time <= telemetry.named("chat")[1].start_time

    @pytest.mark.parametrize(
        ("options", "stop_reason"),
        [
            ({"max_iterations": 1}, "max_iterations_reached"),
            ({"max_tool_calls": 0}, "budget_exhausted"),
            ({"max_total_tokens": 1}, "budget_exhausted"),
            ({"loop_threshold": 1}, "loop_detected"),
            ({"max_seconds": 0}, "deadline_exceeded"),
        ],
    )
    def test_of_the_run_by_every_guard(self, run, telemetry, options, stop_reason):
        script = {**COMPLETION, "choices": [{"message": calls(call("double", n=1))}]}
        assert run(script, "done", **options).stop_reason == stop_reason
        agent = telemetry.one("invoke_agent")
        assert agent.attributes["error.type"] == stop_reason
        assert agent.attributes["treadle.stop_reason"] == stop_reason

    def test_of_messages_that_are_none(self, telemetry):
        Loop.run_sync([], lambda m: "x", **telemetry.options)
        (agent,) = telemetry.spans
        assert agent.attributes["error.type"] == "invalid_input"

    def test_of_what_was_under_way_when_the_time_was_up(self, run, telemetry):
        @tool
        async def hang():
            await anyio.sleep(10)

        run(calls(call("hang")), tools=[hang], max_seconds=0.4)
        span = telemetry.one("execute_tool hang")
        assert span.attributes["error.type"] == "deadline_exceeded"
        assert span.end_time == telemetry.one("invoke_agent").end_time


def test_no_span_is_left_open_whatever_happens(run, telemetry):
    """As many ends as starts, at every exit."""
    started = []

    class Counting:
        def __init__(self, tracer):
            self.tracer = tracer

        def start_span(self, *args, **kwargs):
            started.append(args[0])
            return self.tracer.start_span(*args, **kwargs)

    class Provider(TracerProvider):
        def get_tracer(self, *args, **kwargs):
            return Counting(telemetry.tracers.get_tracer("counted"))

    def broken_stage(ctx):
        raise ValueError("stage")

    provider = Provider(shutdown_on_exit=False)
    for script, options in (
        ([calls(call("double", n=1)), "done"], {}),
        ([TypeError()], {}),
        ([calls(call("fail"))] * 4, {}),
        (["", "", "", ""], {}),
        (["x"], {"stages": [broken_stage]}),
    ):
        run(*script, **{**options, "tracer_provider": provider})
    assert len(started) == len(telemetry.spans) > 10
