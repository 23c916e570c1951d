"""Labels have few values for any input of models, servers and users, and exporters accept everything."""

import json
from collections import defaultdict

import anyio
import pytest
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from treadle import (
    Loop,
    Paused,
    Response,
    StoppedByStage,
    Tool,
    ToolCall,
    Usage,
    approve,
    default_stages,
    deny,
    stage,
)
from treadle.telemetry import names
from treadle.telemetry.instruments import MAX_CHARACTERS, MAX_TOOLS, MAX_VALUES, LimitedValues
from treadle.testing import ScriptedLLM, call, calls
from treadle.testing.chaos import ChaosLLM, ChaosTools

from .exits import USER, double
from .watching import DRIVERS, Watch

NASTY = "evil\ud800\nname\x00{}"

LABELS = {
    names.AGENT_NAME,
    names.BREAKER_STATE,
    names.ERROR_TYPE,
    names.OPERATION_NAME,
    names.PROVIDER_NAME,
    names.REASON,
    names.REQUEST_MODEL,
    names.RESPONSE_MODEL,
    names.STOP_REASON,
    names.TOKEN_TYPE,
    names.TOOL_NAME,
    names.TOOL_TYPE,
}


def values_of(watch):
    """The values of each label."""
    values = defaultdict(set)
    for metric in watch.metrics():
        for point in metric.data.data_points:
            for key, value in point.attributes.items():
                values[key].add(value)
    return values


def encoded(watch):
    """Everything in OTLP's encoding, and the spans as JSON."""
    sent = encode_spans(watch.spans).SerializeToString()
    metrics = watch.reader.get_metrics_data()
    if metrics is not None:
        sent += encode_metrics(metrics).SerializeToString()
    sent += encode_logs(watch.records.get_finished_logs()).SerializeToString()
    for span in watch.spans:
        json.loads(span.to_json())
    return sent


class TestValues:
    """The number of values is limited."""

    def test_values_beyond_the_limit_are_other(self):
        let_through = LimitedValues()
        first = [let_through(f"v{n}") for n in range(MAX_VALUES)]
        assert first == [f"v{n}" for n in range(MAX_VALUES)]
        assert let_through("one more") == "_OTHER"
        assert let_through("v0") == "v0"

    @pytest.mark.parametrize("value", ["", "a\nb", "a\x00", "\ud800", "x" * (MAX_CHARACTERS + 1)])
    def test_invalid_values_are_other_and_do_not_count(self, value):
        let_through = LimitedValues()
        assert [let_through(value) for _ in range(MAX_VALUES + 1)][-1] == "_OTHER"
        assert let_through("fine") == "fine"

    def test_values_of_any_script_are_valid(self):
        assert LimitedValues()("модель-1 (größer)") == "модель-1 (größer)"


class TestMadeUp:
    """Names that a model made up are on no metric."""

    def test_tool_names(self):
        watch = Watch()
        model = ScriptedLLM(calls(call("nope"), call(NASTY), call("double", n=1)), "done")
        Loop.run_sync(USER, model, tools=[double], **watch.options)
        assert values_of(watch)[names.TOOL_NAME] == {"double"}

    def test_tool_names_that_a_resolver_accepts(self):
        """They run, and have spans of a common name; the name itself is an attribute of the span alone."""
        watch = Watch()
        model = ScriptedLLM(calls(*(call(f"made_up_{n}", f"c{n}") for n in range(3))), "done")
        Loop.run_sync(USER, model, resolve_tool=lambda asked: asked.name, **watch.options)
        assert values_of(watch)[names.TOOL_NAME] == {"_OTHER"}
        spans = watch.named("execute_tool")
        assert {span.attributes[names.TOOL_NAME] for span in spans} == {
            f"made_up_{n}" for n in range(3)
        }

    def test_tool_names_that_a_resolver_lists(self):
        class Library:
            def available_tools(self):
                return ["page"]

            def resolve(self, asked):
                return asked.name

        watch = Watch()
        model = ScriptedLLM(calls(call("page", "c1"), call("pge", "c2")), "done")
        Loop.run_sync(USER, model, resolve_tool=Library(), **watch.options)
        assert values_of(watch)[names.TOOL_NAME] == {"page"}

    def test_the_series_of_runs_in_which_every_name_is_new(self):
        """Their number stays the same: the labels that are combined are ``_OTHER`` by then."""
        watch = Watch()
        for n in range(MAX_TOOLS + 50):
            run_with_new_names(n, watch)
        before = self.series(watch)
        assert sum(before.values()) < 2_500
        for n in range(MAX_TOOLS + 50, MAX_TOOLS + 200):
            run_with_new_names(n, watch)
        assert self.series(watch) == before
        values = values_of(watch)
        assert len(values[names.TOOL_NAME]) == MAX_TOOLS + 1
        for label in (names.AGENT_NAME, names.STOP_REASON):
            assert len(values[label]) == MAX_VALUES + 1
        models = values[names.REQUEST_MODEL] | values[names.RESPONSE_MODEL]
        assert len(models) == MAX_VALUES + 1
        assert "_OTHER" in values[names.ERROR_TYPE] & models
        assert all(point.value == 0 for point in watch.points(names.ACTIVE_RUNS))

    @staticmethod
    def series(watch):
        """The number of series of each metric."""
        return {metric.name: len(metric.data.data_points) for metric in watch.metrics()}


