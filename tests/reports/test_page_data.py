"""The numbers of the page: what the scripts of the runs say, and what a real Prometheus says of the same runs."""

import dataclasses
import json
import math
import os
import time
from types import SimpleNamespace

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from tests.samples import add

from treadle import CircuitBreaker, Limits, Loop, Recipe, RecipeStep, Usage, approve, tool
from treadle.events import (
    IterationStarted,
    RunFinished,
    RunStarted,
    SubagentEvent,
    ToolFinished,
    ToolStarted,
)
from treadle.messages import ToolCall, ToolResult
from treadle.recording.reader import RecordingError, read_recording
from treadle.recording.recorder import Recorder
from treadle.reports.dashboard_page.data import named, page_data
from treadle.reports.dashboard_page.times import RANGES, times
from treadle.reports.dashboards import expressions
from treadle.reports.dashboards.expressions import ACTIVE, ITERATIONS, RUN, TOOL
from treadle.reports.dashboards.panel import Question
from treadle.reports.dashboards.panels import PANELS
from treadle.reports.dashboards.promql import Quantile, Selector
from treadle.reports.sources.prometheus import PrometheusSource
from treadle.reports.sources.recordings import SILENCE, RecordingSource
from treadle.reports.sources.samples import BOUNDS, samples_of
from treadle.reports.sources.source import Grid, SourceError
from treadle.telemetry import Telemetry, names
from treadle.telemetry.handlers import handle_event
from treadle.telemetry.run_telemetry import RunTelemetry
from treadle.telemetry.sinks import Sinks
from treadle.testing import ScriptedLLM, call

from .page_runs import QUESTION, earlier, fail, recorded
from .prometheus import Endpoint, Prometheus, Still
from .rules import RULES
from .samples import recorded as text_of
from .scripted_runs import INPUT_TOKENS, OUTPUT_TOKENS, Rounds, chunks, reply

COST = 0.25


def adds(count):
    """What a model says that adds so many times, once in each iteration, and then answers."""
    made = [reply(call("add", a=1, b=number), cost=COST) for number in range(count)]
    return [*made, reply(cost=COST)]


def panels_of(told):
    return {panel["key"]: panel for row in told["rows"] for panel in row["panels"]}


def wholes(told, key):
    """What each series of a panel is over the whole time."""
    return {one["name"]: one["whole"] for one in panels_of(told)[key]["series"]}


