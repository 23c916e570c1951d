"""The time ranges of the page, and the points of its graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from treadle.reports.sources.source import Grid

RANGES: Mapping[str, tuple[str, float, float]] = {
    "15m": ("15 min", 900, 15),
    "1h": ("1 h", 3600, 60),
    "6h": ("6 h", 21600, 300),
    "24h": ("24 h", 86400, 1200),
    "7d": ("7 d", 604800, 7200),
}
"""The title, the length in seconds, and the seconds between two points of a graph, by key."""
ALL = "all"
"""The key of the range of all data, if the source knows it."""
_MOST_POINTS = 80
_DAY = 86400.0
_MINUTES = (1, 2, 5, 10, 20, 30, 60, 120, 240, 720)
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, *(60 * minutes for minutes in _MINUTES))


@dataclass(frozen=True, slots=True)
class Times:
    """The start and the end of a page, and the points of its graphs. Each point covers the step before it."""

    start: float
    end: float
    grid: Grid


def titles(span: tuple[float, float] | None) -> dict[str, str]:
    """The titles of the selectable ranges, by key."""
    found = {key: title for key, (title, _, _) in RANGES.items()}
    return found if span is None else {**found, ALL: "All"}


def times(key: str, now: float, span: tuple[float, float] | None) -> Times:
    """The times of a range.

    Points are multiples of the step, so a bar shows the same values after a refresh. ``span`` are the times of the
    first and the last data; without it, the range of all data is unknown, which raises `ValueError`.
    """
    if key in RANGES:
        _, seconds, step = RANGES[key]
        end, shown_to = math.ceil(now / step) * step, now
        start = end - seconds
    elif key == ALL and span is not None:
        first, last = span
        # Two more steps, for the partial ones at both ends.
        step = next((one for one in _STEPS if (last - first) / one <= _MOST_POINTS - 2), 0.0)
        step = step or math.ceil((last - first) / (_MOST_POINTS - 2) / _DAY) * _DAY
        # A point covers the times after the start of its step; the start itself belongs to the step before.
        start = (math.ceil(first / step) - 1) * step
        end = shown_to = max(math.ceil(last / step) * step, start + step)
    else:
        raise ValueError(f"unknown range {key!r}; expected one of {', '.join(titles(span))}")
    return Times(start, shown_to, Grid(start + step, step, round((end - start) / step)))
