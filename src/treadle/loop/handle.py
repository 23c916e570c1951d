"""The handle: observes, steers and cancels a run from outside."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self

from treadle.effects import Signal
from treadle.errors import OptionError
from treadle.events import Event
from treadle.messages import JSONDict, ToolCall, copy_json, problems_of
from treadle.results import Result
from treadle.run_state import RunState
from treadle.type_vars import OutputT_co

if TYPE_CHECKING:
    import anyio

    from treadle.loop.run import Run


def as_user_message(message: str | Mapping[str, Any]) -> JSONDict:
    """Make a user message to steer a run with.

    Args:
        message: a text, or a message with the role ``user``, which is copied.

    Raises:
        OptionError: it is not a user message.
    """
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    elif not isinstance(message, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"steer: expected text or a user message, got {type(message).__name__}")
    given = dict(message)
    problems = [*problems_of([given])]
    content = given.get("content")
    if not content or (isinstance(content, str) and not content.strip()):
        problems.append("content: expected a text that is not empty")
    if given.get("role") != "user" or problems:
        problem = "; ".join(problems) or f"role: expected 'user', got {given.get('role')!r}"
        raise OptionError(f"steer: expected text or a user message: {problem}")
    copied: JSONDict = copy_json(given)
    return copied


class RunHandle:
    """Observes, steers and cancels one run: pass it as ``handle=``, or get it from ``stream``.

    Its methods may be called from any thread, and from the handler of a process signal: they take no lock. Its
    properties are valid at any time, even after a cancellation.
    """

    def __init__(self) -> None:
        self.ended = Signal()
        self._run: Run | None = None
        self._result: Result | None = None
        self._messages: list[JSONDict] = []
        self._is_closed = False

    def bind(self, run: Run) -> None:
        """Attach it to a run that is about to start.

        Raises:
            OptionError: it is already attached to a run.
        """
        if self._run is not None:
            raise OptionError(
                "handle: a RunHandle belongs to one run, and this one had one; make another for the next"
            )
        self._run = run

    def bind_result(self, result: Result) -> None:
        """Attach it to a run that had ended, whose result was stored in a journal."""
        self._result = result

    @property
    def state(self) -> RunState | None:
        """The status of the run; None before it started."""
        if self._run is None:
            return None if self._result is None else self._result.run
        return self._run.state

    @property
    def result(self) -> Result | None:
        """The result of the run, also if its task was cancelled; None until it ended."""
        return self._result if self._run is None else self._run.result

    @property
    def messages(self) -> list[JSONDict]:
        """The history up to the last finished iteration; always valid."""
        if self._run is None:
            return [] if self._result is None else copy_json(self._result.messages)
        return self._run.context.messages.to_list()

    @property
    def in_flight(self) -> tuple[ToolCall, ...]:
        """The tool calls that are running."""
        return tuple(self._run.run.in_flight.running.values()) if self._run is not None else ()

    def steer(self, message: str | Mapping[str, Any]) -> bool:
        """Add a user message before the next model call.

        If the model has just answered, the run continues with the message.

        Args:
            message: a text, or a message with the role ``user``.

        Returns:
            Whether the run will receive it; False if the run is over.

        Raises:
            OptionError: it is not a user message.
        """
        added = as_user_message(message)
        self._messages.append(added)
        if self._is_closed:
            try:  # either the run took the message before it ended, or it is still here
                self._messages.remove(added)
            except ValueError:
                return True
            return False
        return True

    def take(self, is_over: bool) -> tuple[JSONDict, ...]:
        """Take the messages that were added since the last time, for the run.

        Args:
            is_over: whether the run ends if there are none; then no further messages are accepted.
        """
        given = self._taken_messages() if self._messages else ()
        if is_over and not given:
            given = self.close()
            self._is_closed = not given
        return given

    def close(self) -> tuple[JSONDict, ...]:
        """Take the messages that were added since the last time, and accept no more: the run is over."""
        self._is_closed = True
        return self._taken_messages()

    def _taken_messages(self) -> tuple[JSONDict, ...]:
        given: list[JSONDict] = []
        while self._messages:
            with contextlib.suppress(IndexError):  # `steer` has removed it
                given.append(self._messages.pop(0))
        return tuple(given)

    def cancel(self) -> None:
        """End the run with ``Err(RunCancelled)``; running calls are cancelled and answered."""
        self.ended.set()

    def cancel_all(self) -> tuple[ToolCall, ...]:
        """Cancel the running tools; the run continues with "cancelled" as their results.

        Returns:
            The calls that were cancelled.
        """
        return self._run.run.in_flight.cancel_all() if self._run is not None else ()


EVENTS_AHEAD = 64
"""The number of unread events at which a run waits for its reader."""


class EventStream(RunHandle, Generic[OutputT_co]):
    """The handle that ``Loop.stream`` returns; also an async iterator of the events of the run."""

    def __init__(self) -> None:
        super().__init__()
        self._events: deque[Event] = deque()
        self._arrived: anyio.Event | None = None
        self._taken: anyio.Event | None = None
        self._is_over = False

    @property
    def result(self) -> Result[OutputT_co]:
        """The result of the run.

        Raises:
            RuntimeError: the run has not ended.
        """
        result = super().result
        if result is None:
            raise RuntimeError(
                "the run has not ended; read the result after the last event, or after the block"
            )
        return result

    def put(self, event: Event) -> Awaitable[None] | None:
        """Add an event, for the run; the result has to be awaited if the reader is too far behind."""
        if self._is_over:  # the reader has left
            return None
        self._events.append(event)
        if self._arrived is not None:
            arrived, self._arrived = self._arrived, None
            arrived.set()
        return None if len(self._events) < EVENTS_AHEAD else self._wait_for_reader()

    async def _wait_for_reader(self) -> None:
        while len(self._events) >= EVENTS_AHEAD and not self._is_over:
            if self._taken is None:
                self._taken = _event()
            await self._taken.wait()

    def end(self) -> None:
        """End the events: the run is over, or its reader has left."""
        self._is_over = True
        for waiting in (self._arrived, self._taken):
            if waiting is not None:
                waiting.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._is_over:
                raise StopAsyncIteration
            if self._arrived is None:
                self._arrived = _event()
            await self._arrived.wait()
        if self._taken is not None:
            taken, self._taken = self._taken, None
            taken.set()
        return self._events.popleft()


def _event() -> anyio.Event:
    import anyio  # noqa: PLC0415 - slow to import, and only streams need it

    return anyio.Event()