def read(path, range_key="all", agent=None):
    return page_data(RecordingSource([path]), range_key, agent, time.time())


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Runs of 1, 2, 3 and 5 iterations of an agent that adds, and runs of one that fails."""
    tools = {"tools": [add]}
    failing = [reply(call("fail")) for _ in range(3)]
    return recorded(
        tmp_path_factory.mktemp("records") / "runs.jsonl",
        *(("adder", adds(count), tools) for count in (0, 1, 2, 4)),
        ("failing", failing, {"tools": [fail]}),
        ("failing", [ConnectionError("away")], {"max_retries": 0}),
        ("failing", [ConnectionError("away"), chunks("It ", "is.")], {}),
        ("limited", adds(2)[:2], {**tools, "max_iterations": 2}),
        (
            "limited",
            [adds(1)[0], reply()],
            {**tools, "max_iterations": 1, "limits": Limits(on_limit="finish")},
        ),
        ("guarded", [*[reply(call("add", a=1, b=1))] * 3, reply()], tools),
    )


@pytest.fixture(scope="module")
def told(path):
    return read(path)


# What the scripts say


def test_runs_are_counted_by_how_they_ended(told):
    assert wholes(told, "runs") == {"runs": 10}
    assert wholes(told, "active_runs") == {"active": 0}
    assert wholes(told, "stop_reasons_total") == {
        "answered": 6,
        "finished": 1,
        "circuit_broken": 1,
        "llm_error": 1,
        "max_iterations_reached": 1,
    }
    assert wholes(told, "answered") == {"answered": 0.7}
    assert wholes(told, "budget_exhausted") == {"no answer": 0.1, "last answer": 0.1}


def test_quantiles_of_iterations_are_those_of_the_values_themselves(path):
    """Of 1, 2, 3 and 5; of buckets one would have to guess."""
    assert wholes(read(path, agent="adder"), "iterations") == {"p50": 2, "p95": 5}


def test_the_heatmap_counts_each_run_in_its_bucket(path):
    found = wholes(read(path, agent="adder"), "iterations_heatmap")
    assert {name: found[name] for name in ("1", "2", "3", "4", "5", "6", "+Inf")} == {
        "1": 1, "2": 2, "3": 3, "4": 3, "5": 4, "6": 4, "+Inf": 4
    }  # fmt: skip


def test_cost_is_the_sum_of_what_the_backend_told(path):
    """Of eleven replies; per hour and per run it is that sum over the time and over the runs."""
    told = read(path, agent="adder")
    seconds = told["step"] * told["count"]
    assert wholes(told, "cost") == {"cost": 11 * COST}
    assert wholes(told, "mean_cost") == {"mean": pytest.approx(11 * COST / 4, rel=1e-5)}
    assert wholes(told, "cost_per_hour") == {
        "script-1": pytest.approx(3600 * 11 * COST / seconds, rel=1e-5)
    }


def test_tokens_are_those_that_the_provider_counted(path):
    told = read(path, agent="adder")
    seconds = told["step"] * told["count"]
    assert wholes(told, "tokens") == {
        "input": pytest.approx(11 * INPUT_TOKENS / seconds, rel=1e-5),
        "output": pytest.approx(11 * OUTPUT_TOKENS / seconds, rel=1e-5),
    }


def test_the_table_of_tools_counts_calls_errors_and_those_that_did_not_run(told):
    rows = {row["name"]: row for row in told["tools"]["rows"]}
    assert list(rows) == ["add", "fail"]
    assert (rows["add"]["calls"], rows["add"]["not_run"]) == (12, 1)
    assert "errors" not in rows["add"]
    assert (rows["fail"]["calls"], rows["fail"]["errors"]) == (3, 3)
    assert 0 < rows["add"]["p50"] <= rows["add"]["p95"] < 5


def test_errors_and_retries_of_the_model_are_told_by_what_went_wrong(path):
    told = read(path, agent="failing")
    seconds = told["step"] * told["count"]
    assert wholes(told, "model_retries") == {
        "ConnectionError": pytest.approx(60 / seconds, rel=1e-5)
    }
    assert wholes(told, "model_errors") == {"failed": 0.2}
    assert set(wholes(told, "time_to_first_chunk")) == {"p50 script-1", "p95 script-1"}


def test_the_points_of_a_graph_add_up_to_the_whole(told):
    """Nothing is counted twice and nothing is lost between two points."""
    seconds = told["step"] * told["count"]
    for key in ("runs_per_minute", "stop_reasons", "tool_calls", "cost_per_hour", "tokens"):
        for series in panels_of(told)[key]["series"]:
            mean = sum(value or 0 for value in series["values"]) / told["count"]
            assert mean == pytest.approx(series["whole"], rel=1e-4)
            assert len(series["values"]) == told["count"]
    assert seconds > 0


def test_every_panel_can_be_answered_from_records(told):
    assert {key: panel["error"] for key, panel in panels_of(told).items() if "error" in panel} == {}


def test_an_agent_is_shown_alone(path, told):
    assert told["agents"] == ["adder", "failing", "guarded", "limited"]
    alone = read(path, agent="limited")
    assert wholes(alone, "runs") == {"runs": 2}
    assert alone["agents"] == told["agents"]
    assert wholes(read(path, agent="limite."), "runs") == {}


def test_agents_without_a_name_can_be_shown_alone(tmp_path):
    path = recorded(tmp_path / "runs.jsonl", ("", ["Done."], {}), ("a", ["Done."], {}))
    assert read(path)["agents"] == ["", "a"]
    assert wholes(read(path, agent=""), "runs") == {"runs": 1}
    assert wholes(read(path), "runs_per_minute").keys() == {"", "a"}


def test_a_range_leaves_out_what_was_before_it(tmp_path):
    path = recorded(tmp_path / "runs.jsonl", ("a", ["Done."], {}))
    source, later = RecordingSource([path]), time.time() + 1800
    assert wholes(page_data(source, "15m", None, later), "runs") == {"runs": 0}
    assert wholes(page_data(source, "1h", None, later), "runs") == {"runs": 1}


def test_a_nested_run_is_a_run_of_its_own_agent(tmp_path):
    path = tmp_path / "runs.jsonl"
    with Recorder(path) as recorder, ScriptedLLM(reply(cost=COST)) as inner:
        research = Loop(name="inner").as_tool("research", "Look it up.", inner)
        with ScriptedLLM(reply(call("research", task="x"), cost=COST), reply(cost=COST)) as model:
            Loop(name="outer", tools=[research], on_event=recorder).run_sync(QUESTION, model)
    told = read(path)
    assert told["agents"] == ["inner", "outer"]
    assert wholes(told, "runs") == {"runs": 2}
    assert wholes(told, "cost") == {"cost": 3 * COST}
    assert wholes(read(path, agent="inner"), "cost") == {"cost": COST}


def test_a_nested_run_without_an_end_has_ended_with_the_run_around_it(tmp_path):
    path = tmp_path / "runs.jsonl"
    with Recorder(path) as recorder, ScriptedLLM("Done.") as inner:
        nested = Loop(name="inner").as_tool("nested", "Nest.", inner)
        with ScriptedLLM(reply(call("nested", task="x")), reply()) as model:
            Loop(name="outer", tools=[nested], on_event=recorder).run_sync(QUESTION, model)
    lines = path.read_text().splitlines(keepends=True)
    cut = [line for line in lines if not ('"within"' in line and '"run_finished"' in line)]
    assert len(cut) == len(lines) - 1
    path.write_text("".join(cut))
    told = read(path)
    assert wholes(told, "active_runs") == {"active": 0}
    assert wholes(told, "stop_reasons_total") == {"answered": 1, "abandoned": 1}


def test_a_pause_is_no_end(tmp_path):
    """A run that is paused and gone on with is one run; while it is paused, none."""
    path = tmp_path / "runs.jsonl"
    rounds = Rounds(None)
    with Recorder(path) as recorder:
        rounds.options = {"on_event": recorder, "llm_opts": {"model": "script"}}
        rounds.paused()
    told = read(path)
    assert wholes(told, "runs") == {"runs": 1}
    assert wholes(told, "iterations") == {"p50": 2, "p95": 2}
    [run] = read_recording(path).runs
    changes = [one.value for one in samples_of(run) if one.metric == ACTIVE]
    assert changes == [1, -1, 1, -1]


def test_transitions_of_a_breaker_are_told(tmp_path):
    breaker = CircuitBreaker(threshold=1, cool_down=3600)
    script = [reply(call("fail")), reply()]
    path = recorded(tmp_path / "runs.jsonl", ("a", script, {"tools": [fail], "breaker": breaker}))
    assert wholes(read(path), "breakers_open") == {"fail": 1}
    assert set(wholes(read(path), "breaker_transitions")) == {"fail open"}


def test_a_tool_that_the_model_made_up_was_not_called(tmp_path):
    twice = [reply(call("made_up")), reply(call("made_up")), reply()]
    path = recorded(tmp_path / "runs.jsonl", ("a", twice, {"tools": [add]}))
    told = read(path)
    assert told["tools"]["rows"] == []
    assert wholes(told, "tool_calls") == wholes(told, "calls_held") == {}


# Files that grow


def test_a_run_is_active_until_its_end_is_written(tmp_path):
    whole = recorded(tmp_path / "whole.jsonl", ("a", ["Done."], {})).read_bytes()
    lines = whole.splitlines(keepends=True)
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"".join(lines[:-1]))
    source = RecordingSource([path])
    told = page_data(source, "all", None, time.time())
    assert (wholes(told, "active_runs"), wholes(told, "runs")) == ({"active": 1}, {})

    path.write_bytes(whole)
    told = page_data(source, "all", None, time.time())
    assert (wholes(told, "active_runs"), wholes(told, "runs")) == ({"active": 0}, {"runs": 1})


def test_a_run_of_which_nothing_was_heard_for_long_is_not_active(tmp_path):
    """Its process was killed; the graph shows it until then."""
    whole = recorded(tmp_path / "whole.jsonl", ("a", ["Done."], {})).read_text()
    path = tmp_path / "runs.jsonl"
    path.write_text(earlier(whole, 2 * int(SILENCE)).rpartition('{"v"')[0])
    told = read(path)
    assert wholes(told, "active_runs") == {"active": 0}
    assert told["start"] + told["step"] * told["count"] < time.time() - SILENCE


def test_a_folder_is_read_with_what_comes_into_it_later(tmp_path):
    recorded(tmp_path / "one.jsonl", ("a", ["Done."], {}))
    (tmp_path / "other.jsonl").write_text('{"something": "else"}\n')
    source = RecordingSource([tmp_path])
    assert source.title == f"1 recorded run in {tmp_path}, 1 not readable"
    recorded(tmp_path / "two.jsonl", ("b", ["Done."], {}))
    told = page_data(source, "all", None, time.time())
    assert (told["agents"], wholes(told, "runs")) == (["a", "b"], {"runs": 2})
    (tmp_path / "one.jsonl").unlink()
    assert page_data(source, "all", None, time.time())["agents"] == ["b"]


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path):
    path = recorded(tmp_path / "runs.jsonl", ("a", ["Done."], {}))
    source = RecordingSource([path])
    before = path.stat()
    path.write_bytes(b"x" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert wholes(page_data(source, "all", None, time.time()), "runs") == {"runs": 1}


def test_a_file_that_goes_away_or_is_spoilt_is_told(tmp_path):
    path = recorded(tmp_path / "runs.jsonl", ("a", ["Done."], {}))
    source = RecordingSource([path])
    path.write_text("spoilt\n")
    with pytest.raises(SourceError, match=r"runs\.jsonl:1: this is not a recording"):
        source.refresh()
    path.unlink()
    with pytest.raises(SourceError, match="No such file"):
        source.refresh()


def test_a_file_that_is_no_record_is_refused(tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(RecordingError):
        RecordingSource([tmp_path / "x.jsonl"])


def test_an_empty_folder_has_no_runs_yet(tmp_path):
    told = read(tmp_path)
    assert told["agents"] == []
    assert all(not panel["series"] or panel["key"] == "x" for panel in panels_of(told).values())


# Times


@pytest.mark.parametrize("key", RANGES)
def test_the_points_of_a_range_end_with_now(key):
    _, seconds, step = RANGES[key]
    shown = times(key, 1_000_000.3, None)
    assert shown.end == 1_000_000.3
    assert shown.grid.last - step < shown.end <= shown.grid.last
    assert shown.grid.count * shown.grid.step == seconds
    assert shown.grid.first % step == 0


@pytest.mark.parametrize("length", [0, 0.05, 1, 59, 3600, 86400, 10**7, 10**9])
def test_all_that_there_is_lies_within_a_handful_of_round_steps(length):
    first = 1_000_000_000.0
    shown = times("all", 0, (first, first + length))
    assert shown.start < first
    assert first + length <= shown.end == pytest.approx(shown.grid.last)
    assert 1 <= shown.grid.count <= 80


# What telemetry measures of the same runs

NAMES = {
    names.AGENT_DURATION: expressions.RUN,
    names.ITERATIONS_METRIC: expressions.ITERATIONS,
    names.OPERATION_DURATION: expressions.MODEL,
    names.FIRST_CHUNK_DURATION: expressions.FIRST_CHUNK,
    names.TOKEN_USAGE: expressions.TOKENS,
    names.AGENT_INFERENCE_CALLS: expressions.MODEL_CALLS,
    names.AGENT_TOOL_CALLS: expressions.TOOL_CALLS,
    names.TOOL_DURATION: expressions.TOOL,
    names.CALLS_NOT_RUN: expressions.NOT_RUN,
    names.BREAKER_TRANSITIONS: expressions.BREAKER,
    names.COMPACTIONS: expressions.COMPACTIONS,
    names.USAGE_COST: expressions.COST,
    names.MODEL_RETRIES: expressions.RETRIES,
    names.ACTIVE_RUNS: expressions.ACTIVE,
}
UNTOLD = {names.OPERATION_NAME, names.TOOL_TYPE}
"""Labels that are always the same."""


def measured(reader):
    """What telemetry has: how many and how much, by metric and labels."""
    [resource] = reader.get_metrics_data().resource_metrics
    found = {}
    for metric in resource.scope_metrics[0].metrics:
        for point in metric.data.data_points:
            untold = {*UNTOLD, *([names.ERROR_TYPE] if metric.name == names.AGENT_DURATION else [])}
            labels = {
                key: value if isinstance(value, str) else json.dumps(value)  # as Prometheus has it
                for key, value in point.attributes.items()
                if key not in untold
            }
            amount = (point.count, point.sum) if hasattr(point, "count") else (None, point.value)
            found[NAMES[metric.name], tuple(sorted(labels.items()))] = amount
    return {
        (metric, tuple((key.replace(".", "_"), value) for key, value in labels)): amount
        for (metric, labels), amount in found.items()
    }


def told_by(source):
    """The same of a record."""
    return {
        (metric, track.labels): (len(track.values), sum(track.values))
        for metric in NAMES.values()
        for track in source._store.find(Selector(metric))
    }


@tool
def slow() -> str:
    """Take too long."""
    time.sleep(0.3)
    return "late"


@tool(requires_approval=True)
def sign() -> str:
    """Sign."""
    return "signed"


class Library:
    """A resolver whose ``summary`` is made of pages."""

    def available_tools(self):
        return ["page", "summary"]

    def resolve(self, asked):
        return asked.name

    def dispatch_recipe(self, name):
        recipe = Recipe(parallel=[RecipeStep("page", {"n": 1}), RecipeStep("page", {"n": 2})])
        return (lambda _: recipe) if name == "summary" else None


def fails_slowly(messages):
    """Take a while to fail."""
    time.sleep(0.05)
    raise ConnectionError("overloaded")


def odd(options):
    """Runs that are cut off, that wait within another run, that take steps, that begin to answer late."""

    def run(name, script, **more):
        with ScriptedLLM(*script) as model:
            loop = Loop(name=name, **options, **more)
            result = loop.run_sync(QUESTION, model)
            if result.stop_reason == "paused" and name != "left":
                [waiting] = result.pending
                loop.resume_sync(result, {waiting.id: approve}, model)

    def nested(*script, tools, **more):
        return Loop(name="inner", tools=tools).as_tool(
            "nested", "Nest.", ScriptedLLM(*script), **more
        )

    once = reply(call("nested", task="x"))
    both = reply(call("slow"), call("add", a=1, b=1))
    run("cut", [both], tools=[slow, add], max_seconds=0.1)
    run("outer", [once], tools=[nested(reply(call("slow")), tools=[slow])], max_seconds=0.1)
    run("late", [once, reply()], tools=[nested(reply(call("slow")), tools=[slow], timeout=0.1)])
    run("paused", [once, reply()], tools=[nested(reply(call("sign")), reply(), tools=[sign])])
    run("left", [once], tools=[nested(reply(call("sign")), tools=[sign])])
    run("steps", [reply(call("summary")), reply()], resolve_tool=Library())
    run("slow", [fails_slowly, chunks("It ", "is.")])


def test_a_record_tells_all_that_telemetry_measures(tmp_path):
    """Every count and every sum, by every label, for every kind of run and of end."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    rounds = Rounds(meters)
    with Recorder(tmp_path / "runs.jsonl") as recorder:
        rounds.options["on_event"] = recorder
        rounds.play()
        odd(rounds.options)
    expected, found = measured(reader), told_by(RecordingSource([tmp_path / "runs.jsonl"]))
    meters.shutdown()
    assert found.keys() == expected.keys()
    for key, (count, amount) in expected.items():
        assert found[key][1] == pytest.approx(amount, rel=1e-9), key
        assert count in {None, found[key][0]}, key


