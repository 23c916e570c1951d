"""A panel of a dashboard: what it shows, and what it asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["stat", "timeseries", "heatmap", "table"]
"""One number; lines over time; buckets over time (one series for each ``le``); one row for each series."""

Unit: TypeAlias = Literal[
    "runs", "calls", "iterations", "breakers", "per_minute", "tokens_per_second", "seconds", "ratio", "dollars"
]  # fmt: skip
"""What the numbers are; ``ratio`` is from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question to Prometheus.

    Args:
        expression: PromQL with placeholders; `fill` replaces them.
        legend: names a series of the answer; ``{{label}}`` stands for the value of a label.
    """

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Args:
        key: names it, for programs.
        title: names it, for people.
        description: what it shows, and what to make of it.
        kind: how it is drawn.
        unit: what its numbers are.
        queries: what it asks.
        stacked: its series add up to a whole.
    """

    key: str
    title: str
    description: str
    kind: Kind
    unit: Unit
    queries: tuple[Query, ...]
    stacked: bool = False
