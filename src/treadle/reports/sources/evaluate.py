"""Evaluates the queries of the panels on samples of recorded runs.

The results are those of Prometheus, with two exceptions that use the exact samples: a rate is the increase in the
window divided by its length, without extrapolation, and a quantile is exact instead of interpolated in buckets.
"""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

from treadle.codec import finite
from treadle.reports.dashboards.panel import Question
from treadle.reports.dashboards.promql import (
    Binary,
    Compared,
    Expression,
    Growth,
    Quantile,
    Scaled,
    Selector,
    Sum,
    Vector,
)
from treadle.reports.sources.samples import Labels, Sample
from treadle.reports.sources.source import Grid, Series


@dataclass(slots=True)
class Track:
    """The samples of one series: their times, sorted, and their values."""

    labels: Labels
    times: list[float] = field(default_factory=list[float])
    values: list[float] = field(default_factory=list[float])

    def until(self, time: float, window: float | None = None) -> list[float] | None:
        """The values up to a time, in a window before it; None before the first sample of the series."""
        end = bisect_right(self.times, time)
        start = 0 if window is None else bisect_right(self.times, time - window)
        return self.values[start:end] if end else None


class Store:
    """Finds the series of samples in any order. Values that are not finite are left out."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._tracks: defaultdict[str, dict[Labels, Track]] = defaultdict(dict)
        for sample in sorted(samples, key=lambda one: one.at):
            value = finite(sample.value)
            if value is not None:
                tracks = self._tracks[sample.metric]
                track = tracks.setdefault(sample.labels, Track(sample.labels))
                track.times.append(sample.at)
                track.values.append(value)

    def find(self, of: Selector, agent: str | None = None) -> Iterator[Track]:
        """The series that match. For a series of a histogram, the histogram."""
        metric = _HISTOGRAM_SUFFIX.sub("", of.metric)
        for track in self._tracks.get(metric, {}).values():
            labels = dict(track.labels)
            if all(one.fits(labels.get(one.label, ""), agent) for one in of.matchers):
                yield track

    def span(self) -> tuple[float, float] | None:
        """The times of the first and the last sample; None if there are none."""
        tracks = [track for tracks in self._tracks.values() for track in tracks.values()]
        if not tracks:
            return None
        return min(one.times[0] for one in tracks), max(one.times[-1] for one in tracks)


Column: TypeAlias = list[float | None]
"""A value for each time of the grid."""
Columns: TypeAlias = dict[Labels, Column]
"""A column for each series."""
Bounds: TypeAlias = Mapping[str, tuple[float, ...]]
"""Of each histogram, the upper bounds of its buckets."""

_HISTOGRAM_SUFFIX = re.compile("_(bucket|count|sum)$")


def evaluate(question: Question, grid: Grid, store: Store, bounds: Bounds) -> list[Series]:
    """Evaluate a query. Series without a finite value are left out."""
    found = _Evaluation(question, grid, store, bounds).columns(question.expression)
    finite_columns = ((labels, [*map(finite, column)]) for labels, column in found.items())
    return [
        Series(dict(labels), column)
        for labels, column in finite_columns
        if any(one is not None for one in column)
    ]


class _Evaluation:
    def __init__(self, question: Question, grid: Grid, store: Store, bounds: Bounds) -> None:
        self._question = question
        self._grid = grid
        self._store = store
        self._bounds = bounds

    def columns(self, node: Expression) -> Columns:
        match node:
            case Selector():
                return {track.labels: self._sums(track) for track in self._tracks(node)}
            case Growth():
                return self._grown(node)
            case Sum(of, by):
                return _sum(by, self.columns(of))
            case Quantile():
                return self._quantile(node)
            case Vector(value):
                return {(): [value] * self._grid.count}
            case _:
                return self._calculated(node)

    def _calculated(self, node: Scaled | Compared | Binary) -> Columns:
        match node:
            case Scaled(factor, of):
                return _each(self.columns(of), lambda value: factor * value)
            case Compared(of, sign):
                fits = _COMPARISONS[sign]
                return _each(self.columns(of), lambda value: value if fits(value, 0) else None)
            case Binary(left, "or", right):
                return _either(self.columns(left), self.columns(right))
            case Binary(left, sign, right):
                return _both(_ARITHMETIC[sign], self.columns(left), self.columns(right))

    def _tracks(self, of: Selector) -> Iterator[Track]:
        return self._store.find(of, self._question.agent)

    def _sums(self, track: Track) -> Column:
        """The value of a gauge or a counter. No value before its first sample."""
        sums = list(accumulate(track.values))
        counts = (len(track.until(time) or ()) for time in self._grid)
        return [sums[count - 1] if count else None for count in counts]

    def _grown(self, node: Growth) -> Columns:
        """The increase of counters in the window before each time."""
        is_whole = node.over == "range"
        window = self._question.range if is_whole else self._question.window
        per = window if node.function == "rate" else 1.0
        metric, columns = node.of.metric, Columns()
        for track in self._tracks(node.of):
            if not metric.endswith("_bucket"):
                measure = len if metric.endswith("_count") else sum
                columns[track.labels] = self._measured(track, window, per, measure)
                continue
            for bound in (*self._bounds[metric.removesuffix("_bucket")], math.inf):
                labels = tuple(sorted((*track.labels, ("le", _bound(bound)))))
                columns[labels] = self._measured(track, window, per, _counter(bound))
        return columns

    def _measured(
        self, track: Track, window: float, per: float, measure: Callable[[list[float]], float]
    ) -> Column:
        windows = (track.until(time, window) for time in self._grid)
        return [None if values is None else measure(values) / per for values in windows]

    def _quantile(self, node: Quantile) -> Columns:
        """The smallest value that is not exceeded by the given share of values; NaN without values."""
        groups: defaultdict[Labels, list[Track]] = defaultdict(list)
        for track in self._tracks(node.of):
            groups[_kept(track.labels, node.by)].append(track)
        window, columns = self._question.window, Columns()
        for labels, tracks in groups.items():
            columns[labels] = []
            for time in self._grid:
                values = sorted(one for track in tracks for one in track.until(time, window) or ())
                place = max(0, math.ceil(node.share * len(values) - 1e-9) - 1)
                columns[labels].append(values[place] if values else math.nan)
        return columns


def _counter(bound: float) -> Callable[[list[float]], float]:
    return lambda values: sum(value <= bound for value in values)


def _bound(bound: float) -> str:
    """As Prometheus writes the bound of a bucket."""
    if math.isinf(bound):
        return "+Inf"
    return str(int(bound)) if float(bound).is_integer() else repr(bound)


def _kept(labels: Labels, by: str) -> Labels:
    names = by.split(", ")
    return tuple((name, value) for name, value in labels if name in names)


def _sum(by: str, columns: Columns) -> Columns:
    groups: defaultdict[Labels, list[Column]] = defaultdict(list)
    for labels, column in columns.items():
        groups[_kept(labels, by)].append(column)
    return {
        labels: [_total(values) for values in zip(*group, strict=True)]
        for labels, group in groups.items()
    }


def _total(values: tuple[float | None, ...]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def _divided(left: float, right: float) -> float:
    if right:
        return left / right
    return math.copysign(math.inf, left) if left else math.nan


_Operator: TypeAlias = Callable[[float, float], float]
_ARITHMETIC: Mapping[str, _Operator] = {"-": operator.sub, "/": _divided}
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {">": operator.gt, ">=": operator.ge}


def _each(columns: Columns, change: Callable[[float], float | None]) -> Columns:
    return {
        labels: [None if value is None else change(value) for value in column]
        for labels, column in columns.items()
    }


def _both(apply: _Operator, left: Columns, right: Columns) -> Columns:
    """The results for the series that both sides have."""
    return {
        labels: [
            None if a is None or b is None else apply(a, b)
            for a, b in zip(column, right[labels], strict=True)
        ]
        for labels, column in left.items()
        if labels in right
    }


def _either(left: Columns, right: Columns) -> Columns:
    """The values of the left side, and of the right side where the left has none."""
    columns = {**left, **right}
    for labels in left.keys() & right.keys():
        pairs = zip(left[labels], right[labels], strict=True)
        columns[labels] = [b if a is None else a for a, b in pairs]
    return columns