def run_with_new_names(n, watch):
    """A run with names that no other run has: of the agent, models, tools, errors, a stage and a stop reason."""
    declared = Tool(f"declared_{n}", "Mine.", {"type": "object"}, lambda: "x")
    added = Tool(f"added_{n}", "Mine.", {"type": "object"}, lambda: "x")
    overloaded = type(f"Error{n}", (Exception,), {"status_code": 503})
    own = type(f"Own{n}", (StoppedByStage,), {"stop_reason": f"own {n}"})
    failures = iter([overloaded()])

    def model(messages, **opts):
        for failure in failures:
            raise failure
        asked = [declared.name, added.name, f"made_up_{n}"] if len(messages) == 1 else []
        named = tuple(ToolCall(f"c{at}", name, "{}") for at, name in enumerate(asked))
        return Response(
            "" if named else "x", named, model=f"model {n}", usage=Usage(1, 1, cost=0.1)
        )

    def add(ctx):
        return ctx.with_tools(add=[added])

    def end(ctx):
        return ctx.stop(own("end", "enough")) if ctx.response.text else ctx

    ask, *others = default_stages()
    stages = [stage(add, f"add {n}"), ask(retry_delay=0), stage(end, f"end {n}"), *others]
    result = Loop.run_sync(
        USER,
        model,
        name=f"agent {n}",
        tools=[declared],
        stages=stages,
        llm_opts={"model": f"asked {n}"},
        **watch.options,
    )
    assert (result.stop_reason, result.tool_calls_count) == (f"own {n}", 2)


class TestChaos:
    """Runs with misbehaving models and tools."""

    SEEDS = 40

    def run(self, seed, watch, driver="sync", **more):
        tools, theirs = ChaosTools(seed, approvals=True), ChaosTools(seed + 1_000)
        kid = Loop(tools=[*theirs], name="kid", retry_delay=0, max_retries=0, max_iterations=4)
        child = kid.as_tool("delegate", "", ChaosLLM(seed, [*theirs], longest=300, most_calls=10))
        loop = Loop(
            tools=[*tools, child],
            name="bot",
            retry_delay=0,
            max_retries=1,
            max_iterations=6,
            max_seconds=20,
            **watch.reporting(capture_content=bool(seed % 2), **more),
        )
        model = ChaosLLM(seed, longest=300, most_calls=15, is_async=driver != "sync")
        result = self.drive(driver, loop.run, loop.run_sync, USER, model)
        for _ in range(9):
            if not isinstance(result, Paused):
                break
            decisions = {each.id: (approve, deny("No."))[seed % 2] for each in result.pending}
            result = self.drive(driver, loop.resume, loop.resume_sync, result, decisions, model)
        return {*loop.tools, *kid.tools}

    @staticmethod
    def drive(driver, run, run_sync, *given):
        return run_sync(*given) if driver == "sync" else anyio.run(run, *given, backend=driver)

    @pytest.mark.parametrize("block", range(6))
    def test_every_label_has_few_values(self, block):
        watch, known = Watch(), {"_OTHER"}
        for seed in range(block * self.SEEDS, (block + 1) * self.SEEDS):
            known |= self.run(seed, watch, DRIVERS[block % 3])
        values = values_of(watch)
        assert values.keys() <= LABELS
        assert values[names.TOOL_NAME] <= known
        assert values[names.AGENT_NAME] == {"bot", "kid"}
        assert values[names.TOKEN_TYPE] <= {"input", "output"}
        assert all(len(each) <= MAX_VALUES + 20 for each in values.values())
        ids = {span.attributes.get(names.TOOL_CALL_ID) for span in watch.spans}
        ids |= {span.attributes.get(names.RUN_ID) for span in watch.spans}
        assert len(ids) > self.SEEDS
        for key, each in values.items():
            assert not each & (ids - {None}), key
            assert all(value.isprintable() and len(value) <= MAX_CHARACTERS for value in each)
        watch.check_whole()
        assert len(encoded(watch)) > 10_000

    def test_prometheus_accepts_all_metrics(self):
        registry, watch = CollectorRegistry(), Watch()
        reader = PrometheusMetricReader(registry=registry)
        meters = MeterProvider([reader], shutdown_on_exit=False)
        for seed in range(40):
            self.run(seed, watch, meter_provider=meters)
        page = generate_latest(registry).decode()
        assert 'treadle_invoke_agent_iterations_count{gen_ai_agent_name="bot"' in page
        assert "gen_ai_execute_tool_duration_seconds_bucket" in page


