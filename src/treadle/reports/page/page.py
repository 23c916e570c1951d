"""The page itself: one file with its style, its program and, where it stands alone, its numbers.

Nothing in it comes from elsewhere, and its policy allows nothing else: the one style and the one program are
named by their digests, so that nothing that a model wrote could ever run, whatever the program did with it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

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
    script = '"use strict";\n(() => {\n' + "\n".join(map(_part, SCRIPTS)) + "\n})();\n"
    policy = _policy(style, script, is_served=is_served)
    parts = {
        "<!--policy-->": "" if is_served else _as_meta(policy),
        "/*style*/": style,
        "/*script*/": script,
        # The last one: what it says is not ours, and may look like a mark.
        "/*start*/": _inert(start),
    }
    html = _part("page.html")
    for mark, text in parts.items():
        before, _, after = html.partition(mark)
        html = f"{before}{text}{after}"
    return Page(html, policy if not is_served else f"{policy}; frame-ancestors 'none'")


@cache
def _part(name: str) -> str:
    return resources.files("treadle.reports.page").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str, *, is_served: bool) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            "connect-src 'self'" if is_served else "connect-src 'none'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _as_meta(policy: str) -> str:
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'


def _inert(value: Any) -> str:
    """JSON in which nothing ends the element that it is in, or begins another."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
