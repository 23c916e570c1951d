"""PromQL over recorded measurements: what the panels use is computed as Prometheus does, all else is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.reports.dashboard_page.data import named
from treadle.reports.dashboards.panel import fill
from treadle.reports.dashboards.panels import PANELS, TOOLS
from treadle.reports.sources.evaluate import Store, evaluate
from treadle.reports.sources.promql import Binary, Matcher, Number, Selector, Sum, parse, seconds
from treadle.reports.sources.samples import Sample, labels_of
from treadle.reports.sources.source import Grid, RefusedError, duration

BOUNDS = {"took": (1.0, 2.0, 5.0)}
GRID = Grid(10, 10, 3)
"""At 10, 20 and 30."""


def store(*samples):
    """Measurements, each a metric, labels, a time and a value."""
    return Store(
        Sample(metric, labels_of(labels), at, value) for metric, labels, at, value in samples
    )


def values(expression, kept, grid=GRID):
    """The values of each series, by its labels."""
    found = evaluate(expression, grid, kept, BOUNDS)
    return {tuple(sorted(one.labels.items())): list(one.values) for one in found}


def one(expression, kept=None, grid=GRID):
    """The values of the one series."""
    [found] = values(expression, kept or store(), grid).values()
    return found


COUNTED = store(
    ("c_total", {"a": "x"}, 5, 1), ("c_total", {"a": "x"}, 15, 2), ("c_total", {"a": "y"}, 20, 4)
)  # fmt: skip


# Reading


@pytest.mark.parametrize(
    "expression",
    sorted(
        {query.expression for panel in PANELS for query in panel.queries}
        | {c.query.expression for c in TOOLS}
    ),
)
def test_what_the_panels_ask_can_be_read_and_computed(expression):
    evaluate(fill(expression, agent=".*"), GRID, store(), BOUNDS)


def test_operators_hold_on_as_strongly_as_in_promql():
    assert parse("1 + 2 * 3 - 4") == Binary(
        "-", Binary("+", Number(1), Binary("*", Number(2), Number(3))), Number(4)
    )
    assert parse("a / b > 0 or c") == Binary(
        "or",
        Binary(">", Binary("/", Selector("a", ()), Selector("b", ())), Number(0)),
        Selector("c", ()),
    )


def test_selectors_and_sums_are_read_with_all_that_they_have():
    expression = r'sum by (a, b) (x:y{c="d\"e", f=~"g|h",} [1h30m])'
    matchers = (Matcher("c", "=", 'd"e'), Matcher("f", "=~", "g|h"))
    assert parse(expression) == Sum(("a", "b"), Selector("x:y", matchers, 5400))


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "(",
        "a)",
        "1 +",
        "a{b}",
        'a{b>"c"}',
        "a[",
        "a[5]",
        "a[5x]",
        "sum by a (b)",
        "f(",
        "a b",
        "a{b='c'}",
        "@",
    ],
)
def test_what_is_no_promql_is_refused(expression):
    with pytest.raises(RefusedError, match="cannot read"):
        parse(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "avg_over_time(a[5m])",
        "topk(3, a)",
        "rate(a)",
        "rate(sum(a))",
        "a[5m]",
        "histogram_quantile(0.5, rate(took_bucket[5m]))",
        "histogram_quantile(0.5, sum(rate(took_bucket[5m])))",
        "histogram_quantile(0.5, sum by (le) (rate(took_count[5m])))",
        "1 > 2",
        "1 or a",
        "a or 1",
        "sum(1)",
        "vector(a)",
    ],
)
def test_what_is_not_computed_here_is_refused(expression):
    with pytest.raises(RefusedError):
        evaluate(expression, GRID, COUNTED, BOUNDS)


@given(st.floats(0.001, 10**8))
def test_a_duration_is_read_as_it_is_written(length):
    assert seconds(duration(length)) == pytest.approx(length, abs=0.0006)


# Computing


def test_a_rate_is_what_came_in_the_window_over_its_length():
    """What came right at its start is in the window before."""
    assert values("rate(c_total[10s])", COUNTED) == {
        (("a", "x"),): [0.1, 0.2, 0],
        (("a", "y"),): [None, 0.4, 0],
    }
    assert one("sum(increase(c_total[20s]))", COUNTED) == [1, 7, 6]


def test_series_are_summed_by_what_is_kept():
    assert values("sum by (a) (increase(c_total[30s]))", COUNTED) == {
        (("a", "x"),): [1, 3, 3],
        (("a", "y"),): [None, 4, 4],
    }
    assert one("sum by (b) (increase(c_total[30s]))", COUNTED) == [1, 7, 7]


@pytest.mark.parametrize(
    ("matcher", "found"),
    [
        ('a="x"', ["x"]),
        ('a!="x"', ["y"]),
        ('a=~"x|z"', ["x"]),
        ('a=~"."', ["x", "y"]),
        ('a=~""', []),
        ('a!~"y"', ["x"]),
        ('b=""', ["x", "y"]),
        ('b=~"treadle|"', ["x", "y"]),
        ('b!=""', []),
        ('a="x",a="y"', []),
    ],
)
def test_matchers_choose_as_in_prometheus(matcher, found):
    """The whole value has to fit, and a label that is not there is empty."""
    assert [dict(labels)["a"] for labels in values(f"c_total{{{matcher}}}", COUNTED)] == found


def test_a_gauge_is_the_sum_of_its_changes():
    kept = store(("g", {}, 12, 1), ("g", {}, 13, 1), ("g", {}, 25, -1))
    assert one("g", kept) == [None, 2, 1]


def test_a_histogram_is_counted_summed_and_put_into_buckets():
    kept = store(*(("took", {"a": "x"}, 15, value) for value in (0.5, 1.0, 3.0, 7.0)))
    assert one("sum(increase(took_count[10s]))", kept) == [None, 4, 0]
    assert one("sum(increase(took_sum[10s]))", kept) == [None, 11.5, 0]
    assert values("sum by (le) (increase(took_bucket[10s]))", kept, Grid.at(20)) == {
        (("le", "1"),): [2],
        (("le", "2"),): [2],
        (("le", "5"),): [3],
        (("le", "+Inf"),): [4],
    }


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_a_quantile_is_the_smallest_value_that_so_many_do_not_exceed(measured, share):
    kept = store(*(("took", {}, 15, value) for value in measured))
    [found] = one(
        f"histogram_quantile({share}, sum by (le) (rate(took_bucket[10s])))", kept, Grid.at(20)
    )
    assert found in measured
    assert sum(value <= found for value in measured) >= share * len(measured) - 1e-6
    assert sum(value < found for value in measured) < max(share * len(measured), 1)


def test_a_quantile_is_taken_for_each_group_and_of_nothing_is_nothing():
    kept = store(
        ("took", {"a": "x"}, 15, 3),
        ("took", {"a": "y", "b": "1"}, 15, 4),
        ("took", {"a": "y"}, 25, 9),
    )
    assert values(
        "histogram_quantile(0.5, sum by (le, a) (rate(took_bucket[10s]))) >= 0", kept
    ) == {
        (("a", "x"),): [None, 3, None],
        (("a", "y"),): [None, 4, 9],
    }


def test_sides_meet_where_their_labels_are_the_same():
    kept = store(("p", {"a": "x"}, 5, 6), ("q", {"a": "x"}, 5, 3), ("q", {"a": "y"}, 5, 1))
    assert values("p / q", kept) == {(("a", "x"),): [2, 2, 2]}
    assert values("p - q * 2", kept) == {(("a", "x"),): [0, 0, 0]}
    assert values("10 * q + 1", kept) == {(("a", "x"),): [31, 31, 31], (("a", "y"),): [11, 11, 11]}


def test_a_comparison_lets_values_through():
    kept = store(("g", {}, 5, 1), ("g", {}, 15, -1), ("g", {}, 25, 2))
    assert one("g > 0", kept) == [1, None, 2]
    assert one("g >= 0", kept) == [1, 0, 2]
    assert one("g == 0", kept) == [None, 0, None]
    assert one("g < 2", kept) == [1, 0, None]


def test_or_fills_in_what_the_left_does_not_have():
    kept = store(("g", {}, 15, 5), ("h", {"a": "x"}, 5, 7))
    assert one("g or vector(0)", kept) == [0, 5, 5]
    assert values("g or h", kept) == {(): [None, 5, 5], (("a", "x"),): [7, 7, 7]}


def test_what_is_no_number_is_nothing():
    """A division by nothing, in both ways."""
    kept = store(("g", {}, 5, 0), ("h", {}, 5, 1))
    assert values("g / g", kept) == {}
    assert values("h / g", kept) == {}
    assert one("1 / 4", kept) == [0.25] * 3


def test_measurements_may_come_in_any_order():
    forward = [("c_total", {}, at, at) for at in range(1, 30)]
    assert one("increase(c_total[10s])", store(*forward)) == one(
        "increase(c_total[10s])", store(*forward[::-1])
    )
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
    assert one("increase(c_total[10s])", kept, Grid.at(20)) == [1]
