"""A real Prometheus that scraped real runs answers every question of the dashboard and of the rules."""

import math
from collections import Counter

import pytest

from treadle.reports.dashboards.panel import exactly, fill
from treadle.reports.dashboards.panels import PANELS
from treadle.telemetry import names

from . import scripted_runs as script
from .conftest import ROUNDS
from .rules import ALERTS, RECORDING_RULES

pytestmark = pytest.mark.prometheus

QUERIES = [
    pytest.param(query.expression, id=f"{panel.key}-{number}")
    for panel in PANELS
    for number, query in enumerate(panel.queries)
]
PANEL = {panel.key: panel for panel in PANELS}
ALL_RUNS = sum(script.RUNS.values())
COST = (sum(script.REPLIES.values()) - 1) * script.PRICE + script.REPORTED_COST  # of a round


def asked(key, number=0, **filled):
    """The question of a panel, over the whole time of the test."""
    filled = {"window": "5m", "range": "5m", **filled}
    return fill(PANEL[key].queries[number].expression, **filled)


def times(counts, number=ROUNDS):
    return {key: count * number for key, count in counts.items()}


def shares(counts):
    """Of all: what remains exact where a growth is extrapolated to the whole window."""
    whole = sum(counts.values())
    return {key: pytest.approx(count / whole) for key, count in counts.items()}


def proportions(found):
    whole = sum(found.values())
    return {key: value / whole for key, value in found.items()}


def runs_by(place):
    """The runs of a round by their agent (0) or their reason (1) alone."""
    counts = Counter()
    for key, count in script.RUNS.items():
        counts[key[place]] += count
    return counts


class TestEveryQuestion:
    """Each one is answered, with numbers."""

    @pytest.mark.parametrize("expression", QUERIES)
    def test_of_a_panel_is_answered(self, prometheus, expression):
        found = prometheus.query(fill(expression, window="5m", range="5m"))
        assert found
        assert all(math.isfinite(value) and value >= 0 for _, value in found)

    def test_is_not_answered_with_nonsense_where_nothing_happened(self, prometheus):
        """A mean of no runs is no number, and none is what is answered."""
        runs = "sum(rate(gen_ai_invoke_agent_duration_seconds_count[3s]))"
        prometheus.wait_for(lambda: prometheus.value(runs) == 0, "three quiet seconds")
        for panel in PANELS:
            for query in panel.queries:
                found = prometheus.query(fill(query.expression, window="3s", range="3s"))
                assert all(math.isfinite(value) for _, value in found), panel.key

    @pytest.mark.parametrize("one", RECORDING_RULES, ids=lambda one: one.name)
    def test_of_the_recording_rules_is_answered(self, prometheus, one):
        prometheus.wait_for(lambda: prometheus.query(one.name), one.name)
        assert all(math.isfinite(value) and value >= 0 for _, value in prometheus.query(one.name))

    def test_of_the_alerts_is_understood(self, prometheus):
        """They are evaluated without an error; when they fire is in test_alerts.py."""
        groups = prometheus.get("rules")["groups"]
        rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
        assert set(rules) == {one.name for one in (*RECORDING_RULES, *ALERTS)}
        assert {rule["health"] for rule in rules.values()} == {"ok"}
        assert not [rule["lastError"] for rule in rules.values() if rule.get("lastError")]

    def test_what_the_script_brings_about_is_alerted(self, prometheus):
        """A breaker stays open: pending at once, for a minute."""
        prometheus.wait_for(lambda: prometheus.get("alerts")["alerts"], "an alert")
        pending = {
            alert["labels"]["alertname"]: alert for alert in prometheus.get("alerts")["alerts"]
        }
        assert pending["TreadleBreakerOpen"]["labels"]["gen_ai_tool_name"] == "search"
        assert "TreadleLoopsStuck" not in pending