@pytest.mark.parametrize(("starts", "durations"), [([3.5], [0.5]), ([3.5, 3.75], [0.25, 0.25])])
def test_a_subagent_without_an_end_has_ended_with_its_call(tmp_path, starts, durations):
    """Or when the call was tried again; telemetry and a recording agree to the digit."""
    asked = ToolCall("c1", "nested")
    given = [
        RunStarted(agent_name="outer", run_id="r", at=1.0),
        IterationStarted(iteration=1, at=2.0),
        ToolStarted(iteration=1, call=asked, at=3.0),
        *(
            SubagentEvent(call_id="c1", event=RunStarted(agent_name="inner", run_id="r/c1", at=at))
            for at in starts
        ),
        ToolFinished(iteration=1, call=asked, result=ToolResult("c1", ""), at=4.0, duration=1.0),
        RunFinished(
            stop_reason="answered", total_iterations=1, tool_calls_count=1, result=None, at=9.0
        ),
    ]
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    run = RunTelemetry(Sinks.of(Telemetry(meter_provider=meters)))
    for event in given:
        handle_event(run, event)
    path = tmp_path / "run.jsonl"
    path.write_text(text_of(*given))

    labels = (("gen_ai_agent_name", "inner"), ("treadle_stop_reason", "abandoned"))
    expected = (len(durations), sum(durations))
    assert measured(reader)[RUN, labels] == expected
    assert told_by(RecordingSource([path]))[RUN, labels] == expected
    meters.shutdown()


