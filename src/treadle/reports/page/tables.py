"""What the page's table of tools asks, one question for each column. The panels show the same over time."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.reports.dashboards.panels import Query, Unit
from treadle.reports.dashboards.promql import SUPPRESSED, TOOL, grown, quantile

TOOL_LABEL = "gen_ai_tool_name"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers.

    Args:
        key: names it, for programs.
        title: names it, for people.
        unit: what its numbers are.
        query: what it asks; its series are told apart by the tool's name alone.
    """

    key: str
    title: str
    unit: Unit
    query: Query


TOOLS = (
    Column("calls", "Calls", "calls", Query(grown(f"{TOOL}_count", by=TOOL_LABEL))),
    Column(
        "errors", "Errors", "calls", Query(grown(f"{TOOL}_count", 'error_type!=""', by=TOOL_LABEL))
    ),
    Column("p50", "p50", "seconds", Query(quantile(0.5, TOOL, by=TOOL_LABEL))),
    Column("p95", "p95", "seconds", Query(quantile(0.95, TOOL, by=TOOL_LABEL))),
    Column("suppressed", "Suppressed", "calls", Query(grown(SUPPRESSED, by=TOOL_LABEL))),
)
"""Each over the whole time that is shown."""
