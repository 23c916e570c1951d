"""Spans of runs, model calls and tool calls: names, kinds, attributes, failures."""

import anyio
from opentelemetry.trace import SpanKind, StatusCode

from treadle import Err, RunHandle, tool
from treadle.testing import call, calls

COMPLETION = {
    "id": "x1",
    "model": "m1",
    "choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}


def test_a_run_has_three_kinds_of_spans_under_one_parent(run, watch):
    run(calls(call("double", "a", n=1), call("double", "b", n=2)), COMPLETION, name="bot")
    agent = watch.one("invoke_agent bot")
    assert (agent.parent, agent.kind) == (None, SpanKind.INTERNAL)
    kinds = {span.name: span.kind for span in watch.spans}
    assert kinds == {
        "invoke_agent bot": SpanKind.INTERNAL,
        "chat": SpanKind.CLIENT,
        "chat m1": SpanKind.CLIENT,
        "execute_tool double": SpanKind.INTERNAL,
    }
    children = [span for span in watch.spans if span is not agent]
    assert len(children) == 4
    assert all(span.parent.span_id == agent.context.span_id for span in children)


def test_the_attributes_of_a_run(run, watch):
    result = run(calls(call("double", n=1)), "done", name="bot")
    agent = watch.one("invoke_agent bot")
    assert agent.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "bot",
        "treadle.run.id": result.run.run_id,
        "treadle.total_iterations": 2,
        "treadle.tool_calls_count": 1,
        "treadle.stop_reason": "answered",
    }
    assert agent.status.status_code is StatusCode.UNSET


def test_the_attributes_of_a_model_call(run, watch):
    run(COMPLETION)
    assert watch.one("chat m1").attributes == {
        "gen_ai.operation.name": "chat",
        "treadle.iteration": 1,
        "gen_ai.response.model": "m1",
        "gen_ai.response.id": "x1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
    }


def test_unknown_values_are_omitted(run, watch):
    run("Hi")
    assert watch.one("chat").attributes == {
        "gen_ai.operation.name": "chat",
        "treadle.iteration": 1,
    }


def test_the_attributes_of_a_tool_call_have_no_arguments(run, watch):
    run(calls(call("double", "c1", n=1)), "done")
    assert watch.one("execute_tool double").attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "double",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "treadle.iteration": 1,
    }


class TestFailures:
    """Every failure has its `error.type`."""

    def test_of_the_model(self, run, watch):
        assert isinstance(run(TypeError("broken")), Err)
        for name, kind in (("chat", "TypeError"), ("invoke_agent", "llm_error")):
            span = watch.one(name)
            assert span.attributes["error.type"] == kind
            assert span.status.status_code is StatusCode.ERROR

    def test_of_a_tool_without_its_text(self, run, watch):
        run(calls(call("fail")), "done")
        span = watch.one("execute_tool fail")
        assert span.attributes["error.type"] == "tool_error"
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "tool_error"  # what it said is content
        assert "error.type" not in watch.one("invoke_agent").attributes

    def test_of_a_tool_that_was_cancelled_alone(self, run, watch):
        handle = RunHandle()

        @tool
        async def hang():
            handle.cancel_all()
            await anyio.sleep(10)

        run(calls(call("hang")), "done", tools=[hang], handle=handle)
        span = watch.one("execute_tool hang")
        assert span.attributes["error.type"] == "cancelled"
        assert span.end_time <= watch.named("chat")[1].start_time
