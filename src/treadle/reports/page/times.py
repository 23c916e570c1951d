"""The ranges of time that the page can show, and the points of its graphs in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from treadle.reports.numbers.source import Grid

RANGES: Mapping[str, tuple[str, float, float]] = {
    "15m": ("15 min", 900, 15),
    "1h": ("1 h", 3600, 60),
    "6h": ("6 h", 21600, 300),
    "24h": ("24 h", 86400, 1200),
    "7d": ("7 d", 604800, 7200),
}
"""Each with its title, its seconds, and the seconds from one point of a graph to the next."""
ALL = "all"
"""The range of all that there is, where the source can tell."""
_MOST_POINTS = 80
_DAY = 86400.0
_STEPS = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    1200,
    1800,
    3600,
    7200,
    14400,
    43200,
)


@dataclass(frozen=True, slots=True)
class Times:
    """The times of one page.

    Args:
        start: when it begins, in seconds since the epoch.
        end: when what it shows ends.
        grid: the points of its graphs; each stands for the step before it.
    """

    start: float
    end: float
    grid: Grid


def titles(span: tuple[float, float] | None) -> dict[str, str]:
    """The ranges to choose from, by their keys."""
    found = {key: title for key, (title, _, _) in RANGES.items()}
    return found if span is None else {**found, ALL: "All"}


def times(key: str, now: float, span: tuple[float, float] | None) -> Times:
    """The times of a range.

    Points lie on whole multiples of the step, so that a bar shows the same the next time.

    Args:
        key: one of `RANGES`, or `ALL`.
        now: seconds since the epoch.
        span: from when to when there are numbers; None where nobody can tell.

    Raises:
        ValueError: there is no such range.
    """
    if key in RANGES:
        _, seconds, step = RANGES[key]
        end = math.ceil(now / step) * step
        return _times(end - seconds, end, step, now)
    if key != ALL or span is None:
        known = ", ".join(titles(span))
        raise ValueError(f"no range {key!r}; expected one of {known}")
    first, last = span
    # Two more: one at either end that is not whole.
    step = next((one for one in _STEPS if (last - first) / one <= _MOST_POINTS - 2), 0.0)
    step = step or math.ceil((last - first) / (_MOST_POINTS - 2) / _DAY) * _DAY
    # A step stands for what comes after its start: what comes right at it is in the one before.
    start = (math.ceil(first / step) - 1) * step
    end = max(math.ceil(last / step) * step, start + step)
    return _times(start, end, step, end)


def _times(start: float, end: float, step: float, shown_to: float) -> Times:
    return Times(start, shown_to, Grid(start + step, step, round((end - start) / step)))
