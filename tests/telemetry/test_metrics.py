"""Every metric: its name, unit, buckets and labels, and its agreement with the spans."""

import gc
import weakref

import pytest
from opentelemetry.sdk.metrics.export import Histogram, Sum
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from tests.deciding import on
from tests.samples import OverloadedError

from treadle import CircuitBreaker, Limits, Loop, Telemetry, approve, tool
from treadle.telemetry import names
from treadle.telemetry.instruments import instruments_of
from treadle.telemetry.sinks import scope
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER, double, fail, sign
from .watching import Watch, go

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "cost": 0.25}


class Model(ScriptedLLM):
    """A scripted model with a name."""

    model, provider = "m", "openai"


def completion(message=None):
    message = message or {"role": "assistant", "content": "Hi"}
    choice = {"message": message, "finish_reason": "stop"}
    return {"id": "x1", "model": "m-1", "choices": [choice], "usage": USAGE}


def streamed():
    return [
        {"id": "x", "model": "m-1", "choices": [{"index": 0, "delta": {"content": "Hi"}}]},
        {"id": "x", "choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"id": "x", "choices": [], "usage": USAGE},
    ]


def everything(driver, watch):
    """A run that records every metric."""
    batch = calls(
        call("double", "c1", n=1),
        call("double", "c2", n=1),
        call("fail", "c3"),
        call("double", "c4", n=2),
    )
    model = Model(
        OverloadedError(),
        completion(batch),
        calls(call("double", "c5", n=1)),
        calls(call("fail", "c6")),
        calls(call("fail", "c7")),
        streamed(),
    )
    return go(
        driver,
        USER,
        model,
        tools=[double, fail],
        name="bot",
        retry_delay=0,
        limits=Limits(max_parallel_calls=2),
        dedupe="strict",
        breaker=CircuitBreaker(threshold=2, cool_down=600),
        loop_threshold=None,
        **watch.options,
    )


AGENT = {"gen_ai.agent.name": "bot"}
MODEL = {**AGENT, "gen_ai.provider.name": "openai", "gen_ai.request.model": "m"}
ANSWERED = {**MODEL, "gen_ai.response.model": "m-1"}
CHAT = {"gen_ai.operation.name": "chat"}
DOUBLE = {**AGENT, "gen_ai.tool.name": "double"}
FAIL = {**AGENT, "gen_ai.tool.name": "fail"}
TYPE = {"gen_ai.tool.type": "function"}
END = {**AGENT, "treadle.stop_reason": "answered"}

METRICS = {
    "gen_ai.client.operation.duration": ("s", names.SECONDS_BUCKETS, [{**CHAT, **ANSWERED}, {**CHAT, **MODEL}]),
    "gen_ai.client.operation.time_to_first_chunk": ("s", names.FIRST_CHUNK_BUCKETS, [{**CHAT, **ANSWERED}]),
    "gen_ai.client.token.usage": (
        "{token}",
        names.TOKENS_BUCKETS,
        [{**CHAT, **ANSWERED, "gen_ai.token.type": kind} for kind in ("input", "output")],
    ),
    "gen_ai.invoke_agent.duration": ("s", names.AGENT_SECONDS_BUCKETS, [END]),
    "gen_ai.invoke_agent.inference_calls": ("{inference_call}", names.COUNT_BUCKETS, [AGENT]),
    "gen_ai.invoke_agent.tool_calls": ("{tool_call}", names.COUNT_BUCKETS, [AGENT]),
    "gen_ai.execute_tool.duration": (
        "s", names.SECONDS_BUCKETS, [{**DOUBLE, **TYPE}, {**FAIL, **TYPE, "error.type": "tool_error"}],
    ),
    "treadle.invoke_agent.iterations": ("{iteration}", names.ITERATIONS_BUCKETS, [END]),
    "treadle.invoke_agent.active": ("{run}", None, [AGENT]),
    "treadle.tool_calls.not_run": (
        "{tool_call}", None,
        [
            *({**DOUBLE, "treadle.reason": r} for r in ("duplicate_in_batch", "no_new_evidence", "parallel_cap")),
            {**FAIL, "treadle.reason": "breaker_open"},
        ],
    ),
    "treadle.circuit_breaker.transitions": (
        "{transition}", None, [{**FAIL, "treadle.circuit_breaker.state": "open"}],
    ),
    "treadle.usage.cost": ("{USD}", None, [ANSWERED]),
    "treadle.model.retries": ("{retry}", None, [{**MODEL, "error.type": "OverloadedError"}]),
}  # fmt: skip


class TestAll:
    """Exactly the documented metrics are recorded."""

    def test_names_units_buckets_and_attributes(self, driver, watch):
        everything(driver, watch).unwrap()
        metrics = {metric.name: metric for metric in watch.metrics()}
        assert metrics.keys() == METRICS.keys()
        for name, (unit, buckets, attributes) in METRICS.items():
            metric = metrics[name]
            assert (metric.unit, bool(metric.description)) == (unit, True), name
            points = list(metric.data.data_points)
            found = [sorted(point.attributes.items()) for point in points]
            assert sorted(found) == sorted(sorted(each.items()) for each in attributes), name
            if buckets is not None:
                assert isinstance(metric.data, Histogram)
                assert {tuple(point.explicit_bounds) for point in points} == {buckets}, name
            else:
                assert isinstance(metric.data, Sum)
                assert metric.data.is_monotonic == (name != "treadle.invoke_agent.active")

    def test_numbers(self, driver, watch):
        everything(driver, watch)
        assert watch.total(names.AGENT_INFERENCE_CALLS) == watch.total(names.ITERATIONS_METRIC) == 5
        assert watch.total(names.AGENT_TOOL_CALLS) == 3
        assert watch.total(names.CALLS_NOT_RUN) == 4
        assert watch.total(names.MODEL_RETRIES) == 1
        assert watch.total(names.USAGE_COST) == 0.5
        assert watch.total(names.TOKEN_USAGE, {names.TOKEN_TYPE: "input"}) == 6
        assert watch.total(names.TOKEN_USAGE, {names.TOKEN_TYPE: "output"}) == 8
        assert watch.total(names.ACTIVE_RUNS) == 0

    def test_the_scope_is_treadle(self, watch):
        everything("sync", watch)
        (resource,) = watch.reader.get_metrics_data().resource_metrics
        assert [scope.scope.name for scope in resource.scope_metrics] == ["treadle"]
        assert {span.instrumentation_scope.name for span in watch.spans} == {"treadle"}


class TestDurations:
    """Durations are those of the spans."""

    @pytest.mark.parametrize(
        ("metric", "operation"),
        [
            (names.OPERATION_DURATION, names.CHAT),
            (names.TOOL_DURATION, names.EXECUTE_TOOL),
            (names.AGENT_DURATION, names.INVOKE_AGENT),
        ],
    )
    def test_count_and_sum_match_the_spans(self, driver, watch, metric, operation):
        everything(driver, watch)
        spans = watch.kind(operation)
        assert sum(point.count for point in watch.points(metric)) == len(spans) > 0
        took = sum(span.end_time - span.start_time for span in spans) / 1e9
        assert watch.total(metric) == pytest.approx(took, abs=1e-5)

    def test_failed_calls_have_an_error_type(self, driver, watch):
        go(driver, USER, ScriptedLLM(TypeError()), **watch.options)
        (request,) = watch.points(names.OPERATION_DURATION)
        assert dict(request.attributes) == {**CHAT, "error.type": "TypeError"}
        (run,) = watch.points(names.AGENT_DURATION)
        assert dict(run.attributes) == {
            "treadle.stop_reason": "llm_error",
            "error.type": "llm_error",
        }

    def test_a_paused_run_has_no_error_type(self, driver, watch):
        go(driver, USER, ScriptedLLM(calls(call("sign"))), tools=[sign], **watch.options)
        (run,) = watch.points(names.AGENT_DURATION)
        assert dict(run.attributes) == {"treadle.stop_reason": "paused"}


class TestResumed:
    """A resumed run counts calls since the resumption, and all iterations."""

    def test_calls_are_counted_since_the_resumption(self):
        before, after = Watch(), Watch()
        model = ScriptedLLM(
            calls(call("double", "c0", n=1)),
            calls(call("double", "c1", n=2), call("sign", "c2")),
            "done",
        )
        tools = [double, sign]
        paused = Loop.run_sync(USER, model, tools=tools, **before.options)
        result = Loop.resume_sync(
            paused, on(paused, {"c2": approve}), model, tools=tools, **after.options
        )
        counts = (names.AGENT_INFERENCE_CALLS, names.AGENT_TOOL_CALLS, names.ITERATIONS_METRIC)
        parts = [tuple(map(watch.total, counts)) for watch in (before, after)]
        assert parts == [(2, 2, 2), (1, 1, 3)]
        assert (result.iterations, result.tool_calls_count) == (3, 3)
        assert before.total(names.ACTIVE_RUNS) == after.total(names.ACTIVE_RUNS) == 0

    def test_a_call_that_waits_for_approval_is_not_counted(self, driver, watch):
        kid = Loop(tools=[sign]).as_tool("helper", "", ScriptedLLM(calls(call("sign", "i"))))
        go(driver, USER, ScriptedLLM(calls(call("helper", task="a"))), tools=[kid], **watch.options)
        assert watch.points(names.TOOL_DURATION) == []
        assert watch.total(names.AGENT_TOOL_CALLS) == 0


class TestActive:
    """Active runs, including subagents."""

    def test_while_they_run(self, driver, watch):
        seen = []

        @tool
        def look():
            seen.append(watch.total(names.ACTIVE_RUNS))

        kid = Loop(tools=[look]).as_tool("helper", "", ScriptedLLM(calls(call("look")), "in"))
        model = ScriptedLLM(calls(call("look")), calls(call("helper", task="a")), "out")
        go(driver, USER, model, tools=[kid, look], **watch.options)
        assert seen == [1, 2]
        assert watch.total(names.ACTIVE_RUNS) == 0


class TestProviders:
    """Each provider works without the others."""

    def test_unsampled_spans_are_measured(self, driver):
        all_of_it, none_of_it = Watch(), Watch(sampler=ALWAYS_OFF)
        for watch in (all_of_it, none_of_it):
            everything(driver, watch).unwrap()
        assert none_of_it.spans == []
        assert len(all_of_it.spans) > 5
        counted = [
            {
                (metric.name, frozenset(point.attributes.items())): getattr(point, "count", None)
                for metric in watch.metrics()
                for point in metric.data.data_points
            }
            for watch in (all_of_it, none_of_it)
        ]
        assert counted[0] == counted[1]
        assert len(none_of_it.logs()) == 1

    @pytest.mark.parametrize("given", ["tracer_provider", "meter_provider", "logger_provider"])
    def test_each_provider_works_alone(self, driver, watch, given):
        model = Model(completion(calls(call("double", n=1))), OverloadedError(), streamed())
        telemetry = Telemetry(capture_content=True, **{given: watch.providers[given]})
        go(driver, USER, model, tools=[double], retry_delay=0, telemetry=telemetry).unwrap()
        reported = {
            "tracer_provider": bool(watch.spans),
            "meter_provider": bool(list(watch.metrics())),
            "logger_provider": bool(watch.logs()),
        }
        assert reported == {name: name == given for name in reported}

    def test_instruments_are_created_once_per_provider_and_released_with_it(self, watch):
        first = instruments_of(watch.meters, scope())
        assert instruments_of(watch.meters, scope()) is first
        assert instruments_of(Watch().meters, scope()) is not first
        del first
        go("sync", USER, ScriptedLLM("x"), **watch.options)
        known = weakref.ref(watch.meters)
        watch.meters.shutdown()
        del watch.meters
        gc.collect()
        assert known() is None

    def test_a_provider_without_a_hash_works(self, driver, watch):
        """Such as one with __eq__ and no __hash__."""

        class Own:
            __slots__ = ()
            __hash__ = None

            def get_meter(self, *args, **options):
                return watch.meters.get_meter(*args, **options)

        go(driver, USER, ScriptedLLM("x"), telemetry=Telemetry(meter_provider=Own())).unwrap()
        assert watch.total(names.ITERATIONS_METRIC) == 1
