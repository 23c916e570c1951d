"""The log of this package."""

from __future__ import annotations

import logging

log = logging.getLogger("treadle.mcp")
LEFT_OUT = "MCP server %r: the tool %s is left out: %s"
"""The warning about a tool that is not offered: with the server, the tool and the reason."""


def warn(text: str, *values: object) -> None:
    """Log a warning; without a handler it is dropped, since Python would write it to stderr."""
    if log.hasHandlers():
        log.warning(text, *values)
