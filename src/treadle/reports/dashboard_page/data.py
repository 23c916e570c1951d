"""The data of the dashboard page: the results of all panel queries for a time range."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from treadle.reports.dashboard_page.times import Times, times, titles
from treadle.reports.dashboards.expressions import BY_AGENT, BY_TOOL
from treadle.reports.dashboards.panel import Panel, Query, Question
from treadle.reports.dashboards.panels import AGENTS, PANELS, ROWS, TOOLS
from treadle.reports.dashboards.promql import Expression
from treadle.reports.sources.samples import Labels, labels_of
from treadle.reports.sources.source import Grid, RefusedError, Series, Source

MAX_ROWS = 100
"""Maximum number of series of a graph, and of rows of a table. More cannot be distinguished."""
_MAX_QUERIES = 8
"""Maximum number of concurrent queries. A Prometheus runs twenty by default."""


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
    with _Queries(source, shown, agent) as queries:
        for panel in PANELS:
            for query in panel.queries:
                queries.ask(query.expression)
                if panel.is_over_time:
                    queries.ask(query.expression, over_time=True)
        for column in TOOLS:
            queries.ask(column.expression)
        for expression in AGENTS:
            queries.ask(expression, every_agent=True)
        return {
            "source": source.title,
            "hint": source.hint,
            "now": now,
            "range": range_key,
            "ranges": titles(span),
            "agent": agent,
            "agents": _agents(queries),
            "start": shown.start,
            "step": shown.grid.step,
            "count": shown.grid.count,
            "rows": [
                {"title": title, "panels": [_panel(one, queries) for one in row]}
                for title, row in ROWS.items()
            ],
            "tools": _tools(queries),
        }


class _Queries:
    """Runs queries at the same time. Start all of them before the first result is awaited."""

    def __init__(self, source: Source, shown: Times, agent: str | None) -> None:
        self._source = source
        self._shown = shown
        self._agent = agent
        self._pool = ThreadPoolExecutor(_MAX_QUERIES, thread_name_prefix="treadle-queries")
        self._started: dict[tuple[Question, Grid], Future[Sequence[Series]]] = {}
        page_timeout = source.page_timeout
        self._until = None if page_timeout is None else time.monotonic() + page_timeout

    def ask(
        self, expression: Expression, *, over_time: bool = False, every_agent: bool = False
    ) -> Future[Sequence[Series]]:
        """Start a query, or return the one that was started.

        It has the points of the graphs, or one value for the whole range; it is of the page's agent, or of all.
        """
        whole = self._shown.end - self._shown.start
        grid, window = Grid.at(self._shown.end), whole
        if over_time:
            grid = self._shown.grid
            window = self._source.window(grid.step)
        key = (Question(expression, None if every_agent else self._agent, window, whole), grid)
        if key not in self._started:
            self._started[key] = self._pool.submit(self._source.ask, *key)
        return self._started[key]

    def answer(
        self, expression: Expression, *, over_time: bool = False, every_agent: bool = False
    ) -> Sequence[Series]:
        """The result of a query. Raises `RefusedError`, also if it takes too long, and `SourceError`."""
        asked = self.ask(expression, over_time=over_time, every_agent=every_agent)
        left = None if self._until is None else max(0.0, self._until - time.monotonic())
        try:
            return asked.result(left)
        except TimeoutError:
            raise RefusedError("the query was not answered in time") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


_FACTS = ("key", "title", "description", "kind", "unit", "stacked")


def _panel(panel: Panel, queries: _Queries) -> dict[str, Any]:
    """A panel with its series."""
    facts = {name: getattr(panel, name) for name in _FACTS}
    try:
        series = [one for query in panel.queries for one in _series(panel, query, queries)]
    except RefusedError as error:
        return {**facts, "series": [], "error": str(error)}
    return {**facts, **_largest(series, "series", _whole)}


def _largest(
    rows: Sequence[dict[str, Any]], name: str, size: Callable[[dict[str, Any]], float]
) -> dict[str, Any]:
    """The rows of a panel: at most `MAX_ROWS`, those of the largest size, in their order; how many are left out.

    A program that generates names of tools or agents has thousands, which no graph can show.
    """
    if len(rows) <= MAX_ROWS:
        return {name: rows}
    kept = {id(row) for row in sorted(rows, key=size, reverse=True)[:MAX_ROWS]}
    return {name: [row for row in rows if id(row) in kept], "left_out": len(rows) - MAX_ROWS}


def _whole(series: Mapping[str, Any]) -> float:
    values = (series.get("whole"), *series.get("values", ()))
    return max((abs(value) for value in values if value is not None), default=0.0)


def _series(panel: Panel, query: Query, queries: _Queries) -> Iterable[dict[str, Any]]:
    """The series of one query by name: their values over time, and for the whole range."""
    found: dict[Labels, dict[str, Any]] = {}
    if panel.is_over_time:
        for one in queries.answer(query.expression, over_time=True):
            values = [_rounded(value) for value in one.values]
            name = named(query.legend, one.labels)
            found[labels_of(one.labels)] = {"name": name, "whole": None, "values": values}
    for one in queries.answer(query.expression):
        name = named(query.legend, one.labels)
        whole = _rounded(one.values[0])
        found.setdefault(labels_of(one.labels), {"name": name})["whole"] = whole
    return found.values()


def _tools(queries: _Queries) -> dict[str, Any]:
    """The table of tools, sorted by the number of calls."""
    columns = [{"key": one.key, "title": one.title, "unit": one.unit} for one in TOOLS]
    rows: dict[str, dict[str, Any]] = {}
    try:
        for column in TOOLS:
            for one in queries.answer(column.expression):
                name = one.labels.get(BY_TOOL, "")
                rows.setdefault(name, {"name": name})[column.key] = _rounded(one.values[0])
    except RefusedError as error:
        return {"columns": columns, "rows": [], "error": str(error)}
    by_calls = sorted(rows.values(), key=lambda row: (-(row.get("calls") or 0), row["name"]))
    return {"columns": columns, **_largest(by_calls, "rows", lambda row: row.get("calls") or 0)}


def _agents(queries: _Queries) -> list[str]:
    """The names of all agents that had runs in the time range; none of queries that were rejected."""
    names: set[str] = set()
    for expression in AGENTS:
        with contextlib.suppress(RefusedError):
            names |= {
                one.labels.get(BY_AGENT, "") for one in queries.answer(expression, every_agent=True)
            }
    return sorted(names)


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
    """The value with six digits: more are not visible and make the page larger. None if it is absurd."""
    return None if value is None or abs(value) > _LARGEST else float(f"{value:.6g}")


_LARGEST = 1e15
"""The largest value that is shown: a graph cannot be drawn if sums of its values may be infinite."""
