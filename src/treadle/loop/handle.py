"""The handle: watching, steering and ending a run from outside it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from anyio.streams.memory import MemoryObjectReceiveStream

from treadle.effects import Signal
from treadle.errors import OptionError
from treadle.events import Event
from treadle.messages import JSONDict, ToolCall, copy_json, problems_of
from treadle.results import Result
from treadle.run_state import RunState

if TYPE_CHECKING:
    from treadle.loop.run import Run


class RunHandle:
    """A handle on one run; give it to ``run`` or ``run_sync`` as ``handle=``, or get it from ``stream``.

    Its methods may be called from any thread. What it shows is valid at any time, after a cancellation too.
    """

    def __init__(self) -> None:
        self.ended = Signal()
        self._run: Run | None = None
        self._said: list[JSONDict] = []
        self._is_closed = False
        self._mutex = threading.Lock()

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
        return self._run.turn.context.messages.to_list() if self._run is not None else []

    @property
    def in_flight(self) -> tuple[ToolCall, ...]:
        """The tool calls that are running."""
        return tuple(self._run.turn.runner.running.values()) if self._run is not None else ()

    def steer(self, message: str | Mapping[str, Any]) -> bool:
        """Say something to the model: a user message, which is added before the next model call.

        A run whose model has just answered goes on with it.

        Args:
            message: text, or a message of the role ``user``.

        Returns:
            Whether the run will still see it; False where it is over.

        Raises:
            OptionError: it is no user message.
        """
        said = {"role": "user", "content": message} if isinstance(message, str) else dict(message)
        problems = [*problems_of([said])]
        content = said.get("content")
        if not content or (isinstance(content, str) and not content.strip()):
            problems.append("it says nothing")
        if said.get("role") != "user" or problems:
            told = "; ".join(problems) or f"role: expected 'user', got {said.get('role')!r}"
            raise OptionError(f"steer: expected text or a user message: {told}")
        with self._mutex:
            if self._is_closed:
                return False
            self._said.append(copy_json(said))
            return True

    def take(self, is_over: bool) -> tuple[JSONDict, ...]:
        """Take what was said since the last time; for the run.

        Args:
            is_over: the run ends if there is nothing, and takes no more from here on.
        """
        with self._mutex:
            said, self._said = tuple(self._said), []
            self._is_closed = is_over and not said
            return said

    def close(self) -> tuple[JSONDict, ...]:
        """Take nothing more, for the run is over; return what was said since the last time."""
        with self._mutex:
            said, self._said = tuple(self._said), []
            self._is_closed = True
            return said

    def cancel(self) -> None:
        """End the run: what is under way is cancelled and answered, and the result is ``Err(RunCancelled)``."""
        self.ended.set()

    def cancel_all(self) -> tuple[ToolCall, ...]:
        """Stop the tools that run, and let the model go on with "cancelled" as their answers.

        Returns:
            The calls that were stopped.
        """
        return self._run.turn.runner.cancel_all() if self._run is not None else ()


class EventStream(RunHandle):
    """The handle that ``Loop.stream`` gives: an async iterator of the run's events too."""

    def __init__(self, events: MemoryObjectReceiveStream[Event]) -> None:
        super().__init__()
        self._events = events

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events.__aiter__()
