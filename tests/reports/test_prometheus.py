"""A real Prometheus that scraped real runs answers every question of the dashboard and of the rules."""

import math

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


def asked(key, number=0, **filled):
    """The question of a panel, over the whole time of the test."""
    filled = {"window": "5m", "range": "5m", **filled}
    return fill(PANEL[key].queries[number].expression, **filled)


def times(counts, number=ROUNDS):
    return {key: count * number for key, count in counts.items()}


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


class TestWhatPanelsShow:
    """The answers are what their titles say. Growth is that of the second round; shares and means are exact."""

    def test_active_runs(self, prometheus):
        assert prometheus.value(asked("active_runs")) == 1
        agents = prometheus.by(asked("active_runs_by_agent"), "gen_ai_agent_name")
        assert {agent for agent, count in agents.items() if count} == {"waiting"}

    def test_budgets_that_were_never_exhausted_are_zero_and_not_missing(self, prometheus):
        assert prometheus.value(asked("budget_exhausted", 0, agent=exactly("lead"))) == 0

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

    def test_open_breakers(self, prometheus):
        """Each round leaves one of `search` open, and closes that of `flaky`."""
        assert prometheus.by(asked("breakers_open"), "gen_ai_tool_name") == {
            "search": ROUNDS,
            "flaky": 0,
        }


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
