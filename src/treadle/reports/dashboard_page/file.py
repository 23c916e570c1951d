"""The dashboard page as a self-contained file, with the data of every selectable range and agent."""

from __future__ import annotations

from treadle.reports.dashboard_page.data import page_data
from treadle.reports.dashboard_page.page import make_page
from treadle.reports.sources.source import Source

MOST_AGENTS = 6
"""Maximum number of selectable agents. With more, only the requested one is: each adds data to the file."""


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
