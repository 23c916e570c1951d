"""Changes between two loops."""

from __future__ import annotations

from treadle.messages import JSONDict


def changes_between(old: JSONDict, new: JSONDict) -> list[str]:
    """What is different in a loop, as sentences."""
    return [] if old == new else ["the stages"]
