"""The cost of a response, as a function computes it: that of the caller, or of the backend."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import TypeAlias

from treadle.messages import Response, Usage, is_cost

log = logging.getLogger("treadle.model")

CostOf: TypeAlias = Callable[[Response], float | None]
"""Takes a response; returns its cost in US dollars, or None if it is unknown."""


def with_cost(response: Response, cost_of: CostOf) -> Response:
    """A response with its cost, unless the provider reported one. A failure is logged, and then it is unknown."""
    usage = response.usage
    if usage is not None and usage.cost is not None:
        return response
    try:
        cost = cost_of(response)
        cost = None if cost is None else float(cost)
    except Exception:  # a user-supplied function; the response is not affected
        # Without usage, few functions can compute a cost.
        level = logging.DEBUG if usage is None else logging.WARNING
        log.log(level, "cost_of= failed; the cost of this response is unknown", exc_info=True)
        return response
    if cost is None:
        return response
    if not is_cost(cost):
        log.warning("cost_of= returned %r, which is no cost in US dollars; it is unknown", cost)
        return response
    known = Usage(is_lower_bound=True) if usage is None else usage
    return dataclasses.replace(response, usage=dataclasses.replace(known, cost=cost))
