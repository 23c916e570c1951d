"""The handle: watching and ending a run from outside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from anyio.streams.memory import MemoryObjectReceiveStream

from treadle.pipeline import Signal
from treadle.types import Event, JSONDict, Result, RunState, ToolCall

if TYPE_CHECKING:
    from treadle.loop.run import Run


class RunHandle:
    """A handle on one run; give it to ``run`` or ``run_sync`` as ``handle=``, or get it from ``stream``.

    Its methods may be called from any thread. What it shows is valid at any time, after a cancellation too.
    """

    def __init__(self) -> None:
        self.ended = Signal()
        self._run: Run | None = None

    def bind(self, run: Run) -> None:
        """Belong to a run, from its start on.

        Raises:
            RuntimeError: it belongs to one already.
        """
        if self._run is not None:
            raise RuntimeError("a RunHandle belongs to one run; make another for the next")
        self._run = run

    @property
    def state(self) -> RunState | None:
        """The record of the run; None before it started."""
        return self._run.state if self._run is not None else None

    @property
    def result(self) -> Result | None:
        """What the run returned, or would have returned when it was cancelled; None until it is over."""
        return self._run.result if self._run is not None else None

    @property
    def messages(self) -> list[JSONDict]:
        """The conversation up to the last finished iteration, or to the end: always a valid history."""
        return self._run.context.messages.to_list() if self._run is not None else []

    @property
    def in_flight(self) -> tuple[ToolCall, ...]:
        """The tool calls that are running."""
        return tuple(self._run.runner.running.values()) if self._run is not None else ()

    def cancel(self) -> None:
        """End the run: what is under way is cancelled and answered, and the result is ``Err(RunCancelled)``."""
        self.ended.set()

    def cancel_all(self) -> tuple[ToolCall, ...]:
        """Stop the tools that run, and let the model go on with "cancelled" as their answers.

        Returns:
            The calls that were stopped.
        """
        return self._run.runner.cancel_all() if self._run is not None else ()


class EventStream(RunHandle):
    """The handle that ``Loop.stream`` gives: an async iterator of the run's events too."""

    def __init__(self, events: MemoryObjectReceiveStream[Event]) -> None:
        super().__init__()
        self._events = events

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events.__aiter__()