class TestWhatIsCounted:
    """The counters have what the script did, and not more."""

    def test_runs_by_agent_and_stop_reason(self, prometheus):
        expression = 'gen_ai_invoke_agent_duration_seconds_count{treadle_stop_reason!="paused"}'
        assert prometheus.by(expression, "gen_ai_agent_name", "treadle_stop_reason") == times(
            script.RUNS
        )

    def test_iterations_are_of_the_same_runs(self, prometheus):
        expression = 'treadle_invoke_agent_iterations_count{treadle_stop_reason!="paused"}'
        assert prometheus.by(expression, "gen_ai_agent_name", "treadle_stop_reason") == times(
            script.RUNS
        )

    @pytest.mark.parametrize(
        ("kind", "tokens"), [("input", script.INPUT_TOKENS), ("output", script.OUTPUT_TOKENS)]
    )
    def test_tokens(self, prometheus, kind, tokens):
        """No token twice: the model calls of a nested loop are its own, a retried one is one call."""
        found = prometheus.by(
            f'gen_ai_client_token_usage_sum{{gen_ai_token_type="{kind}"}}', "gen_ai_agent_name"
        )
        assert found == times(script.REPLIES, ROUNDS * tokens)

    def test_model_calls(self, prometheus):
        expression = 'sum by (gen_ai_agent_name) (gen_ai_client_operation_duration_seconds_count{error_type=""})'
        told = {**script.REPLIES, "": script.UNTOLD}
        assert prometheus.by(expression, "gen_ai_agent_name") == times(told)

    def test_model_calls_that_failed(self, prometheus):
        """One that a deadline cut off did not answer in time."""
        found = prometheus.by(
            'gen_ai_client_operation_duration_seconds_count{error_type!=""}',
            "gen_ai_agent_name",
            "error_type",
        )
        assert found == times(script.MODEL_ERRORS)

    def test_cost(self, prometheus):
        assert prometheus.value("sum(treadle_usage_cost_total)") == pytest.approx(ROUNDS * COST)

    def test_tool_calls(self, prometheus):
        by = "gen_ai_tool_name, error_type"
        found = prometheus.by(
            f"sum by ({by}) (gen_ai_execute_tool_duration_seconds_count)",
            "gen_ai_tool_name",
            "error_type",
        )
        assert found == times(script.TOOL_CALLS)
        of_runs = prometheus.value("sum(gen_ai_invoke_agent_tool_calls_sum)")
        assert of_runs == sum(found.values())

    def test_calls_that_were_not_made(self, prometheus):
        labels = ("gen_ai_agent_name", "gen_ai_tool_name", "treadle_reason")
        assert prometheus.by("treadle_tool_calls_not_run_total", *labels) == times(script.NOT_RUN)

    def test_breakers(self, prometheus):
        found = prometheus.by(
            "treadle_circuit_breaker_transitions_total",
            "gen_ai_tool_name",
            "treadle_circuit_breaker_state",
        )
        assert found == times(script.TRANSITIONS)

    def test_compactions(self, prometheus):
        labels = ("gen_ai_agent_name", "treadle_is_summarized")
        found = prometheus.by("treadle_compactions_total", *labels)
        assert found == times(script.COMPACTIONS)

    def test_retries(self, prometheus):
        found = prometheus.by("treadle_model_retries_total", "gen_ai_agent_name", "error_type")
        assert found == times(script.RETRIES)

    def test_streamed_answers_alone_have_a_first_chunk(self, prometheus):
        found = prometheus.by(
            "gen_ai_client_operation_time_to_first_chunk_seconds_count", "gen_ai_agent_name"
        )
        assert found == {"assistant": ROUNDS}


