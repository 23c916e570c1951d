"""What the pages that are one file have in common: nothing in them that a model wrote is ever more than text.

A page has one style and one program, both named by their digests in its policy, so that no other takes effect.
Data stands in a script of the type ``application/json``, and the program makes text nodes of it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping


def program(parts: Iterable[str]) -> str:
    """The scripts of a page as one, in which all share a scope that nothing else sees."""
    return "\n".join(['"use strict";', "(() => {", *parts, "})();"])


def policy(style: str, script: str, *allowed: str) -> str:
    """The Content-Security-Policy of a page.

    Args:
        style: its one style, exactly as it stands there.
        script: its one program, exactly as it stands there.
        allowed: directives for what it may do besides.
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


def inert(data: str) -> str:
    """JSON, in ASCII, in which nothing ends the element that it is in, or begins another."""
    return data.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with each ``{{name}}`` replaced, once: what looks like a mark in a part is left as it is."""
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], template)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
