"""The subset of PromQL that the panels use, as data. ``str`` of an expression is PromQL with placeholders.

The placeholders are ``{agent}``, ``{window}`` and ``{range}``; see `treadle.reports.dashboards.panel`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

AGENT = "{agent}"
"""The placeholder for the regular expression of an agent's name."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label: ``=``, ``!=``, or one of ``=~`` and ``!~`` with a regular expression."""

    label: str
    operator: Literal["=", "!=", "=~", "!~"]
    value: str

    def fits(self, value: str, agent: str | None) -> bool:
        """Whether a value matches; a missing label has an empty one. The agent None is every agent."""
        if self.value == AGENT:
            return agent in {None, value}
        if self.operator in {"=", "!="}:
            return (value == self.value) == (self.operator == "=")
        return bool(re.fullmatch(self.value, value)) == (self.operator == "=~")

    def __str__(self) -> str:
        return f'{self.label}{self.operator}"{self.value}"'


@dataclass(frozen=True, slots=True)
class Selector:
    """The series of one metric."""

    metric: str
    matchers: tuple[Matcher, ...] = ()

    def __str__(self) -> str:
        inside = ",".join(map(str, self.matchers))
        return f"{self.metric}{{{inside}}}" if inside else self.metric


@dataclass(frozen=True, slots=True)
class Growth:
    """The increase of counters over one of the two placeholders for durations; a ``rate`` is per second."""

    function: Literal["rate", "increase"]
    of: Selector
    over: Literal["window", "range"]

    def __str__(self) -> str:
        return f"{self.function}({self.of}[{{{self.over}}}])"


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of series, grouped by labels with commas between them."""

    of: Expression
    by: str = ""

    def __str__(self) -> str:
        return f"sum by ({self.by}) ({self.of})" if self.by else f"sum({self.of})"


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of a histogram in each window; ``of`` selects its buckets."""

    share: float
    of: Selector
    by: str = ""

    def __str__(self) -> str:
        keys = f"le, {self.by}" if self.by else "le"
        rates = Sum(Growth("rate", self.of, "window"), keys)
        return f"histogram_quantile({self.share}, {rates})"


@dataclass(frozen=True, slots=True)
class Vector:
    """A number as one series without labels."""

    value: float

    def __str__(self) -> str:
        return f"vector({self.value})"


@dataclass(frozen=True, slots=True)
class Scaled:
    """Series multiplied by a number."""

    factor: float
    of: Sum

    def __str__(self) -> str:
        return f"{self.factor} * {self.of}"


@dataclass(frozen=True, slots=True)
class Compared:
    """The values that are greater than zero, or at least zero."""

    of: Sum | Quantile
    operator: Literal[">", ">="]

    def __str__(self) -> str:
        return f"{self.of} {self.operator} 0"


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator on series with equal labels. ``or`` takes the right side where the left has no value."""

    left: Expression
    operator: Literal["or", "-", "/"]
    right: Expression

    def __str__(self) -> str:
        sides = (self.left, self.right)
        left, right = (f"({one})" if isinstance(one, (Binary, Compared)) else one for one in sides)
        return f"{left} {self.operator} {right}"


Expression: TypeAlias = Selector | Growth | Sum | Quantile | Vector | Scaled | Compared | Binary