# What a real Prometheus says


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same round of runs in a Prometheus and in a record.

    A round before it is in Prometheus, too, which sees how much a series has grown, and not that it is there.
    """
    registry = CollectorRegistry()
    meters = MeterProvider([PrometheusMetricReader(registry=registry)], shutdown_on_exit=False)
    still, rounds = Still(registry), Rounds(meters)
    folder = tmp_path_factory.mktemp("both")
    with Endpoint(still) as endpoint, Prometheus(folder, endpoint.address, RULES) as prometheus:
        with Recorder(folder / "before.jsonl") as recorder:
            rounds.options["on_event"] = recorder
            rounds.play()
        still.look()
        runs = 'sum(gen_ai_invoke_agent_duration_seconds_count{gen_ai_agent_name="researcher"})'
        prometheus.wait_for(lambda: prometheus.query(f"{runs} == 1"), "the first round")
        with Recorder(folder / "runs.jsonl") as recorder:
            rounds.options["on_event"] = recorder
            rounds.play()
        still.look()
        prometheus.wait_for(lambda: prometheus.query(f"{runs} == 2"), "the second round")
        now = time.time()
        scraped = page_data(PrometheusSource(prometheus.url), "15m", None, now)
        source = RecordingSource([folder / "runs.jsonl"])
        records = page_data(source, "15m", None, now)
        sources = [RecordingSource([folder / "before.jsonl"]), source]
        yield SimpleNamespace(scraped=scraped, records=records, sources=sources, now=now)
    meters.shutdown()


QUANTILES = {
    "run_duration": RUN,
    "iterations": ITERATIONS,
    "tool_latency": TOOL,
    "model_latency": "gen_ai_client_operation_duration_seconds",
    "time_to_first_chunk": "gen_ai_client_operation_time_to_first_chunk_seconds",
}
RATIOS = {
    "answered",
    "mean_cost",
    "budget_exhausted",
    "model_errors",
    "cost_per_run",
}
NOW = {"active_runs", "active_runs_by_agent", "breakers_open"}
MIXED = {"calls_per_run"}
TIMED = {"output_speed"}
GROWN = {panel.key for panel in PANELS} - {*QUANTILES} - RATIOS - NOW - MIXED - TIMED


def some(told, key):
    """The series of a panel that are not nothing."""
    return {name: value for name, value in wholes(told, key).items() if value}


@pytest.mark.prometheus
@pytest.mark.parametrize("key", sorted({panel.key for panel in PANELS} - NOW))
def test_both_have_the_same_series(both, key):
    assert some(both.scraped, key).keys() == some(both.records, key).keys()
    assert some(both.records, key)


@pytest.mark.prometheus
@pytest.mark.parametrize("key", sorted(GROWN))
def test_both_count_alike(both, key):
    """But for one factor: Prometheus extends what it saw to where it did not look, alike for all series."""
    factor = wholes(both.scraped, "runs")["runs"] / wholes(both.records, "runs")["runs"]
    assert 1 <= factor < 3
    expected = {
        name: pytest.approx(value * factor, rel=1e-3)
        for name, value in some(both.records, key).items()
    }
    assert some(both.scraped, key) == expected


@pytest.mark.prometheus
@pytest.mark.parametrize("key", sorted(RATIOS))
def test_both_have_the_same_ratios(both, key):
    expected = {
        name: pytest.approx(value, rel=1e-3) for name, value in some(both.records, key).items()
    }
    assert some(both.scraped, key) == expected


def exact(both, key, move=0.0, of=-1):
    """The quantiles of a panel from the record of a round, each of a share that is moved by so much."""

    def moved(node):
        if isinstance(node, Quantile):
            return dataclasses.replace(node, share=min(max(node.share + move, 0.01), 1.0))
        parts = {
            name: getattr(node, name) for name in ("of", "left", "right") if hasattr(node, name)
        }
        return dataclasses.replace(node, **{name: moved(part) for name, part in parts.items()})

    found = {}
    for query in next(panel for panel in PANELS if panel.key == key).queries:
        question = Question(moved(query.expression), None, 900, 900)
        for one in both.sources[of].ask(question, Grid.at(both.now)):
            found[named(query.legend, one.labels)] = one.values[0]
    return found


@pytest.mark.prometheus
@pytest.mark.parametrize("key", sorted(QUANTILES))
def test_the_exact_quantile_lies_in_the_bucket_that_prometheus_tells(both, key):
    """Or near to it: where rounds differ, Prometheus extends what it saw further in one bucket than in another."""
    edges = [0, *BOUNDS[QUANTILES[key]], math.inf]
    around = [exact(both, key, move, of) for move in (-0.25, 0.25) for of in (0, 1)]
    for name, value in exact(both, key).items():
        assert wholes(both.records, key)[name] == pytest.approx(value, rel=1e-3)
        low = max(edge for edge in edges if edge < min(one[name] for one in around))
        high = min(edge for edge in edges if edge >= max(one[name] for one in around))
        assert low <= wholes(both.scraped, key)[name] <= high


@pytest.mark.prometheus
@pytest.mark.parametrize("key", sorted(TIMED))
def test_both_tell_nearly_the_same_of_what_depends_on_time(both, key):
    """Rounds differ, and so does how far Prometheus extends their sums."""
    for name, value in exact(both, key).items():
        assert wholes(both.records, key)[name] == pytest.approx(value, rel=1e-3)
        least, *_, most = sorted([value, exact(both, key, of=0)[name]])
        assert least / 2 < wholes(both.scraped, key)[name] < most * 2


@pytest.mark.prometheus
def test_both_have_the_same_tools(both):
    factor = wholes(both.scraped, "runs")["runs"] / wholes(both.records, "runs")["runs"]
    counted = [
        {
            row["name"]: [
                round(row.get(key, 0) / divisor, 3) for key in ("calls", "errors", "not_run")
            ]
            for row in told["tools"]["rows"]
        }
        for told, divisor in ((both.scraped, factor), (both.records, 1))
    ]
    assert counted[0] == counted[1]
    assert both.scraped["agents"] == both.records["agents"]


@pytest.mark.prometheus
def test_breakers_that_opened_before_the_record_began_are_prometheus_alone(both):
    """One in each round stays open."""
    assert wholes(both.scraped, "breakers_open")["search"] == 2
    assert wholes(both.records, "breakers_open")["search"] == 1
    assert (
        wholes(both.scraped, "active_runs") == wholes(both.records, "active_runs") == {"active": 0}
    )


def test_the_buckets_are_those_of_the_exporter():
    assert BOUNDS[ITERATIONS] == names.ITERATIONS_BUCKETS
    assert BOUNDS[RUN] == names.AGENT_SECONDS_BUCKETS


def test_a_grid_knows_its_times():
    grid = Grid(10, 5, 3)
    assert list(grid) == [10, 15, 20]
    assert grid.last == 20
    assert dataclasses.astuple(Grid.at(7)) == (7, 1.0, 1)
    assert Usage().cost is None


@pytest.mark.parametrize("is_named", [True, False])
def test_a_named_pipe_does_not_block(tmp_path, is_named):
    """One in a folder is skipped, one that is named is an error."""
    pipe = tmp_path / "run.jsonl"
    os.mkfifo(pipe)
    if is_named:
        with pytest.raises(OSError, match="not a regular file"):
            RecordingSource([pipe])
    else:
        assert RecordingSource([tmp_path]).title.startswith("0 recorded runs")
