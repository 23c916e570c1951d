"""`ToolContext`: what a tool can read of the run that calls it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from treadle.limits import Remaining


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool can read of the run that calls it; the loop fills a parameter of this type.

    Args:
        call_id: the id of the call.
        tool_name: the name by which the tool was called.
        iteration: the number of the iteration, from 1.
        attempt: the number of the attempt, from 1.
        run_id: the id of the run.
        agent_name: the name of the loop.
        remaining: what remained of the run's limits when the call started.
        deps: the object that the caller handed in as ``deps=``.
    """

    call_id: str
    tool_name: str
    iteration: int
    attempt: int = 1
    run_id: str = ""
    agent_name: str = ""
    remaining: Remaining = field(default_factory=Remaining, compare=False)
    deps: Any = field(default=None, compare=False, repr=False)
