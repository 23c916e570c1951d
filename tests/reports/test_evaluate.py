"""Queries of the panels, evaluated on recorded measurements as Prometheus does."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.reports.dashboard_page.data import named
from treadle.reports.dashboards.panel import Question
from treadle.reports.dashboards.panels import PANELS, TOOLS
from treadle.reports.dashboards.promql import (
    AGENT,
    Binary,
    Compared,
    Growth,
    Matcher,
    Quantile,
    Scaled,
    Selector,
    Sum,
    Vector,
)
from treadle.reports.sources.evaluate import Store, evaluate
from treadle.reports.sources.samples import Sample, labels_of
from treadle.reports.sources.source import Grid

BOUNDS = {"took": (1.0, 2.0, 5.0)}
GRID = Grid(10, 10, 3)
"""At 10, 20 and 30."""


def store(*samples):
    """Measurements, each a metric, labels, a time and a value."""
    return Store(
        Sample(metric, labels_of(labels), at, value) for metric, labels, at, value in samples
    )


def values(expression, kept, grid=GRID, *, window=10, agent=None):
    """The values of each series, by its labels."""
    question = Question(expression, agent, window, window)
    found = evaluate(question, grid, kept, BOUNDS)
    return {tuple(sorted(one.labels.items())): list(one.values) for one in found}


def one(expression, kept, grid=GRID, **options):
    """The values of the one series."""
    [found] = values(expression, kept, grid, **options).values()
    return found


def rate(metric):
    return Growth("rate", Selector(metric), "window")


def increase(metric):
    return Growth("increase", Selector(metric), "range")


COUNTED = store(
    ("c_total", {"a": "x"}, 5, 1), ("c_total", {"a": "x"}, 15, 2), ("c_total", {"a": "y"}, 20, 4)
)  # fmt: skip


@pytest.mark.parametrize(
    "expression",
    [
        *(query.expression for panel in PANELS for query in panel.queries),
        *(column.expression for column in TOOLS),
    ],
    ids=str,
)
def test_what_the_panels_ask_can_be_computed(expression):
    assert len(values(expression, store())) <= 1  # `or vector(0)` has a value all the same


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (
            Binary(Sum(Selector("a")), "-", Binary(Vector(1), "or", Scaled(0, Sum(Selector("b"))))),
            "sum(a) - (vector(1) or 0 * sum(b))",
        ),
        (
            Binary(Binary(Selector("a"), "or", Vector(0)), "/", Compared(Sum(rate("b"), "c"), ">")),
            "(a or vector(0)) / (sum by (c) (rate(b[{window}])) > 0)",
        ),
        (
            Compared(Quantile(0.5, Selector("a_bucket", (Matcher("b", "!=", "c"),)), "d, e"), ">="),
            'histogram_quantile(0.5, sum by (le, d, e) (rate(a_bucket{b!="c"}[{window}]))) >= 0',
        ),
    ],
)
def test_an_expression_is_written_as_promql(expression, text):
    assert str(expression) == text


def test_a_rate_is_what_came_in_the_window_over_its_length():
    """What came right at its start is in the window before."""
    assert values(rate("c_total"), COUNTED) == {
        (("a", "x"),): [0.1, 0.2, 0],
        (("a", "y"),): [None, 0.4, 0],
    }
    assert one(Sum(increase("c_total")), COUNTED, window=20) == [1, 7, 6]


def test_each_placeholder_has_its_length():
    question = Question(Sum(increase("c_total")), None, 1, 20)
    assert evaluate(question, Grid.at(20), COUNTED, BOUNDS)[0].values == [7]
    question = Question(Sum(rate("c_total")), None, 10, 1)
    assert evaluate(question, Grid.at(20), COUNTED, BOUNDS)[0].values == [pytest.approx(0.6)]


def test_series_are_summed_by_what_is_kept():
    grown = increase("c_total")
    assert values(Sum(grown, "a"), COUNTED, window=30) == {
        (("a", "x"),): [1, 3, 3],
        (("a", "y"),): [None, 4, 4],
    }
    assert one(Sum(grown, "b"), COUNTED, window=30) == [1, 7, 7]


@pytest.mark.parametrize(
    ("matchers", "found"),
    [
        ([("a", "=", "x")], ["x"]),
        ([("a", "!=", "x")], ["y"]),
        ([("a", "=~", "x|z")], ["x"]),
        ([("a", "=~", ".")], ["x", "y"]),
        ([("a", "=~", "")], []),
        ([("a", "!~", "y")], ["x"]),
        ([("b", "=", "")], ["x", "y"]),
        ([("b", "=~", "treadle|")], ["x", "y"]),
        ([("b", "!=", "")], []),
        ([("a", "=", "x"), ("a", "=", "y")], []),
    ],
)
def test_matchers_choose_as_in_prometheus(matchers, found):
    """The whole value has to fit, and a label that is not there is empty."""
    selector = Selector("c_total", tuple(Matcher(*matcher) for matcher in matchers))
    assert [dict(labels)["a"] for labels in values(selector, COUNTED)] == found


@pytest.mark.parametrize(("agent", "found"), [(None, ["", ".", "x"]), (".", ["."]), ("", [""])])
def test_an_agent_is_chosen_by_its_very_name(agent, found):
    kept = store(*(("g", {"name": name}, 5, 1) for name in ("x", ".", "")))
    selector = Selector("g", (Matcher("name", "=~", AGENT),))
    chosen = values(selector, kept, agent=agent)
    assert sorted(dict(labels).get("name", "") for labels in chosen) == found


def test_a_gauge_is_the_sum_of_its_changes():
    kept = store(("g", {}, 12, 1), ("g", {}, 13, 1), ("g", {}, 25, -1))
    assert one(Selector("g"), kept) == [None, 2, 1]


def test_a_histogram_is_counted_summed_and_put_into_buckets():
    kept = store(*(("took", {"a": "x"}, 15, value) for value in (0.5, 1.0, 3.0, 7.0)))
    assert one(Sum(increase("took_count")), kept) == [None, 4, 0]
    assert one(Sum(increase("took_sum")), kept) == [None, 11.5, 0]
    assert values(Sum(increase("took_bucket"), "le"), kept, Grid.at(20)) == {
        (("le", "1"),): [2],
        (("le", "2"),): [2],
        (("le", "5"),): [3],
        (("le", "+Inf"),): [4],
    }


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_a_quantile_is_the_smallest_value_that_so_many_do_not_exceed(measured, share):
    kept = store(*(("took", {}, 15, value) for value in measured))
    [found] = one(Quantile(share, Selector("took_bucket")), kept, Grid.at(20))
    assert found in measured
    assert sum(value <= found for value in measured) >= share * len(measured) - 1e-6
    assert sum(value < found for value in measured) < max(share * len(measured), 1)


def test_a_quantile_is_taken_for_each_group_and_of_nothing_is_nothing():
    kept = store(
        ("took", {"a": "x"}, 15, 3),
        ("took", {"a": "y", "b": "1"}, 15, 4),
        ("took", {"a": "y"}, 25, 9),
    )
    assert values(Compared(Quantile(0.5, Selector("took_bucket"), "a"), ">="), kept) == {
        (("a", "x"),): [None, 3, None],
        (("a", "y"),): [None, 4, 9],
    }


def test_sides_meet_where_their_labels_are_the_same():
    kept = store(("p", {"a": "x"}, 5, 6), ("q", {"a": "x"}, 5, 3), ("q", {"a": "y"}, 5, 1))
    p, q = Selector("p"), Selector("q")
    assert values(Binary(p, "/", q), kept) == {(("a", "x"),): [2, 2, 2]}
    assert values(Binary(p, "-", Scaled(2, Sum(q, "a"))), kept) == {(("a", "x"),): [0, 0, 0]}
    assert values(Scaled(10, Sum(q, "a")), kept) == {
        (("a", "x"),): [30, 30, 30],
        (("a", "y"),): [10, 10, 10],
    }


def test_a_comparison_lets_values_through():
    kept = store(("g", {}, 5, 0), ("g", {}, 15, -1), ("g", {}, 25, 2))
    assert one(Compared(Sum(Selector("g")), ">"), kept) == [None, None, 1]
    assert one(Compared(Sum(Selector("g")), ">="), kept) == [0, None, 1]


def test_or_fills_in_what_the_left_does_not_have():
    kept = store(("g", {}, 15, 5), ("h", {"a": "x"}, 5, 7))
    assert one(Binary(Selector("g"), "or", Vector(0)), kept) == [0, 5, 5]
    assert values(Binary(Selector("g"), "or", Selector("h")), kept) == {
        (): [None, 5, 5],
        (("a", "x"),): [7, 7, 7],
    }


def test_what_is_no_number_is_nothing():
    """A division by nothing, in both ways."""
    kept = store(("g", {}, 5, 0), ("h", {}, 5, 1))
    assert values(Binary(Selector("g"), "/", Selector("g")), kept) == {}
    assert values(Binary(Selector("h"), "/", Selector("g")), kept) == {}


def test_measurements_may_come_in_any_order():
    forward = [("c_total", {}, at, at) for at in range(1, 30)]
    grown = increase("c_total")
    assert one(grown, store(*forward)) == one(grown, store(*forward[::-1]))
    assert store(*forward).span() == (1, 29)
    assert store().span() is None


@pytest.mark.parametrize(
    ("legend", "labels", "name"),
    [
        ("{{a}} {{b}}", {"a": "x", "b": "y"}, "x y"),
        ("p50 {{a}} {{b}}", {"a": "m", "b": "m"}, "p50 m"),
        ("{{a}}", {}, ""),
        ("{{ a }}: {{b}}", {"a": "{{b}}", "b": "y"}, "{{b}}: y"),
        ("plain", {"a": "x"}, "plain"),
    ],
)
def test_a_series_is_named_by_its_legend(legend, labels, name):
    assert named(legend, labels) == name


def test_what_cannot_be_summed_is_left_out():
    kept = store(*(("c_total", {}, 15, value) for value in (1, math.inf, math.nan, 10**400)))
    assert one(increase("c_total"), kept, Grid.at(20)) == [1]
