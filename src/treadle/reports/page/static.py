"""The page as a file that stands alone, with the numbers of every choice that it offers in it."""

from __future__ import annotations

from typing import Any

from treadle.reports.numbers.source import Source
from treadle.reports.page.numbers import numbers
from treadle.reports.page.page import make_page
from treadle.reports.page.times import titles

MOST_AGENTS = 6
"""Of more, only the one that was asked for can be chosen: the file has its numbers for each range of time."""


def static_page(source: Source, range_key: str, agent: str | None, now: float) -> str:
    """Make the page as a file.

    Args:
        source: where the numbers come from.
        range_key: the range of time that is shown first.
        agent: the agent that is shown first; None are all.
        now: seconds since the epoch.

    Returns:
        HTML, in ASCII but for what the page itself says.

    Raises:
        SourceError: the source has nothing to give.
    """
    first = numbers(source, range_key, None, now)
    agents: list[str] = first["agents"] if len(first["agents"]) <= MOST_AGENTS else []
    if agent is not None and agent not in agents:
        agents = [*agents, agent]
    choices: list[tuple[str, str | None]] = [
        (key, one) for key in first["ranges"] for one in (None, *agents)
    ]
    made: list[dict[str, Any]] = [
        {**numbers(source, key, one, now), "agents": agents} for key, one in choices
    ]
    start = {
        "title": first["source"],
        "ranges": titles(source.span()),
        "range": range_key,
        "agent": agent,
        "numbers": made,
    }
    return make_page(start, is_served=False).html
