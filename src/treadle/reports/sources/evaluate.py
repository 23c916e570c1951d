"""Evaluates the queries of the panels on samples of recorded runs.

The results are those of Prometheus, with two exceptions that use the exact samples: a rate is the increase in the
window divided by its length, without extrapolation, and a quantile is exact instead of interpolated in buckets.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import TypeAlias

from treadle.reports.sources.promql import Binary, Call, Node, Number, Selector, Sum, parse
from treadle.reports.sources.source import Grid, RefusedError, Series, finite
from treadle.reports.sources.store import Labels, Store, Track

Column: TypeAlias = list[float | None]
"""A value for each time of the grid."""
Vector: TypeAlias = dict[Labels, Column]

_SUFFIXES = ("_bucket", "_count", "_sum")
"""The suffixes of the series of a histogram."""


def evaluate(
    expression: str, grid: Grid, store: Store, bounds: Mapping[str, tuple[float, ...]]
) -> list[Series]:
    """Evaluate a query.

    Args:
        expression: PromQL without placeholders.
        grid: the times of the values.
        store: the samples.
        bounds: of each histogram, the upper bounds of its buckets.

    Raises:
        RefusedError: the expression uses unsupported PromQL.
    """
    found = _Evaluation(grid, store, bounds).value(parse(expression))
    if not isinstance(found, dict):
        return [Series({}, [found] * grid.count)]
    columns = (
        (labels, [None if one is None else finite(one) for one in column])
        for labels, column in found.items()
    )
    return [
        Series(dict(labels), column)
        for labels, column in columns
        if any(one is not None for one in column)
    ]


class _Evaluation:
    def __init__(self, grid: Grid, store: Store, bounds: Mapping[str, tuple[float, ...]]) -> None:
        self._grid = grid
        self._store = store
        self._bounds = bounds

    def value(self, node: Node) -> Vector | float:
        """Series, or a number."""
        match node:
            case Number(value):
                return value
            case Selector():
                return self._current(node)
            case Sum(by, of):
                return _sum(by, self._vector(of))
            case Binary(sign, left, right):
                return _binary(sign, self.value(left), self.value(right))
            case Call():
                return self._called(node)

    def _called(self, call: Call) -> Vector:
        match call:
            case Call("vector", (Number(value),)):
                return {(): [value] * self._grid.count}
            case Call("rate", (Selector(window=float() as window) as of,)):
                return self._grown(of, window, window)
            case Call("increase", (Selector(window=float() as window) as of,)):
                return self._grown(of, window, 1.0)
            case Call(
                "histogram_quantile", (Number(q), Sum(by, Call("rate", (Selector() as of,))))
            ):
                return self._quantile(q, by, of)
            case _:
                raise RefusedError(f"recordings do not support this use of {call.function}")

    def _vector(self, node: Node) -> Vector:
        value = self.value(node)
        if not isinstance(value, dict):
            raise RefusedError("expected series, got a number")
        return value

    def _current(self, of: Selector) -> Vector:
        """The value of a gauge or a counter. No value before its first sample."""
        if of.window is not None:
            raise RefusedError("expected an instant vector, got a range")
        vector: Vector = {}
        for track in self._store.find(of.metric, of.matchers):
            ends = (track.within(-math.inf, time)[1] for time in self._grid)
            vector[track.labels] = [track.sums[end] if end else None for end in ends]
        return vector

    def _grown(self, of: Selector, window: float, per: float) -> Vector:
        """The increase of counters in the window before each time."""
        base, _, suffix = of.metric.rpartition("_")
        suffix = f"_{suffix}"
        if suffix not in _SUFFIXES:
            base, suffix = of.metric, "_sum"
        vector: Vector = {}
        for track in self._store.find(base, of.matchers):
            if suffix == "_bucket":
                vector |= self._buckets(track, base, window, per)
            else:
                counted = suffix == "_count"
                vector[track.labels] = [
                    _growth(track, t, window, per, counted=counted) for t in self._grid
                ]
        return vector

    def _buckets(self, track: Track, base: str, window: float, per: float) -> Vector:
        vector: Vector = {}
        for bound in (*self._bounds[base], math.inf):
            labels = tuple(sorted((*track.labels, ("le", _bound(bound)))))
            vector[labels] = [
                None if values is None else sum(value <= bound for value in values) / per
                for values in (_values(track, time, window) for time in self._grid)
            ]
        return vector

    def _quantile(self, share: float, by: tuple[str, ...], of: Selector) -> Vector:
        """The smallest value that is not exceeded by the given share of values."""
        base = of.metric.removesuffix("_bucket")
        window = of.window
        if "le" not in by or base == of.metric or window is None:
            raise RefusedError("a quantile needs the sum by (le) of the rate of buckets")
        groups: defaultdict[Labels, list[Track]] = defaultdict(list)
        for track in self._store.find(base, of.matchers):
            groups[_kept(track.labels, by)].append(track)
        return {
            labels: [
                _smallest(
                    share, [one for track in tracks for one in _values(track, time, window) or ()]
                )
                for time in self._grid
            ]
            for labels, tracks in groups.items()
        }


def _bound(bound: float) -> str:
    """As Prometheus writes the bound of a bucket."""
    if math.isinf(bound):
        return "+Inf"
    return str(int(bound)) if float(bound).is_integer() else repr(bound)


def _values(track: Track, time: float, window: float) -> list[float] | None:
    """The values in a window; None before the first sample of the series."""
    start, end = track.within(time - window, time)
    return track.values[start:end] if end else None


def _growth(track: Track, time: float, window: float, per: float, *, counted: bool) -> float | None:
    start, end = track.within(time - window, time)
    if not end:
        return None
    return ((end - start) if counted else track.sums[end] - track.sums[start]) / per


def _smallest(share: float, values: list[float]) -> float:
    """The quantile; NaN without values, as in PromQL."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)]


