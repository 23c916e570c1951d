"""The log of this package."""

from __future__ import annotations

import logging

log = logging.getLogger("treadle.mcp")


def warn(text: str, *values: object) -> None:
    """Log a warning; without a handler it is dropped, since Python would write it to stderr."""
    if log.hasHandlers():
        log.warning(text, *values)
