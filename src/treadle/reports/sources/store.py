"""Samples of recorded runs, stored so that sums over a time range are fast."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

from treadle.reports.sources.promql import Matcher
from treadle.reports.sources.source import finite

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of labels, sorted by name, without empty values."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: an increase of a counter, a change of a gauge, or a value of a histogram.

    Args:
        metric: its name in Prometheus, without ``_bucket``, ``_sum`` and ``_count`` of a histogram.
        labels: its labels.
        at: seconds since the epoch.
        value: the increase, the change or the value.
    """

    metric: str
    labels: Labels
    at: float
    value: float


def labels_of(given: Mapping[str, str | None]) -> Labels:
    """Labels in canonical form."""
    return tuple(sorted((name, value) for name, value in given.items() if value))


@dataclass(slots=True)
class Track:
    """The samples of one series, sorted by time.

    Args:
        labels: its labels.
        times: when each was made.
        values: what each was.
        sums: the sums of all up to each, with 0 before the first.
    """

    labels: Labels
    times: list[float] = field(default_factory=list[float])
    values: list[float] = field(default_factory=list[float])
    sums: list[float] = field(default_factory=list[float])

    def within(self, start: float, end: float) -> tuple[int, int]:
        """The index range of the samples after ``start`` and up to ``end``."""
        return bisect_right(self.times, start), bisect_right(self.times, end)


class Store:
    """Finds series.

    Args:
        samples: in any order.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._tracks: defaultdict[str, dict[Labels, Track]] = defaultdict(dict)
        for sample in sorted(samples, key=lambda one: one.at):
            value = _number(sample.value)
            if value is None:
                continue
            tracks = self._tracks[sample.metric]
            track = tracks.setdefault(sample.labels, Track(sample.labels))
            track.times.append(sample.at)
            track.values.append(value)
        for tracks in self._tracks.values():
            for track in tracks.values():
                track.sums = [0.0, *accumulate(track.values)]

    def find(self, metric: str, matchers: Iterable[Matcher]) -> Iterator[Track]:
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


def _number(value: float) -> float | None:
    """The value as a float; None for an integer with hundreds of digits."""
    try:
        return finite(float(value))
    except OverflowError:
        return None