def _kept(labels: Labels, by: tuple[str, ...]) -> Labels:
    return tuple((name, value) for name, value in labels if name in by)


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


def _apply(sign: str, left: float, right: float) -> float | None:
    """The result of an operator. A comparison returns the left side or None."""
    if sign in _COMPARED:
        return left if _COMPARED[sign](left, right) else None
    return _ARITHMETIC[sign](left, right)


def _binary(sign: str, left: Vector | float, right: Vector | float) -> Vector | float:
    """The result of a binary operator. Series are matched by equal labels."""
    if isinstance(left, dict):
        if sign == "or":
            return _either(left, right)
        if not isinstance(right, dict):
            return {labels: _zipped(sign, column, repeat(right)) for labels, column in left.items()}
        return {
            labels: _zipped(sign, column, right[labels])
            for labels, column in left.items()
            if labels in right
        }
    if sign not in _ARITHMETIC:
        raise RefusedError(f"expected series left of {sign}, got a number")
    if isinstance(right, dict):
        return {labels: _zipped(sign, repeat(left), column) for labels, column in right.items()}
    return _ARITHMETIC[sign](left, right)


def _zipped(sign: str, left: Iterable[float | None], right: Iterable[float | None]) -> Column:
    # A side that is a number is an endless iterator.
    pairs = zip(left, right, strict=False)
    return [None if a is None or b is None else _apply(sign, a, b) for a, b in pairs]


def _either(left: Vector, right: Vector | float) -> Vector:
    """The values of the left side, and of the right side where the left has none."""
    if not isinstance(right, dict):
        raise RefusedError("expected series right of or, got a number")
    vector = dict(left)
    for labels, column in right.items():
        mine = left.get(labels)
        vector[labels] = (
            column
            if mine is None
            else [b if a is None else a for a, b in zip(mine, column, strict=True)]
        )
    return vector
