"""The data of the dashboard page: the results of all panel queries for a time range."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from treadle.reports.dashboard_page.times import Times, times, titles
from treadle.reports.dashboards.expressions import (
    ACTIVE,
    RUNS,
    SUPPRESSED,
    TOOL,
    grown,
    of,
    quantile,
    rate,
)
from treadle.reports.dashboards.panel import ALL_AGENTS, Panel, Query, Unit, exactly, fill
from treadle.reports.dashboards.panels import ROWS
from treadle.reports.sources.source import Grid, RefusedError, Series, Source, duration

AGENT_LABEL = "gen_ai_agent_name"
_MAX_QUERIES = 8
"""Maximum number of concurrent queries. A Prometheus runs twenty by default."""
_BY_AGENT = (rate(RUNS, by=AGENT_LABEL), f"sum by ({AGENT_LABEL}) ({of(ACTIVE)})")


TOOL_LABEL = "gen_ai_tool_name"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of tools.

    Args:
        key: its identifier.
        title: its title.
        unit: the unit of its values.
        query: its query. The series differ only in the name of the tool.
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
"""The columns, each over the whole time range."""


def page_data(source: Source, range_key: str, agent: str | None, now: float) -> dict[str, Any]:
    """Query everything that the page shows.

    Args:
        source: the source of the metrics.
        range_key: a time range; see `treadle.reports.dashboard_page.times`.
        agent: the name of an agent; empty for agents without a name, None for all agents.
        now: seconds since the epoch.

    Returns:
        JSON data, which `page.js` draws.

    Raises:
        SourceError: the source is not available.
        ValueError: the range is unknown.
    """
    source.refresh()
    span = source.span()
    shown = times(range_key, now, span)
    pool = ThreadPoolExecutor(_MAX_QUERIES, thread_name_prefix="treadle-queries")
    try:
        queries = _Queries(source, shown, ALL_AGENTS if agent is None else exactly(agent), pool)
        # All queries are started before the first result is awaited.
        rows = [(title, [queries.panel(one) for one in row]) for title, row in ROWS.items()]
        tools = queries.tools()
        agents = queries.agents()
        return {
            "source": source.title,
            "hint": source.hint,
            "now": now,
            "range": range_key,
            "ranges": titles(span),
            "agent": agent,
            "agents": agents(),
            "start": shown.start,
            "step": shown.grid.step,
            "count": shown.grid.count,
            "rows": [{"title": title, "panels": [one() for one in row]} for title, row in rows],
            "tools": tools(),
        }
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Queries:
    """Starts queries, and returns functions that wait for their results."""

    def __init__(self, source: Source, shown: Times, agent: str, pool: ThreadPoolExecutor) -> None:
        self._source = source
        self._shown = shown
        self._agent = agent
        self._pool = pool
        self._whole = shown.end - shown.start

    def panel(self, panel: Panel) -> Callable[[], dict[str, Any]]:
        """A panel over time, and for the whole time range."""
        step = self._source.window(self._shown.grid.step)
        over_time = panel.kind in {"timeseries", "heatmap"}
        asked = [
            (
                query.legend,
                self._at_once(query.expression),
                self._ask(query.expression, self._shown.grid, step) if over_time else None,
            )
            for query in panel.queries
        ]

        def answer() -> dict[str, Any]:
            facts = {
                "key": panel.key,
                "title": panel.title,
                "description": panel.description,
                "kind": panel.kind,
                "unit": panel.unit,
                "stacked": panel.stacked,
            }
            try:
                return {**facts, "series": [one for parts in asked for one in _series(*parts)]}
            except RefusedError as error:
                return {**facts, "series": [], "error": str(error)}

        return answer

    def tools(self) -> Callable[[], dict[str, Any]]:
        """The table of tools, sorted by the number of calls."""
        asked = {column.key: self._at_once(column.query.expression) for column in TOOLS}
        columns = [{"key": one.key, "title": one.title, "unit": one.unit} for one in TOOLS]

        def answer() -> dict[str, Any]:
            rows: dict[str, dict[str, Any]] = {}
            try:
                for key, future in asked.items():
                    for one in future.result():
                        name = one.labels.get(TOOL_LABEL, "")
                        rows.setdefault(name, {"name": name})[key] = _rounded(one.values[0])
            except RefusedError as error:
                return {"columns": columns, "rows": [], "error": str(error)}
            by_calls = sorted(
                rows.values(), key=lambda row: (-(row.get("calls") or 0), row["name"])
            )
            return {"columns": columns, "rows": by_calls}

        return answer

    def agents(self) -> Callable[[], list[str]]:
        """The names of all agents that had runs in the time range, as far as the source answers."""
        asked = [self._at_once(expression, agent=ALL_AGENTS) for expression in _BY_AGENT]

        def answer() -> list[str]:
            names: set[str] = set()
            for future in asked:
                with contextlib.suppress(RefusedError):
                    names |= {one.labels.get(AGENT_LABEL, "") for one in future.result()}
            return sorted(names)

        return answer

    def _at_once(self, expression: str, *, agent: str | None = None) -> Future[Sequence[Series]]:
        return self._ask(expression, Grid.at(self._shown.end), self._whole, agent=agent)

    def _ask(
        self, expression: str, grid: Grid, over: float, *, agent: str | None = None
    ) -> Future[Sequence[Series]]:
        filled = fill(
            expression,
            agent=self._agent if agent is None else agent,
            window=duration(over),
            range=duration(self._whole),
        )
        return self._pool.submit(self._source.ask, filled, grid)


def _series(
    legend: str, at_once: Future[Sequence[Series]], over_time: Future[Sequence[Series]] | None
) -> list[dict[str, Any]]:
    """The series of one query, each with its name."""
    found: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for one in over_time.result() if over_time is not None else ():
        found[tuple(sorted(one.labels.items()))] = {
            "name": named(legend, one.labels),
            "whole": None,
            "values": [_rounded(value) for value in one.values],
        }
    for one in at_once.result():
        key = tuple(sorted(one.labels.items()))
        found.setdefault(key, {"name": named(legend, one.labels)})["whole"] = _rounded(
            one.values[0]
        )
    return list(found.values())


def named(legend: str, labels: Mapping[str, str]) -> str:
    """The name of a series: the legend with each ``{{label}}`` replaced by its value."""
    used: set[str] = set()

    def value(part: re.Match[str]) -> str:
        found = labels.get(part[1], "")
        # The requested and the responding model are nearly always the same: show the name once.
        is_new = found not in used
        used.add(found)
        return found if is_new else ""

    return " ".join(re.sub(r"\{\{\s*(\w+)\s*\}\}", value, legend).split())


def _rounded(value: float | None) -> float | None:
    """The value with six digits. More are not visible and make the page larger."""
    return None if value is None else float(f"{value:.6g}")
