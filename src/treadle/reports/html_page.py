"""Building blocks of self-contained HTML pages in which text of models stays text.

A page has one style sheet and one script. Its Content-Security-Policy names both by their digests, so no other
style or script takes effect. Data is in a ``script`` element of the type ``application/json``, and the script
makes text nodes of it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping


def join_scripts(parts: Iterable[str]) -> str:
    """The scripts of a page as one script with a private scope."""
    return "\n".join(['"use strict";', "(() => {", *parts, "})();"])


def content_security_policy(style: str, script: str, *allowed: str) -> str:
    """The Content-Security-Policy of a page.

    Args:
        style: the content of its style element.
        script: the content of its script element.
        allowed: further directives.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            *allowed,
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def escape_json(data: str) -> str:
    """JSON in ASCII that cannot close its HTML element or open another."""
    return data.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def fill_template(template: str, parts: Mapping[str, str]) -> str:
    """The template with each ``{{name}}`` replaced. Placeholders in the values are not replaced again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], template)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
