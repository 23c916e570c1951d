"""Evaluates the queries of the panels on samples of recorded runs.

The results are those of Prometheus, with two exceptions that use the exact samples: a rate is the increase in the
window divided by its length, without extrapolation, and a quantile is exact instead of interpolated in buckets.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

from treadle.reports.json_line import finite
from treadle.reports.sources import promql
from treadle.reports.sources.samples import Labels, Sample
from treadle.reports.sources.source import Grid, RefusedError, Series


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

    def find(self, metric: str, matchers: Iterable[promql.Matcher]) -> Iterator[Track]:
        """The series of a metric that match."""
        wanted = tuple(matchers)
        for track in self._tracks.get(metric, {}).values():
            labels = dict(track.labels)
            if all(one.fits(labels.get(one.label, "")) for one in wanted):
                yield track

    def span(self) -> tuple[float, float] | None:
        """The times of the first and the last sample; None if there are none."""
        tracks = [track for tracks in self._tracks.values() for track in tracks.values()]
        if not tracks:
            return None
        return min(one.times[0] for one in tracks), max(one.times[-1] for one in tracks)


Column: TypeAlias = list[float | None]
"""A value for each time of the grid."""
Vector: TypeAlias = dict[Labels, Column]
Bounds: TypeAlias = Mapping[str, tuple[float, ...]]
"""Of each histogram, the upper bounds of its buckets."""

_SUFFIXES = ("_bucket", "_count", "_sum")
"""The suffixes of the series of a histogram."""


def evaluate(expression: str, grid: Grid, store: Store, bounds: Bounds) -> list[Series]:
    """Evaluate PromQL without placeholders. Raises `RefusedError` if it is invalid or not supported."""
    found = _Evaluation(grid, store, bounds).value(promql.parse(expression))
    if not isinstance(found, dict):
        return [Series({}, found)]
    columns = ((labels, [finite(one) for one in column]) for labels, column in found.items())
    return [
        Series(dict(labels), column)
        for labels, column in columns
        if any(one is not None for one in column)
    ]


class _Evaluation:
    def __init__(self, grid: Grid, store: Store, bounds: Bounds) -> None:
        self._grid = grid
        self._store = store
        self._bounds = bounds

    def value(self, node: promql.Node) -> Vector | Column:
        """Series, or a number for each time."""
        match node:
            case promql.Number(value):
                return self._constant(value)
            case promql.Selector(window=None):
                return {
                    track.labels: self._sums(track)
                    for track in self._store.find(node.metric, node.matchers)
                }
            case promql.Selector():
                raise RefusedError("expected an instant vector, got a range")
            case promql.Sum(by, of):
                return _sum(by, _series(self.value(of)))
            case promql.Binary(sign, left, right):
                return _binary(sign, self.value(left), self.value(right))
            case promql.Call():
                return self._called(node)

    def _called(self, call: promql.Call) -> Vector:
        match call:
            case promql.Call("vector", (promql.Number(value),)):
                return {(): self._constant(value)}
            case promql.Call("rate", (promql.Selector(window=float() as window) as of,)):
                return self._grown(of, window, window)
            case promql.Call("increase", (promql.Selector(window=float() as window) as of,)):
                return self._grown(of, window, 1.0)
            case promql.Call(
                "histogram_quantile",
                (
                    promql.Number(q),
                    promql.Sum(
                        by, promql.Call("rate", (promql.Selector(window=float() as window) as of,))
                    ),
                ),
            ) if "le" in by and of.metric.endswith("_bucket"):
                return self._quantile(q, by, of, window)
            case _:
                raise RefusedError(f"recordings do not support this use of {call.function}")

    def _constant(self, value: float) -> Column:
        return [value] * self._grid.count

    def _sums(self, track: Track) -> Column:
        """The value of a gauge or a counter. No value before its first sample."""
        sums = list(accumulate(track.values))
        counts = (len(track.until(time) or ()) for time in self._grid)
        return [sums[count - 1] if count else None for count in counts]

    def _grown(self, of: promql.Selector, window: float, per: float) -> Vector:
        """The increase of counters in the window before each time."""
        base, _, suffix = of.metric.rpartition("_")
        if f"_{suffix}" not in _SUFFIXES:
            base = of.metric
        vector: Vector = {}
        for track in self._store.find(base, of.matchers):
            if suffix != "bucket":
                measure = len if suffix == "count" else sum
                vector[track.labels] = self._measured(track, window, per, measure)
                continue
            for bound in (*self._bounds[base], math.inf):
                labels = tuple(sorted((*track.labels, ("le", _bound(bound)))))
                vector[labels] = self._measured(track, window, per, _counter(bound))
        return vector

    def _measured(
        self, track: Track, window: float, per: float, measure: Callable[[list[float]], float]
    ) -> Column:
        windows = (track.until(time, window) for time in self._grid)
        return [None if values is None else measure(values) / per for values in windows]

    def _quantile(
        self, share: float, by: tuple[str, ...], of: promql.Selector, window: float
    ) -> Vector:
        """The smallest value that is not exceeded by the given share of values; NaN without values."""
        groups: defaultdict[Labels, list[Track]] = defaultdict(list)
        for track in self._store.find(of.metric.removesuffix("_bucket"), of.matchers):
            groups[_kept(track.labels, by)].append(track)
        vector: Vector = {}
        for labels, tracks in groups.items():
            vector[labels] = []
            for time in self._grid:
                values = sorted(one for track in tracks for one in track.until(time, window) or ())
                place = max(0, math.ceil(share * len(values) - 1e-9) - 1)
                vector[labels].append(values[place] if values else math.nan)
        return vector


def _counter(bound: float) -> Callable[[list[float]], float]:
    return lambda values: sum(value <= bound for value in values)


def _bound(bound: float) -> str:
    """As Prometheus writes the bound of a bucket."""
    if math.isinf(bound):
        return "+Inf"
    return str(int(bound)) if float(bound).is_integer() else repr(bound)


def _kept(labels: Labels, by: tuple[str, ...]) -> Labels:
    return tuple((name, value) for name, value in labels if name in by)


def _series(value: Vector | Column) -> Vector:
    if not isinstance(value, dict):
        raise RefusedError("expected series, got a number")
    return value


def _sum(by: tuple[str, ...], vector: Vector) -> Vector:
    groups: defaultdict[Labels, list[Column]] = defaultdict(list)
    for labels, column in vector.items():
        groups[_kept(labels, by)].append(column)
    return {
        labels: [_total(values) for values in zip(*columns, strict=True)]
        for labels, columns in groups.items()
    }


def _total(values: tuple[float | None, ...]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def _divided(left: float, right: float) -> float:
    if right:
        return left / right
    return math.copysign(math.inf, left) if left else math.nan


_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
}
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def _binary(sign: str, left: Vector | Column, right: Vector | Column) -> Vector | Column:
    """The result of a binary operator. Series are matched by equal labels."""
    if sign == "or":
        return _either(_series(left), _series(right))
    if isinstance(left, dict):
        if not isinstance(right, dict):
            return {labels: _applied(sign, column, right) for labels, column in left.items()}
        both = [labels for labels in left if labels in right]
        return {labels: _applied(sign, left[labels], right[labels]) for labels in both}
    if sign in _COMPARED:
        raise RefusedError(f"expected series left of {sign}, got a number")
    if isinstance(right, dict):
        return {labels: _applied(sign, left, column) for labels, column in right.items()}
    return _applied(sign, left, right)


def _applied(sign: str, left: Column, right: Column) -> Column:
    """The results of an operator. A comparison returns the left side or None."""

    def apply(a: float, b: float) -> float | None:
        if sign in _COMPARED:
            return a if _COMPARED[sign](a, b) else None
        return _ARITHMETIC[sign](a, b)

    pairs = zip(left, right, strict=True)
    return [None if a is None or b is None else apply(a, b) for a, b in pairs]


def _either(left: Vector, right: Vector) -> Vector:
    """The values of the left side, and of the right side where the left has none."""
    vector = {**left, **right}
    for labels in left.keys() & right.keys():
        pairs = zip(left[labels], right[labels], strict=True)
        vector[labels] = [b if a is None else a for a, b in pairs]
    return vector
