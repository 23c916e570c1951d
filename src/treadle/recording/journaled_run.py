"""A run in a journal: each outcome is stored as it happens, so that another process can resume the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from treadle.messages import JSONDict

if TYPE_CHECKING:
    from treadle.recording.log import Entry


class JournaledRun(Protocol):
    """A run that this process drives. Nothing of it is written after another process has taken it over.

    A run has several parts if it was paused: each starts from the state of the pause and the decisions on it.

    Attributes:
        start: what the latest part started from.
        log: the entries of that part, in the order in which they were added.
        outcome: the result of that part; None if it has not ended.
        decisions: the decisions of people on calls that wait, by the id of the pending call.
    """

    start: JSONDict
    log: Sequence[Entry]
    outcome: JSONDict | None
    decisions: Mapping[str, JSONDict]

    def add(self, entries: Sequence[Entry], taken: Sequence[int] = ()) -> None:
        """Store entries, in one atomic step; they are stored when it returns.

        Args:
            entries: the entries, in order.
            taken: the numbers of the messages that the run has taken, see `messages`.

        Raises:
            LeaseLostError: another process has taken the run over.
            JournalError: they cannot be stored. Nothing of them is.
        """
        ...

    def messages(self) -> Sequence[tuple[int, JSONDict]]:
        """The user messages that were sent to the run and that it has not taken yet, each with its number."""
        ...

    def begin_part(self, start: JSONDict) -> None:
        """Begin the next part, with an empty log. The decisions so far belong to it."""
        ...

    def finish(self, outcome: JSONDict) -> None:
        """Store the result of the latest part."""
        ...

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Call a function when someone cancels the run, or when another process has taken it over.

        Args:
            stop: may be called in any thread, also at once, and more than once.
        """
        ...

    def close(self) -> None:
        """Give the run up: another process may open it at once. Calling this again does nothing."""
        ...
