"""All that the page shows, as plain data: each panel asked for over a range of time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from treadle.reports.dashboards.panels import ALL_AGENTS, ROWS, Panel, exactly, fill
from treadle.reports.dashboards.promql import ACTIVE, RUNS, of, rate
from treadle.reports.numbers.source import Grid, RefusedError, Series, Source, duration
from treadle.reports.page.tables import TOOL_LABEL, TOOLS
from treadle.reports.page.times import Times, times, titles

AGENT_LABEL = "gen_ai_agent_name"
_ASKED_AT_ONCE = 8
"""Questions under way at the same time; a Prometheus answers twenty at once."""
_BY_AGENT = (rate(RUNS, by=AGENT_LABEL), f"sum by ({AGENT_LABEL}) ({of(ACTIVE)})")


def numbers(source: Source, range_key: str, agent: str | None, now: float) -> dict[str, Any]:
    """Ask for all that the page shows.

    Args:
        source: answers.
        range_key: a range of time, see `page_times`.
        agent: an agent's name; empty are those without one, None are all.
        now: seconds since the epoch.

    Returns:
        Plain data for JSON, which `page.js` draws.

    Raises:
        SourceError: the source has nothing to give.
        ValueError: there is no such range.
    """
    source.refresh()
    span = source.span()
    shown = times(range_key, now, span)
    pool = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="treadle-numbers")
    try:
        asking = _Asking(source, shown, ALL_AGENTS if agent is None else exactly(agent), pool)
        # All are asked before the first is waited for.
        rows = [(title, [asking.panel(one) for one in row]) for title, row in ROWS.items()]
        tools = asking.tools()
        agents = asking.agents()
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


class _Asking:
    """Asks now, and hands out what will have the answer."""

    def __init__(self, source: Source, shown: Times, agent: str, pool: ThreadPoolExecutor) -> None:
        self._source = source
        self._shown = shown
        self._agent = agent
        self._pool = pool
        self._whole = shown.end - shown.start

    def panel(self, panel: Panel) -> Callable[[], dict[str, Any]]:
        """A panel over time, and over the whole time at once."""
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
            told = {
                "key": panel.key,
                "title": panel.title,
                "description": panel.description,
                "kind": panel.kind,
                "unit": panel.unit,
                "stacked": panel.stacked,
            }
            try:
                return {**told, "series": [one for parts in asked for one in _series(*parts)]}
            except RefusedError as error:
                return {**told, "series": [], "error": str(error)}

        return answer

    def tools(self) -> Callable[[], dict[str, Any]]:
        """The table of tools, those with the most calls first."""
        asked = {column.key: self._at_once(column.query.expression) for column in TOOLS}
        told = [{"key": one.key, "title": one.title, "unit": one.unit} for one in TOOLS]

        def answer() -> dict[str, Any]:
            rows: dict[str, dict[str, Any]] = {}
            try:
                for key, future in asked.items():
                    for one in future.result():
                        name = one.labels.get(TOOL_LABEL, "")
                        rows.setdefault(name, {"name": name})[key] = _rounded(one.values[0])
            except RefusedError as error:
                return {"columns": told, "rows": [], "error": str(error)}
            by_calls = sorted(
                rows.values(), key=lambda row: (-(row.get("calls") or 0), row["name"])
            )
            return {"columns": told, "rows": by_calls}

        return answer

    def agents(self) -> Callable[[], list[str]]:
        """The names of all agents that had runs in that time."""
        asked = [self._at_once(expression, agent=ALL_AGENTS) for expression in _BY_AGENT]
        return lambda: sorted(
            {one.labels.get(AGENT_LABEL, "") for future in asked for one in future.result()}
        )

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
    """The series of one question, each with its name."""
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
    """The name of a series, as a legend has it: ``{{label}}`` is the value of a label."""
    told: set[str] = set()

    def value(part: re.Match[str]) -> str:
        found = labels.get(part[1], "")
        # A model that was asked for is nearly always the one that answers: once is enough.
        is_new = found not in told
        told.add(found)
        return found if is_new else ""

    return " ".join(re.sub(r"\{\{\s*(\w+)\s*\}\}", value, legend).split())


def _rounded(value: float | None) -> float | None:
    """Six digits: the rest cannot be seen, and makes the page large."""
    return None if value is None else float(f"{value:.6g}")
