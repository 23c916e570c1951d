"""What a run needs of a journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from treadle.effects import Steps
from treadle.loop.handle import RunHandle
from treadle.results import Result


class RunJournal(Protocol):
    """Performs runs so that they survive their process; `treadle.durable.Journal` is one."""

    def steps(
        self, loop: Any, run_id: str, given: Any, make: Callable[..., Any], handle: RunHandle
    ) -> Steps[Result]:
        """Perform a run, or what is left of it.

        Args:
            loop: its loop.
            run_id: its id.
            given: the messages of the caller; missing if the run exists.
            make: makes the run of messages, or of a paused run, and of a state; and, if it is given, of whether
                listeners show text as it arrives.
            handle: is attached to the run.
        """
        ...
