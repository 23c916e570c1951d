"""Where the numbers of a dashboard come from: a source answers PromQL over a grid of times.

`treadle.reports.numbers.prometheus` asks a server; `treadle.reports.numbers.records` computes the same from
recorded runs. Who asks does not know which one it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class SourceError(Exception):
    """There are no numbers to be had; one line says why."""


class RefusedError(Exception):
    """One question was refused, others may be answered; one line says why."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Times at the same distance from each other.

    Args:
        first: the first time, in seconds since the epoch.
        step: seconds from one to the next.
        count: how many there are.
    """

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
        """One time alone."""
        return cls(time, 1.0, 1)


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer.

    Args:
        labels: what tells it from the others.
        values: one for each time of the grid; None where there is none, or where it is no number.
    """

    labels: Mapping[str, str]
    values: Sequence[float | None]


class Source(Protocol):
    """Answers questions."""

    @property
    def title(self) -> str:
        """What it is, for people."""
        ...

    @property
    def hint(self) -> str:
        """What to do where it has nothing to show."""
        ...

    def refresh(self) -> None:
        """Have a look at what is there now; called before the questions of one page.

        Raises:
            SourceError: nothing can be had.
        """
        ...

    def span(self) -> tuple[float, float] | None:
        """From when to when it has numbers, in seconds since the epoch; None where it cannot tell."""
        ...

    def window(self, step: float) -> float:
        """Over how many seconds a rate is to be taken, for points that are ``step`` seconds apart."""
        ...

    def ask(self, expression: str, grid: Grid) -> Sequence[Series]:
        """Answer a question.

        Args:
            expression: PromQL without placeholders.
            grid: the times to answer it for.

        Raises:
            SourceError: nothing can be had, whatever is asked.
            RefusedError: this question cannot be answered.
        """
        ...


def duration(seconds: float) -> str:
    """Seconds as PromQL has them: ``90000ms``."""
    return f"{max(1, round(seconds * 1000))}ms"


def finite(value: float) -> float | None:
    """The number; None where it is none, as in a division by nothing."""
    return value if math.isfinite(value) else None
