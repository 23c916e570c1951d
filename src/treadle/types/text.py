"""The text of something that somebody else made."""

from __future__ import annotations


def text_of(value: object) -> str:
    """Its ``str``; where that raises, or is none, words that say what it is."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a `__str__` of somebody else's; or a number of too many digits
        return f"({type(value).__name__}, which cannot be shown)"
