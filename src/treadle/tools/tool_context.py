"""`ToolContext`, with the facts about the run that a tool can read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Generic

from treadle.fast_dataclass import fast_dataclass
from treadle.limits import Remaining
from treadle.type_vars import DepsT_co


@fast_dataclass
class ToolContext(Generic[DepsT_co]):
    """What a tool can read about the run that calls it; the loop fills a parameter of this type.

    ``ToolContext[Deps]`` states the type of `deps`, for type checkers.

    Args:
        call_id: the id of the call.
        tool_name: the name by which the tool was called.
        iteration: the number of the iteration, from 1.
        attempt: the number of the attempt, from 1.
        run_id: the id of the run.
        agent_name: the name of the loop.
        remaining: what remained of the run's limits when the call started.
        deps: the object that the caller passed as ``deps=``.
        reporter: takes what `report` reports; None without a listener, and in a context that a test makes.
    """

    call_id: str
    tool_name: str
    iteration: int
    attempt: int = 1
    run_id: str = ""
    agent_name: str = ""
    remaining: Remaining = field(default_factory=Remaining, compare=False)
    deps: DepsT_co = field(default=None, compare=False, repr=False)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    reporter: Callable[[str, float | None, Any], None] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def idempotency_key(self) -> str:
        """A key for services that carry out each request once: the same in every attempt of the call.

        It is also the same if the call runs again because the process ended, see ``journal=``.
        """
        return f"{self.run_id}/{self.call_id}"

    def report(self, message: str, progress: float | None = None, data: Any = None) -> None:
        """Report progress to the listeners of the run, as the event `ToolProgress`. The model does not see it.

        It may be called in any thread, and never raises. After the call has ended it does nothing.

        Args:
            message: what the tool is doing, for a person.
            progress: how much is done, from 0 to 1; other numbers are replaced by the nearest of these.
            data: anything else for the listeners, preferably JSON data.
        """
        if self.reporter is not None:
            self.reporter(message, progress, data)
