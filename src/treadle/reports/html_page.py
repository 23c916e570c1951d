"""Self-contained HTML pages in which text of models stays text.

A page has one style sheet and one script. Its Content-Security-Policy names both by their digests, so no other
style or script takes effect. Data is in a ``script`` element of the type ``application/json``, and the script
makes text nodes of it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from treadle.codec import to_json_line


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page, and its Content-Security-Policy."""

    html: str
    policy: str


def make_html(
    package: str,
    template: str,
    styles: Iterable[str],
    scripts: Iterable[str],
    data: Any,
    *,
    directives: Iterable[str] = (),
    has_policy: bool = True,
    **parts: str,
) -> Page:
    """Fill the template of a page: a part replaces each ``{{name}}``. Placeholders in parts stay.

    The scripts are joined in their order and share one private scope. The policy may have further directives; if
    it is not part of the page, the page has to be served with it.
    """
    style = "\n".join(_file(package, name) for name in styles)
    opened, closed = '"use strict";\n(() => {', "})();"
    # The policy has the hash of what the browser sees, so the script must not depend on an encoding.
    script = _in_ascii("\n".join([opened, *(_file(package, name) for name in scripts), closed]))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            *directives,
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    # JSON that cannot close its HTML element or open another.
    escaped = to_json_line(data).translate({ord(one): f"\\u{ord(one):04x}" for one in "&<>"})
    known = {"policy": meta if has_policy else "", "style": style, "script": script}
    values = {**known, "data": escaped, **parts}
    html = re.sub(r"\{\{(\w+)\}\}", lambda name: values[name[1]], _file(package, template))
    return Page(html, policy)


@cache
def _file(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _in_ascii(script: str) -> str:
    return "".join(one if one.isascii() else f"\\u{{{ord(one):x}}}" for one in script)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
