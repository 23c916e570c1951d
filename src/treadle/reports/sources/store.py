"""Samples of recorded runs, sorted by series and time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias

from treadle.reports.json_line import finite
from treadle.reports.sources.promql import Matcher

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
    """Finds series. Values that are not finite are left out.

    Args:
        samples: in any order.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._tracks: defaultdict[str, dict[Labels, Track]] = defaultdict(dict)
        for sample in sorted(samples, key=attrgetter("at")):
            value = finite(sample.value)
            if value is not None:
                tracks = self._tracks[sample.metric]
                track = tracks.setdefault(sample.labels, Track(sample.labels))
                track.times.append(sample.at)
                track.values.append(value)

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
