"""With Telemetry(model_calls=False), model calls that an instrumented SDK reports are not reported twice."""

import pytest

from treadle import Loop, OptionError, Telemetry
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER, double
from .watching import Watch, go

COMPLETION = {
    "id": "x1",
    "model": "m1",
    "choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "cost": 0.25},
}


class Traced:
    """A model whose SDK creates a span for each attempt, as instrumentation does."""

    def __init__(self, watch, *script):
        self.tracer = watch.tracers.get_tracer("the SDK's")
        self.script = ScriptedLLM(*script)

    def __call__(self, messages, **opts):
        facts = {names.OPERATION_NAME: names.CHAT, names.INPUT_TOKENS: 3}
        with self.tracer.start_as_current_span("chat m1", attributes=facts):
            return self.script(messages, **opts)


def run(driver, watch, *, model_calls=False, **telemetry):
    model = Traced(watch, calls(call("double", n=1)), ConnectionError("gone"), COMPLETION)
    reporting = watch.reporting(model_calls=model_calls, **telemetry)
    go(driver, USER, model, name="bot", retry_delay=0, tools=[double], **reporting).unwrap()


def test_only_the_sdk_creates_chat_spans_below_that_of_the_run(driver):
    watch = Watch()
    run(driver, watch)
    spans = watch.kind(names.CHAT)
    assert {span.instrumentation_scope.name for span in spans} == {"the SDK's"}
    assert len(spans) == 3
    agent = watch.one("invoke_agent bot").context.span_id
    assert {span.parent.span_id for span in spans} == {agent}
    assert watch.one("execute_tool double").parent.span_id == agent


def test_no_metric_of_the_sdk_is_recorded_twice(driver):
    watch = Watch()
    run(driver, watch)
    assert {metric.name for metric in watch.metrics()} == {
        "gen_ai.invoke_agent.duration",
        "gen_ai.invoke_agent.inference_calls",
        "gen_ai.invoke_agent.tool_calls",
        "gen_ai.execute_tool.duration",
        "treadle.invoke_agent.iterations",
        "treadle.invoke_agent.active",
        "treadle.model.retries",
        "treadle.usage.cost",
    }


def test_metrics_of_treadle_are_recorded(driver):
    """The cost, the retries, the number of model calls."""
    watch = Watch()
    run(driver, watch)
    (cost,) = watch.points(names.USAGE_COST)
    assert cost.value == 0.25
    assert dict(cost.attributes) == {"gen_ai.agent.name": "bot", "gen_ai.response.model": "m1"}
    assert watch.total(names.AGENT_INFERENCE_CALLS) == 2
    assert watch.total(names.MODEL_RETRIES) == 1


def test_all_spans_end_if_the_run_ends_during_a_model_call(driver):
    watch = Watch()
    go(driver, USER, ScriptedLLM(TypeError()), **watch.reporting(model_calls=False))
    watch.check_whole(runs=1)
    assert [span.name for span in watch.spans] == ["invoke_agent"]
    assert watch.points(names.OPERATION_DURATION) == []


def test_captured_content_is_on_the_span_of_the_run(driver):
    watch = Watch()
    run(driver, watch, capture_content=True)
    agent = watch.one("invoke_agent bot")
    assert '"content": "Hi"' in agent.attributes[names.INPUT_MESSAGES]
    assert '"content": "Hi"' in agent.attributes[names.OUTPUT_MESSAGES]


def test_with_the_option_on_both_chat_spans_exist_and_the_sdks_is_the_child(driver):
    """This is the reason for the option."""
    watch = Watch()
    run(driver, watch, model_calls=True)
    ours = [span for span in watch.kind(names.CHAT) if span.instrumentation_scope.name == "treadle"]
    theirs = [span for span in watch.kind(names.CHAT) if span not in ours]
    assert (len(ours), len(theirs)) == (2, 3)
    assert {span.parent.span_id for span in theirs} == {span.context.span_id for span in ours}


@pytest.mark.parametrize("value", [None, 1, "no"])
def test_the_option_must_be_a_bool(value):
    with pytest.raises(OptionError, match="model_calls: expected True or False"):
        Loop(telemetry=Telemetry(model_calls=value))
