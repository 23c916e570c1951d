"""What a tool may know of the run that calls it."""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.limits import Remaining


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the run that calls it; a parameter of this type is filled by the loop.

    Args:
        call_id: the id of the call.
        tool_name: the name under which it was called.
        iteration: the number of the iteration, from 1.
        attempt: the number of the try, from 1.
        run_id: the id of the run.
        agent_name: whose run it is.
        remaining: what was left of the run's budgets when the call began.
    """

    call_id: str
    tool_name: str
    iteration: int
    attempt: int = 1
    run_id: str = ""
    agent_name: str = ""
    remaining: Remaining = field(default_factory=Remaining, compare=False)
