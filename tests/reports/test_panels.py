"""The list of panels is whole and consistent; what it asks is put to a real Prometheus in test_prometheus.py."""

import re
from pathlib import Path
from typing import get_args

import pytest

from treadle import results as types
from treadle.reports.dashboards import expressions
from treadle.reports.dashboards.panel import Question, exactly, fill
from treadle.reports.dashboards.panels import PANELS, ROWS
from treadle.reports.dashboards.promql import AGENT, Growth, Matcher, Selector

from .rules import ALERTS, RECORDING_RULES, TEXT

GUIDE = Path(__file__).parents[2] / "docs" / "guide-dashboards.md"
QUERIES = [
    pytest.param(query, id=f"{panel.key}-{number}")
    for panel in PANELS
    for number, query in enumerate(panel.queries)
]


def every_stop_reason():
    """Of every kind of reason, and of results that are no error."""
    reasons = {kind.stop_reason for kind in get_args(types.Reason)}
    return reasons | {"answered", "output", "finished", "paused"}


@pytest.mark.parametrize("query", QUERIES)
def test_nothing_is_left_to_fill_in(query):
    filled = fill(query.expression, agent="an agent", window="7m", range="8h")
    assert not re.search(r"\{\w+\}", filled)
    assert "[7m]" in filled or "[8h]" in filled or "[" not in str(query.expression)


@pytest.mark.parametrize("query", QUERIES)
def test_a_question_asks_for_the_agent_and_for_what_treadle_counted(query):
    """Each metric is restricted so. Agents share breakers, and open ones are counted over all of them."""
    metrics = re.findall(
        r"\b((?:gen_ai|treadle)_\w+)\{([^}]*)\}", fill(query.expression, agent="me")
    )
    assert metrics
    for metric, inside in metrics:
        is_shared = metric == expressions.BREAKER and "=~" not in inside
        assert is_shared or 'gen_ai_agent_name=~"me"' in inside.split(",")
        assert metric.startswith("treadle_") or 'otel_scope_name=~"treadle|"' in inside.split(",")


@pytest.mark.parametrize("query", QUERIES)
def test_a_legend_names_the_labels_that_the_answer_has(query):
    """All that its sums are made by, and no other; a quantile has no ``le`` any more."""
    kept = {
        label
        for by in re.findall(r"by \(([^)]*)\)", str(query.expression))
        for label in by.split(", ")
    }
    if "histogram_quantile" in str(query.expression):
        kept.remove("le")
    assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) == kept


def test_the_rows_hold_all_panels_once():
    assert [panel for row in ROWS.values() for panel in row] == list(PANELS)
    keys = [panel.key for panel in PANELS]
    titles = [panel.title for panel in PANELS]
    assert len(set(keys)) == len(keys)
    assert len(set(titles)) == len(titles)


def test_a_panel_that_shows_the_whole_time_at_once_asks_for_all_of_it():
    """One number and a table have no time axis, so a rate over a window would be of its last bit alone."""
    for panel in PANELS:
        for query in panel.queries:
            is_at_once = panel.kind in {"stat", "table"}
            wrong = "{window}" if is_at_once else "{range}"
            assert wrong not in str(query.expression)


def test_the_reasons_that_questions_name_are_reasons():
    for reasons in (expressions.GOOD, expressions.LIMITS, expressions.GUARDS, "paused"):
        assert set(reasons.split("|")) <= every_stop_reason()


def test_every_guard_is_a_limit_or_in_the_panel_of_guards():
    """None was forgotten when a reason was added."""
    guards = {kind.stop_reason for kind in get_args(types.Reason) if kind.is_guard}
    limits, others = (set(one.split("|")) for one in (expressions.LIMITS, expressions.GUARDS))
    assert limits | others == guards - {"limit_not_measurable"}
    assert not limits & others
    assert limits == {"max_iterations_reached", "budget_exhausted", "deadline_exceeded"}


@pytest.mark.parametrize(
    ("name", "filled"),
    [
        ("helper", "helper"),
        ("", ""),
        ("a.b", r"a\\.b"),
        ('say "hi"', r"say\\ \"hi\""),
        ("back\\slash", r"back\\\\slash"),
        ("a|b", r"a\\|b"),
    ],
)
def test_an_agent_by_its_very_name(name, filled):
    """As a regular expression, within a string of PromQL."""
    assert exactly(name) == filled
    asked = Selector("x", (Matcher("a", "=~", AGENT),))
    assert fill(asked, agent=exactly(name)) == f'x{{a=~"{filled}"}}'
    assert str(Question(asked, name, 60, 60)) == f'x{{a=~"{filled}"}}'


def test_what_is_filled_in_is_not_looked_at_again():
    asked = Growth("rate", Selector("x", (Matcher("a", "=~", AGENT),)), "window")
    assert fill(asked, agent="{window}", window="{range}") == 'rate(x{a=~"{window}"}[{range}])'


def test_by_default_a_question_is_of_every_agent():
    asked = Selector("x", (Matcher("a", "=~", AGENT),))
    assert fill(asked) == str(Question(asked, None, 60, 60)) == 'x{a=~".*"}'


@pytest.mark.parametrize(
    ("seconds", "written"), [(90, "90000ms"), (0.0004, "1ms"), (0.1234, "123ms")]
)
def test_a_duration_is_written_in_milliseconds(seconds, written):
    growth = Growth("increase", Selector("x"), "range")
    assert str(Question(growth, None, 1, seconds)) == f"increase(x[{written}])"


def test_alerts_read_series_that_are_recorded():
    recorded = {one.name for one in RECORDING_RULES}
    read = {name for alert in ALERTS for name in re.findall(r"treadle:\w+:\w+", alert.expression)}
    assert read <= recorded
    assert len(recorded) == len(RECORDING_RULES) == TEXT.count("- record:")
    assert len(ALERTS) == TEXT.count("- alert:")


def test_rules_read_only_metrics_that_treadle_exported():
    """As panels do: those of the same names that others export are left out."""
    named = re.sub(r'__name__=~\\"[^"]*",', "{", TEXT)
    restrictions = re.findall(r"gen_ai_\w+_(?:count|sum|bucket)\b(.{,30})", named)
    assert set(restrictions) == {r"{otel_scope_name=~\"treadle|\""}


def test_rules_name_the_reasons_and_errors_that_panels_name():
    reasons = set(re.findall(r'treadle_stop_reason=~\\"([^"\\]*)', TEXT))
    assert reasons == {
        expressions.GOOD,
        f"{expressions.LIMITS}|finished",
        "loop_detected",
    }
    errors = set(re.findall(r'error_type!~\\"[^"]*"', TEXT))
    assert {error.replace("\\", "") for error in errors} == {str(expressions.FAILED)}
    ended = set(re.findall(r'treadle_stop_reason!=\\"[^"]*"', TEXT))
    assert {one.replace("\\", "") for one in ended} == {str(expressions.ENDED)}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_what_happened_and_what_to_do(alert):
    assert "{{" in alert.summary
    assert alert.description.endswith(".")
    assert alert.runbook.endswith(".")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.key)
def test_the_guide_tells_of_every_panel(panel):
    assert f"| {panel.title} | {panel.description} |" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_guide_tells_of_every_alert(alert):
    assert re.search(
        rf"^\| `{alert.name}` \| {alert.severity} \| \w", GUIDE.read_text("utf-8"), re.MULTILINE
    )


@pytest.mark.parametrize("one", RECORDING_RULES, ids=lambda one: one.name)
def test_the_guide_tells_of_every_recorded_series(one):
    assert f"| `{one.name}` | {one.meaning} |" in GUIDE.read_text(encoding="utf-8")