class TestNasty:
    """Lone surrogates, control characters and huge numbers, in every place that accepts input."""

    def test_names_ids_and_answers(self):
        registry, watch = CollectorRegistry(), Watch()
        reader = PrometheusMetricReader(registry=registry)
        meters = MeterProvider([reader], shutdown_on_exit=False)
        nasty = type("Evil\nName", (Exception,), {"status_code": 503})
        tries = iter([nasty(NASTY)])

        def model(messages, **opts):
            for failure in tries:
                raise failure
            asked = (
                ToolCall(NASTY, "anything", json.dumps({"n": NASTY})),
                ToolCall("c2", NASTY, "{"),
            )
            if len(messages) == 1:
                return Response(NASTY, asked, NASTY, None, NASTY, NASTY)
            return Response(NASTY, (), NASTY, None, NASTY, NASTY, {"reasoning": NASTY})

        for captures in (True, False):
            tries = iter([nasty(NASTY)])
            Loop.run_sync(
                [{"role": "user", "content": NASTY}],
                model,
                name=NASTY,
                retry_delay=0,
                resolve_tool=lambda asked: NASTY,
                llm_opts={"stop": [NASTY], "seed": 10**30},
                **watch.reporting(meter_provider=meters, capture_content=captures),
            )
        watch.check_whole()
        assert encoded(watch)
        assert generate_latest(registry)

    def test_a_state_with_an_invalid_traceparent(self):
        from treadle import RunState

        for reported in ("", "00", "00-x-y-z", f"00-{'0' * 32}-{'0' * 16}-01", f"00-{'f' * 99}-{'f' * 16}-01",
                     f"00-{'a' * 32}-{'b' * 16}-{'f' * 30}", "00-+1-1_0- 1"):  # fmt: skip
            watch, state = Watch(), RunState()
            state.traceparent = reported
            Loop.run_sync(USER, lambda m: "x", state=state, **watch.options)
            assert watch.one("invoke_agent").links == (), reported
            assert encoded(watch)


def test_the_limits_are_those_of_the_documentation():
    assert (MAX_VALUES, MAX_CHARACTERS) == (100, 128)


@pytest.mark.parametrize("order", [("_OTHER", "made_up"), ("made_up", "_OTHER")])
def test_a_tool_named_like_the_fallback_value_is_not_mixed_up_with_it(order):
    """A tool that a stage added does not get its description, in either order."""
    watch = Watch()
    declared = Tool("_OTHER", "Mine.", {"type": "object"}, lambda: "x")
    added = Tool("made_up", "", {"type": "object"}, lambda: "y")
    script = [calls(call(name, name)) for name in order]

    @stage
    def add_a_tool(ctx):
        return ctx.with_tools(add=[added])

    options = {"tools": [declared], "stages": [add_a_tool, *default_stages()]}
    Loop.run_sync(USER, ScriptedLLM(*script, "done"), **options, **watch.options)
    described = {
        span.attributes["gen_ai.tool.name"]: span.attributes.get("gen_ai.tool.description")
        for span in watch.kind("execute_tool")
    }
    assert described == {"_OTHER": "Mine.", "made_up": None}
