"""The HTML of the dashboard page: style, script and, in a self-contained file, the data of every choice.

It loads nothing from other sites, and its policy forbids it; see `treadle.reports.html_page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from treadle.reports.dashboard_page.data import page_data
from treadle.reports.dashboard_page.times import titles
from treadle.reports.html_page import Page, make_html
from treadle.reports.sources.source import Source

MOST_AGENTS = 6
"""Maximum number of agents in a file. With more, only the requested one is in it: each adds data to the file."""
_STYLES = ("page.css", "panels.css")
_SCRIPTS = tuple(
    f"{name}.js"
    for name in ("dom", "format", "plot", "chart", "heatmap", "tables", "panels", "page")
)


def make_page(
    source: Source, range_key: str, agent: str | None, data: Sequence[Any] | None = None
) -> Page:
    """Make the page, which shows a range and an agent initially.

    A self-contained file has the data of each choice. Without data, the page requests it.
    """
    is_served = data is None
    start = {
        "title": source.title,
        "ranges": titles(source.span()),
        "range": range_key,
        "agent": agent,
        "data": data,
    }
    page = make_html(
        "treadle.reports.dashboard_page",
        "page.html",
        _STYLES,
        _SCRIPTS,
        start,
        directives=(f"connect-src '{'self' if is_served else 'none'}'", "img-src data:"),
        has_policy=not is_served,
    )
    return replace(page, policy=f"{page.policy}; frame-ancestors 'none'") if is_served else page


def static_page(source: Source, range_key: str, agent: str | None, now: float) -> str:
    """The HTML of the file, which shows a range and an agent initially; see `page_data`."""
    first = page_data(source, range_key, None, now)
    agents: list[str] = first["agents"] if len(first["agents"]) <= MOST_AGENTS else []
    if agent is not None and agent not in agents:
        agents = [*agents, agent]
    data = [
        {**page_data(source, key, one, now), "agents": agents}
        for key in first["ranges"]
        for one in (None, *agents)
    ]
    return make_page(source, range_key, agent, data).html
