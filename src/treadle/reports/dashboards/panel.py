"""A panel of a dashboard: what it shows, and its queries.

Expressions have three placeholders, which `fill` replaces:

* ``{agent}``: a regular expression for the agent's name. ``.*`` also matches agents without a name.
* ``{window}``: the duration over which a rate is calculated for each point of a graph.
* ``{range}``: the duration of the whole time range. Panels with a single number or a table use it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from treadle.reports.dashboards.promql import Expression

Kind: TypeAlias = Literal["stat", "timeseries", "heatmap", "table"]
"""A single number; lines over time; buckets over time (one series for each ``le``); one row for each series."""

Unit: TypeAlias = Literal[
    "runs", "calls", "iterations", "breakers", "per_minute", "tokens_per_second", "seconds", "ratio", "dollars"
]  # fmt: skip
"""The unit of the values; ``ratio`` is from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query, and the name of each of its series with ``{{label}}`` for its labels."""

    expression: Expression
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. If it is ``stacked``, its series are drawn stacked, because they add up to a total."""

    key: str
    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    stacked: bool = False

    @property
    def is_over_time(self) -> bool:
        """Whether it has a time axis. Other panels show one value of each series for the whole range."""
        return self.kind in {"timeseries", "heatmap"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of tools. The series of its query differ only in the name of the tool."""

    key: str
    title: str
    unit: Unit
    expression: Expression


ALL_AGENTS = ".*"
"""For `fill`: every agent, including those without a name."""


def fill(
    expression: Expression,
    *,
    agent: str = ALL_AGENTS,
    window: str = "5m",
    range: str = "1h",  # noqa: A002 - the placeholder's name
) -> str:
    """PromQL of an expression, with values for the placeholders.

    Args:
        expression: the expression.
        agent: a regular expression, escaped for a PromQL string; see `exactly`.
        window: a PromQL duration, such as ``5m``; at least four times the scrape interval.
        range: a PromQL duration, the whole time range.
    """
    values = {"agent": agent, "window": window, "range": range}
    return re.sub(r"\{(agent|window|range)\}", lambda found: values[found[1]], str(expression))


def exactly(name: str) -> str:
    """The regular expression that matches the name of one agent, escaped for a PromQL string."""
    return json.dumps(re.escape(name), ensure_ascii=False)[1:-1]


@dataclass(frozen=True, slots=True)
class Question:
    """An expression with values for its placeholders; ``str`` of it is PromQL.

    Args:
        expression: the expression.
        agent: the name of an agent; None is every agent, including those without a name.
        window: seconds.
        range: seconds.
    """

    expression: Expression
    agent: str | None
    window: float
    range: float

    def __str__(self) -> str:
        agent = ALL_AGENTS if self.agent is None else exactly(self.agent)
        window, whole = _duration(self.window), _duration(self.range)
        return fill(self.expression, agent=agent, window=window, range=whole)


def _duration(seconds: float) -> str:
    """A PromQL duration: ``90000ms``."""
    return f"{max(1, round(seconds * 1000))}ms"
