"""Streams: the events of a run, read while it is in progress."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, Self

from treadle import effects
from treadle.effects import Steps
from treadle.events import Event, ModelRequested, ModelResponded, TextDelta
from treadle.loop.handle import RunHandle
from treadle.loop.observers import Changed, Deliver
from treadle.results import Result
from treadle.type_vars import OutputT_co

if TYPE_CHECKING:
    from treadle.effects import DetachedTask

EVENTS_AHEAD = 64
"""The number of unread events at which a run waits for its reader."""


class EventStream(RunHandle, Generic[OutputT_co]):
    """The handle that ``Loop.stream`` returns; also an async iterator of the events of the run.

    The run has a separate task. If it raises an exception, so does the iterator after the last event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._events: deque[Event] = deque()
        self._changed = Changed()  # an event was added or taken, or the events have ended
        self._is_over = False
        self._was_interrupted = False  # the run, while it waited for the reader
        self.task: DetachedTask | None = None

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
        self._changed.notify()
        return None if len(self._events) < EVENTS_AHEAD else self._wait_for_reader()

    async def _wait_for_reader(self) -> None:
        # A run that is cancelled here does not wait during its cleanup: its reader may be cancelled, too.
        while len(self._events) >= EVENTS_AHEAD and not self._is_over | self._was_interrupted:
            try:
                await self._changed.wait()
            except BaseException:
                self._was_interrupted = True
                raise

    def end(self) -> None:
        """End the events: the run is over, or its reader has left."""
        self._is_over = True
        self._changed.notify()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._is_over:
                error = None if self.task is None else self.task.take_error()
                try:
                    raise StopAsyncIteration if error is None else error
                finally:
                    del error  # its traceback refers to this frame
            await self._changed.wait()
        self._was_interrupted = False
        self._changed.notify()
        return self._events.popleft()

    def text(self) -> AsyncIterator[str]:
        """Read the text of the run alone, as the model writes it; subagents are left out.

        A response that is not streamed arrives whole. An empty line separates the texts of several responses, such
        as one before a call and the answer. The text ends with the run, whatever its result is.
        """
        return _Text(self)


class _Text(AsyncIterator[str]):
    """The text in a stream. It is a class, since a generator that is not read to its end has to be closed."""

    def __init__(self, events: EventStream[Any]) -> None:
        self._events = events
        self._separator = ""
        self._is_new = True  # nothing of this response was returned

    async def __anext__(self) -> str:
        async for event in self._events:
            text: str | None = None
            if isinstance(event, ModelRequested):
                self._is_new = True
            elif isinstance(event, TextDelta):
                text = event.text
            elif isinstance(event, ModelResponded) and self._is_new:
                text = event.response.content
            if text:
                separator = self._separator if self._is_new else ""
                self._is_new, self._separator = False, "\n\n"
                return separator + text
        raise StopAsyncIteration


def streamed_run(
    start: Callable[[EventStream[Any]], tuple[Steps[Result], Deliver | None]],
) -> AbstractAsyncContextManager[EventStream[Any]]:
    """Run next to the body of an ``async with``; ``start`` makes the steps, and what receives the events."""

    def begin() -> tuple[EventStream[Any], DetachedTask]:
        stream: EventStream[Any] = EventStream()
        steps, emit = start(stream)

        async def run() -> None:
            try:
                await effects.drive(steps, emit)
            finally:
                stream.end()

        stream.task = effects.DetachedTask(run, stream.end)
        return stream, stream.task

    return effects.Detached(begin)
