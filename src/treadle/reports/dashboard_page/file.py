"""The dashboard page as a self-contained file, with the data of every selectable range and agent."""

from __future__ import annotations

from typing import Any

from treadle.reports.dashboard_page.data import page_data
from treadle.reports.dashboard_page.page import make_page
from treadle.reports.dashboard_page.times import titles
from treadle.reports.sources.source import Source

MOST_AGENTS = 6
"""Maximum number of selectable agents. With more, only the requested one is: each adds data to the file."""


def static_page(source: Source, range_key: str, agent: str | None, now: float) -> str:
    """The content of the file.

    Args:
        source: the source of the metrics.
        range_key: the time range that is shown initially.
        agent: the agent that is shown initially; None for all agents.
        now: seconds since the epoch.

    Returns:
        HTML.

    Raises:
        SourceError: the source is not available.
    """
    first = page_data(source, range_key, None, now)
    agents: list[str] = first["agents"] if len(first["agents"]) <= MOST_AGENTS else []
    if agent is not None and agent not in agents:
        agents = [*agents, agent]
    choices: list[tuple[str, str | None]] = [
        (key, one) for key in first["ranges"] for one in (None, *agents)
    ]
    made: list[dict[str, Any]] = [
        {**page_data(source, key, one, now), "agents": agents} for key, one in choices
    ]
    start = {
        "title": first["source"],
        "ranges": titles(source.span()),
        "range": range_key,
        "agent": agent,
        "data": made,
    }
    return make_page(start, is_served=False).html
