"""The HTML of the dashboard page: style, script and, in a self-contained file, its data.

It loads nothing from other sites, and its policy forbids it; see `treadle.reports.html_page`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from treadle.reports.html_page import (
    content_security_policy,
    escape_json,
    fill_template,
    join_scripts,
)

STYLES = ("page.css", "panels.css")
SCRIPTS = (
    "dom.js",
    "format.js",
    "plot.js",
    "chart.js",
    "heatmap.js",
    "tables.js",
    "panels.js",
    "page.js",
)
"""The scripts in the order in which they are joined. They share one scope."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Args:
        html: its content.
        policy: the Content-Security-Policy to serve it with.
    """

    html: str
    policy: str


def make_page(start: Mapping[str, Any], *, is_served: bool) -> Page:
    """Make the page.

    Args:
        start: the initial state: the ``range`` and the ``agent`` to show and, for a self-contained file, ``data``
            for each choice.
        is_served: it is served, and requests its data from the server. Otherwise it is a file that contains its
            data and its policy.
    """
    style = "\n".join(map(_part, STYLES))
    script = join_scripts(map(_part, SCRIPTS))
    source = "connect-src 'self'" if is_served else "connect-src 'none'"
    directives = content_security_policy(style, script, source, "img-src data:")
    parts = {
        "policy": "" if is_served else _as_meta(directives),
        "style": style,
        "script": script,
        "start": escape_json(json.dumps(start, separators=(",", ":"))),
    }
    html = fill_template(_part("page.html"), parts)
    return Page(html, directives if not is_served else f"{directives}; frame-ancestors 'none'")


@cache
def _part(name: str) -> str:
    return (
        resources.files("treadle.reports.dashboard_page").joinpath(name).read_text(encoding="utf-8")
    )


def _as_meta(directives: str) -> str:
    return f'<meta http-equiv="Content-Security-Policy" content="{directives}">'
