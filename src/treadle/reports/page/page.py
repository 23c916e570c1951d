"""The page itself: one file with its style, its program and, where it stands alone, its numbers.

Nothing in it comes from elsewhere, and its policy allows nothing else; see `treadle.reports.sealed`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from treadle.reports.sealed import filled, inert, policy, program

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
"""In the order in which they are joined; all share one scope."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Args:
        html: all of it.
        policy: the Content-Security-Policy to serve it with.
    """

    html: str
    policy: str


def make_page(start: Mapping[str, Any], *, is_served: bool) -> Page:
    """Make the page.

    Args:
        start: what it starts with: the ``range`` and the ``agent`` to show, and ``numbers``, those of each
            choice, where it stands alone.
        is_served: by a server that it can ask for numbers; otherwise it stands alone as a file, with its policy
            in it.
    """
    style = "\n".join(map(_part, STYLES))
    script = program(map(_part, SCRIPTS))
    source = "connect-src 'self'" if is_served else "connect-src 'none'"
    directives = policy(style, script, source, "img-src data:")
    parts = {
        "policy": "" if is_served else _as_meta(directives),
        "style": style,
        "script": script,
        "start": inert(json.dumps(start, separators=(",", ":"))),
    }
    html = filled(_part("page.html"), parts)
    return Page(html, directives if not is_served else f"{directives}; frame-ancestors 'none'")


@cache
def _part(name: str) -> str:
    return resources.files("treadle.reports.page").joinpath(name).read_text(encoding="utf-8")


def _as_meta(directives: str) -> str:
    return f'<meta http-equiv="Content-Security-Policy" content="{directives}">'
