"""The HTML of the dashboard page: style, script and, in a self-contained file, its data.

It loads nothing from other sites, and its policy forbids it; see `treadle.reports.html_page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from treadle.reports.dashboard_page.times import titles
from treadle.reports.html_page import Page, make_html
from treadle.reports.sources.source import Source

STYLES = ("page.css", "panels.css")
SCRIPTS = tuple(
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
        STYLES,
        SCRIPTS,
        start,
        directives=(f"connect-src '{'self' if is_served else 'none'}'", "img-src data:"),
        has_policy=not is_served,
    )
    return replace(page, policy=f"{page.policy}; frame-ancestors 'none'") if is_served else page
