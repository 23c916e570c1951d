"""The interface of metric sources: a source answers queries for a grid of times.

`treadle.reports.sources.prometheus` queries a server, and `treadle.reports.sources.recordings` computes the same
results from recordings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from treadle.reports.dashboards.panel import Question


class SourceError(Exception):
    """The source is not available. The message is one line."""


class RefusedError(Exception):
    """One query was rejected; others may succeed. The message is one line."""


@dataclass(frozen=True, slots=True)
class Grid:
    """``count`` times, ``step`` seconds apart; the first one is in seconds since the epoch."""

    first: float
    step: float
    count: int

    def __iter__(self) -> Iterator[float]:
        return (self.first + place * self.step for place in range(self.count))

    @property
    def last(self) -> float:
        """The last time."""
        return self.first + (self.count - 1) * self.step

    @classmethod
    def at(cls, time: float) -> Grid:
        """A single time."""
        return cls(time, 1.0, 1)


@dataclass(frozen=True, slots=True)
class Series:
    """A series of a result: its labels, and a value for each time; None if there is no finite value."""

    labels: Mapping[str, str]
    values: Sequence[float | None]


class Source(Protocol):
    """Answers queries.

    Attributes:
        hint: what to do if it has no data.
        page_timeout: seconds that a page waits for all answers together; None sets no limit.
    """

    hint: str
    page_timeout: float | None

    @property
    def title(self) -> str:
        """Its name for users."""
        ...

    def refresh(self) -> None:
        """Read new data. Called before the queries of a page. Raises `SourceError`."""
        ...

    def span(self) -> tuple[float, float] | None:
        """The times of the first and the last data, in seconds since the epoch; None if unknown."""
        ...

    def window(self, step: float) -> float:
        """The window of a rate in seconds, for points that are ``step`` seconds apart."""
        ...

    def ask(self, question: Question, grid: Grid) -> Sequence[Series]:
        """Answer a query. Raises `SourceError` and `RefusedError`."""
        ...