class TestWhatPanelsShow:
    """The answers are what their titles say. Growth is that of the second round; shares and means are exact."""

    def test_active_runs(self, prometheus):
        assert prometheus.value(asked("active_runs")) == 1
        agents = prometheus.by(asked("active_runs_by_agent"), "gen_ai_agent_name")
        assert {agent for agent, count in agents.items() if count} == {"waiting"}

    def test_runs(self, prometheus):
        """Prometheus extrapolates the growth between the first scrape and the last to one more interval."""
        assert 1 <= prometheus.value(asked("runs")) / ALL_RUNS < 2

    def test_stop_reasons(self, prometheus):
        for key in ("stop_reasons", "stop_reasons_total"):
            found = prometheus.by(asked(key), "treadle_stop_reason")
            assert proportions(found) == shares(runs_by(1))

    def test_runs_per_minute_by_agent(self, prometheus):
        found = prometheus.by(asked("runs_per_minute"), "gen_ai_agent_name")
        assert proportions(found) == shares(runs_by(0))

    def test_answered(self, prometheus):
        good = runs_by(1)["answered"] + runs_by(1)["finished"]
        assert prometheus.value(asked("answered")) == pytest.approx(good / ALL_RUNS)

    def test_budgets_exhausted(self, prometheus):
        assert prometheus.value(asked("budget_exhausted", 0)) == pytest.approx(3 / ALL_RUNS)
        assert prometheus.value(asked("budget_exhausted", 1)) == pytest.approx(1 / ALL_RUNS)

    def test_budgets_that_were_never_exhausted_are_zero_and_not_missing(self, prometheus):
        assert prometheus.value(asked("budget_exhausted", 0, agent=exactly("lead"))) == 0

    def test_iterations(self, prometheus):
        """The runs of the agent with guards: 3, 4 and five times 2 iterations."""
        half = prometheus.value(asked("iterations", 0, agent=exactly("guarded")))
        most = prometheus.value(asked("iterations", 1, agent=exactly("guarded")))
        assert 1 < half <= 2
        assert 3 < most <= 4

    def test_the_heatmap_has_a_series_for_each_bucket(self, prometheus):
        found = prometheus.by(asked("iterations_heatmap", agent=exactly("guarded")), "le")
        found = {float(bound): count for bound, count in found.items()}
        assert set(found) == {*names.ITERATIONS_BUCKETS, math.inf}
        whole = found[math.inf]
        assert found[1] == 0
        assert found[2] / whole == pytest.approx(5 / 7)
        assert found[3] / whole == pytest.approx(6 / 7)
        assert found[4] == whole

    def test_calls_of_a_run(self, prometheus):
        ran = sum(script.TOOL_CALLS.values())
        assert prometheus.value(asked("calls_per_run", 0)) == pytest.approx(ran / ALL_RUNS)
        assert prometheus.value(asked("calls_per_run", 2, agent=exactly("lead"))) == pytest.approx(
            2
        )

    def test_tool_calls_and_errors(self, prometheus):
        errors = {key: count for key, count in script.TOOL_CALLS.items() if key[1]}
        found = prometheus.by(asked("tool_errors"), "gen_ai_tool_name", "error_type")
        assert proportions(found) == shares(errors)
        found = prometheus.by(asked("tool_calls"), "gen_ai_tool_name")
        assert found["flaky"] / found["search"] == pytest.approx(3 / 4)

    def test_tool_latency(self, prometheus):
        """The slow tool is given up after 0.05 s, in the bucket from 0.04 s."""
        found = prometheus.by(asked("tool_latency"), "gen_ai_tool_name")
        assert set(found) == {tool for tool, _ in script.TOOL_CALLS}
        assert found["slow"] > 0.04

    def test_open_breakers(self, prometheus):
        """Each round leaves one of `search` open, and closes that of `flaky`."""
        assert prometheus.by(asked("breakers_open"), "gen_ai_tool_name") == {
            "search": ROUNDS,
            "flaky": 0,
        }

    def test_compactions(self, prometheus):
        """Prometheus extrapolates the growth between the first scrape and the last."""
        found = prometheus.by(asked("compactions"), "treadle_is_summarized")
        assert found == {"true": pytest.approx(60 / 300, rel=1)}

    def test_runs_broken_off(self, prometheus):
        found = prometheus.by(asked("broken_runs"), "treadle_stop_reason")
        assert proportions(found) == {"circuit_broken": 0.5, "loop_detected": 0.5}

    def test_tokens_per_second(self, prometheus):
        found = prometheus.by(asked("tokens"), "gen_ai_token_type")
        assert found["input"] / found["output"] == pytest.approx(
            script.INPUT_TOKENS / script.OUTPUT_TOKENS
        )

    def test_the_model_is_named_as_it_was_asked_for_and_as_it_answered(self, prometheus):
        for key in ("model_latency", "time_to_first_chunk", "output_speed", "cost_per_hour"):
            found = prometheus.by(asked(key), "gen_ai_request_model", "gen_ai_response_model")
            assert ("script", "script-1") in found

    def test_model_errors(self, prometheus):
        """The model of the agent that fails answers nine times, and once it does not."""
        found = prometheus.value(asked("model_errors", agent=exactly("failing")))
        assert found == pytest.approx(1 / 10)

    def test_cost(self, prometheus):
        assert prometheus.value(asked("mean_cost")) == pytest.approx(COST / ALL_RUNS)
        assert prometheus.value(asked("cost_per_run")) == pytest.approx(COST / ALL_RUNS)
        an_hour = f"sum({asked('cost_per_hour')}) / {asked('cost')}"
        assert prometheus.value(an_hour) == pytest.approx(60 / 5)


class TestAgents:
    """A dashboard of one agent shows that agent."""

    def test_one_by_its_name(self, prometheus):
        found = prometheus.by(
            asked("runs_per_minute", agent=exactly("researcher")), "gen_ai_agent_name"
        )
        assert set(found) == {"researcher"}

    def test_all_are_those_without_a_name_too(self, prometheus):
        found = prometheus.by(asked("runs_per_minute"), "gen_ai_agent_name")
        assert set(found) == {agent for agent, _ in script.RUNS}

    def test_those_without_a_name_alone(self, prometheus):
        found = prometheus.by(asked("runs_per_minute", agent=exactly("")), "gen_ai_agent_name")
        assert set(found) == {""}

    def test_a_name_that_looks_like_a_regular_expression_is_a_name(self, prometheus):
        for name in ("lea.", 'a"b', "back\\slash", "lead|guarded", "a b", "zoë", "{range}"):
            assert prometheus.query(asked("runs_per_minute", agent=exactly(name))) == []
