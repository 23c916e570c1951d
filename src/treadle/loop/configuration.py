"""What a loop is made of, as JSON data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.messages import JSONDict

if TYPE_CHECKING:
    from treadle.loop.loop import Loop


def configuration_of(loop: Loop[Any]) -> JSONDict:
    """What a loop is made of."""
    return {"tools": list(loop.tools)}
