"""One request to a model: how it is sent, how its response is read, and the middleware around it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import logging
import operator
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from contextvars import Context, copy_context
from typing import Any, TypeAlias

from treadle import effects
from treadle.effects import CLEANUP_SECONDS, Call, Reporter, Steps, Timed, in_context, is_awaitable
from treadle.effects.cleanup import Outcome, call_into, settle
from treadle.messages import Chunk, JSONDict, Response, Timing, Usage, copy_json, for_sdk, settled
from treadle.messages.decode import is_cost, to_chunk, to_response
from treadle.messages.parts import as_text_results, has_parts
from treadle.messages.stream import StreamAccumulator
from treadle.model.client import ModelClient
from treadle.model.retry import MAX_ASKED_DELAY

log = logging.getLogger("treadle.model")

EventsOf: TypeAlias = Callable[[Chunk, Reporter], Iterable[Any]]
"""Takes a piece of a streamed response, and the reporter, which has the clock; returns the events to emit."""


class ModelRequest:
    """One request to a model. A `Call` effect calls `send`; its outcome is the whole response.

    Attributes:
        model: the model that is asked.
        messages: the messages to send; the model receives those that `for_sdk` makes of them for its origin.
        opts: the options that it receives, with the tools; see `ModelClient.opts_of`.
        events: returns the function that makes the events of a streamed response; it is called at the first
            piece. None if there are no listeners.
        is_priced: whether the model computes the cost of its response, if it can.
        iteration: the number of the iteration.
        attempt: the number of the attempt, from 1; see ``max_retries`` of `treadle.stages.ask_model`.
        max_retry_delay: the longest wait that a server may ask for; see `treadle.stages.ask_model`.
        report_switch: takes the error of a model, its name, and that of the next model; returns steps that report
            it. None if `treadle.stages.ask_model` did not make the request.
        has_origins: whether a message may have an origin.
        elsewhere: what `so_far` returns, if a copy of the request was sent in another process; else None.
    """

    iteration = 1
    attempt = 1
    max_retry_delay = MAX_ASKED_DELAY
    report_switch: Callable[[Exception, str, str], Steps[None]] | None = None
    is_priced = True
    has_origins = True
    elsewhere: tuple[str, Timing | None] | None = None
    _events_of: EventsOf | None = None
    _iterator: Any = None
    _unawaited: Any = None
    _accumulator: StreamAccumulator | None = None
    _started: float | None = None
    _first_chunk: float | None = None
    _is_abandoned = False

    def __init__(
        self,
        model: ModelClient,
        messages: list[JSONDict],
        opts: dict[str, Any],
        events: Callable[[], EventsOf] | None = None,
    ) -> None:
        self.model = model
        self.messages = messages
        self.opts = opts
        self.events = events

    def copy(self, model: ModelClient | None = None) -> ModelRequest:
        """Copy the request: one that was sent cannot be sent again, since its model may have changed it.

        Args:
            model: another model. It receives tool messages with content parts as texts, if it takes none, and
                not the option ``model``, which names the first one; None keeps the model.
        """
        messages, opts = copy_json(self.messages), copy_json(self.opts)
        if model is not None and model is not self.model:
            opts.pop("model", None)
            if not model.takes_parts and any(map(has_parts, messages)):
                messages = as_text_results(messages)
        made = ModelRequest(model or self.model, messages, opts, self.events)
        made.iteration, made.attempt = self.iteration, self.attempt
        made.max_retry_delay, made.report_switch = self.max_retry_delay, self.report_switch
        return made

    def send(self, reporter: Reporter) -> Any:
        """Send the request and read the response; returns a `TimedResponse`, or an awaitable of it.

        Raises:
            NotAResponseError: the model returned a value that cannot be converted to a response.
            ProviderError: the provider reported an error in place of a response, or within one.
            ConnectionError: a stream ended before the response did.
        """
        started = self._started = reporter.now()
        if self.has_origins:
            self.messages = for_sdk(self.messages, self.model.origin)
        raw = self.model.send(self.messages, self.opts)
        if raw.__class__ in _WHOLE:
            response = to_response(raw)
        elif is_awaitable(raw) or isinstance(raw, AsyncIterable):
            # If made in a thread, it reaches the event loop later, or never if the run is cancelled meanwhile.
            self._unawaited = raw
            if self._is_abandoned:
                self.abandon()
            return self._received(raw, reporter, started)
        else:
            is_stream = isinstance(raw, Iterator)
            response = self._read(raw, reporter) if is_stream else to_response(raw)  # pyright: ignore[reportUnknownArgumentType]
        return self._timed(response, raw, started, reporter.now())

    async def _received(self, raw: Any, reporter: Reporter, started: float) -> Timed[Response]:
        if is_awaitable(raw):
            raw = await raw
        if raw.__class__ in _WHOLE or not isinstance(raw, (AsyncIterable, Iterator)):
            response = to_response(raw)
        else:
            response = await self._read_async(raw, reporter)
        return self._timed(response, raw, started, reporter.now())

    def _timed(self, response: Response, raw: Any, started: float, ended: float) -> Timed[Response]:
        """Put what was measured into a response, as a part of the outcome, and so of a replay."""
        model, first, response = self.model, self._first_chunk, settled(response)
        if response is raw:  # it may be in use elsewhere
            response = dataclasses.replace(response)
        if response.extra or any(map(_extra_of, response.tool_calls)):
            _set(response, "origin", model.origin)
        _set(response, "times", (started, ended) if first is None else (started, ended, first))
        if model.provider is not None and response.provider is None:
            _set(response, "provider", model.provider)
        if model.cost_of is not None and self.is_priced:
            response = with_cost(response, model.cost_of)
        return response, started, ended

    def _read(self, iterator: Iterator[Any], reporter: Reporter) -> Response:
        """Read a stream in a thread, or without an event loop, until the run abandons it."""
        context, accumulator = copy_context(), StreamAccumulator()
        self._iterator, self._accumulator = iterator, accumulator
        try:
            while not self._is_abandoned:
                piece = context.run(next, iterator, _END)
                if piece is _END:
                    return accumulator.response()
                for emitted in self._add(piece, accumulator, reporter):
                    effects.drive_sync(_awaited(emitted))  # there is no event loop here
        except BaseException:
            _close(iterator, context)
            raise
        _close(iterator, context)
        raise ConnectionError("the response was abandoned")

    async def _read_async(self, raw: Any, reporter: Reporter) -> Response:
        """Read a stream on an event loop; close it if it breaks off, shielded from cancellation."""
        import anyio.lowlevel  # noqa: PLC0415 - slow to import, and only streams need it

        context, accumulator = copy_context(), StreamAccumulator()
        self._accumulator = accumulator
        # An iterator is used directly: the `__aiter__` of OpenAI's client returns another iterator, which
        # closes nothing.
        iterator: Any = raw if isinstance(raw, (AsyncIterator, Iterator)) else aiter(raw)  # pyright: ignore[reportUnknownVariableType]
        try:
            for count in itertools.count(1):
                if count % CHUNKS_AT_ONCE == 0:
                    # A stream whose pieces are ready never waits, and a time limit only takes effect in a wait.
                    await anyio.lowlevel.checkpoint()
                piece = await _next_of(iterator, context)
                if piece is _END:
                    break
                for emitted in self._add(piece, accumulator, reporter):
                    await emitted
            return accumulator.response()
        except GeneratorExit:  # the event loop is closed: nothing can be awaited
            raise
        except BaseException:
            with anyio.move_on_after(CLEANUP_SECONDS, shield=True), _logged():
                closed = _close(iterator, context)
                if is_awaitable(closed):
                    await in_context(closed, context)
            raise

    def _add(
        self, piece: Any, accumulator: StreamAccumulator, reporter: Reporter
    ) -> Iterator[Awaitable[None]]:
        """Add a piece to the response and emit its events; yield the awaitables of async listeners."""
        if self._first_chunk is None:
            self._first_chunk = reporter.now()
        chunk = to_chunk(piece)
        if self.events is not None and self._events_of is None:
            self._events_of = self.events()
        if accumulator.add(chunk) and self._events_of is not None:
            for event in self._events_of(chunk, reporter):
                emitted = reporter.emit(event)
                if emitted is not None:
                    yield emitted

    def so_far(self, reporter: Reporter) -> tuple[str, Timing | None]:
        """The text that was streamed without a response, and the times until now; None if it was not sent."""
        if self.elsewhere is not None:
            return self.elsewhere
        text = "" if self._accumulator is None else self._accumulator.text
        if self._started is None:
            return text, None
        return text, Timing(self._started, reporter.now(), self._first_chunk)

    def abandon(self) -> None:
        """Stop reading: the caller was cancelled. A stream that is read in a thread ends at its next piece."""
        self._is_abandoned = True
        raw, iterator = self._unawaited, self._iterator
        if inspect.iscoroutine(raw) and inspect.getcoroutinestate(raw) == inspect.CORO_CREATED:
            raw.close()  # else Python warns that it was never awaited
        if iterator is not None and not isinstance(iterator, Generator):
            _close(iterator, copy_context())  # closing a connection ends a read that blocks


CHUNKS_AT_ONCE = 32
"""The number of pieces of a stream that are read before other tasks may run."""
_WHOLE = frozenset({dict, str, Response})
"""The classes of responses that are not streams."""
_END = object()
"""Takes the place of the piece after the last one."""
_set = object.__setattr__
_extra_of = operator.attrgetter("extra")


def _awaited(awaitable: Awaitable[None]) -> Steps[None]:
    yield Call(lambda: awaitable)


async def _next_of(iterator: AsyncIterator[Any] | Iterator[Any], context: Context) -> Any:
    """The next piece of a stream, or `_END`."""
    import anyio.to_thread  # noqa: PLC0415 - slow to import

    if not isinstance(iterator, AsyncIterator):
        outcome: list[Outcome] = []
        read = functools.partial(call_into, outcome, context.run, next, iterator, _END)
        await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
        return settle(outcome)
    # Not `anext(iterator, _END)`: it crashes CPython 3.11 if `__anext__` raises at once.
    try:
        return await in_context(context.run(iterator.__anext__), context)
    except StopAsyncIteration:
        return _END


@contextlib.contextmanager
def _logged() -> Generator[None]:
    """Log an exception of closing: the caller has to see the earlier one, which broke off the response."""
    try:
        yield
    except Exception:
        log.debug("closing a broken stream failed", exc_info=True)


def _close(iterator: Any, context: Context) -> Any:
    """Close a stream, if it can be closed; the result may be an awaitable."""
    with _logged():
        for name in ("aclose", "close"):
            close = getattr(iterator, name, None)
            if callable(close):
                return context.run(close)
    return None


def with_cost(response: Response, cost_of: Callable[[Response], float | None]) -> Response:
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
        cost = None
    if is_cost(cost):
        usage = dataclasses.replace(usage or Usage(is_lower_bound=True), cost=cost)
        return dataclasses.replace(response, usage=usage)
    if cost is not None:
        log.warning("cost_of= returned %r, which is no cost in US dollars; it is unknown", cost)
    return response


TimedResponse: TypeAlias = Timed[Response]
"""A response, with the times of its start and end, in seconds since the epoch."""
SendRequest: TypeAlias = Callable[[ModelRequest], Steps[TimedResponse]]
"""Sends a request; returns the steps that do so. Their outcome is the response, or the exception of the model."""
ModelMiddleware: TypeAlias = Callable[[ModelRequest, SendRequest], Steps[TimedResponse]]
"""Takes a request and the function that sends it; returns steps that send it, a changed one or none."""


class StreamInterruptedError(ConnectionError):
    """A stream broke off after listeners had received text of it: another request would show other text.

    Args:
        text: the text that was streamed.
        error: the exception that broke it off.
    """

    retryable = False

    def __init__(self, text: str, error: Exception) -> None:
        super().__init__(text, error)
        self.text = text
        self.error = error

    def __str__(self) -> str:
        return str(self.error)


class SharedLimit:
    """The base of middleware that makes a request wait for those of other runs.

    A Temporal workflow cannot wait for others, so such middleware runs in the activity that sends the request.
    """


def through(middleware: Iterable[ModelMiddleware], send: SendRequest) -> SendRequest:
    """Compose middleware around the function that sends a request; the first is the outermost."""
    return functools.reduce(
        lambda inner, one: lambda request: one(request, inner), reversed([*middleware]), send
    )
