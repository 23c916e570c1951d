"""The model as a callable: its signature is inspected once, and its return value becomes a response."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextvars import copy_context
from types import FunctionType
from typing import Any, TypeAlias

from treadle import effects
from treadle.effects import Call, Reporter, Steps, Timed, is_awaitable
from treadle.errors import OptionError
from treadle.messages import (
    ATOMS,
    Chunk,
    JSONDict,
    Response,
    StreamAccumulator,
    Timing,
    as_text_results,
    copy_json,
    for_sdk,
    has_parts,
    is_mapping,
    read_only,
    settled,
    to_chunk,
    to_response,
)
from treadle.model.cost import CostOf, with_cost
from treadle.model.info import (
    LLMSendFn,
    ModelInfo,
    attribute_of,
    is_sdk_method,
    model_info,
    origin_of,
    without_partials,
)
from treadle.model.reading import END, close, close_async, close_unawaited, next_of
from treadle.model.registry import check_model
from treadle.model.retry import MAX_ASKED_DELAY
from treadle.model.signature import adapted, check_options, signature_of
from treadle.shown import callable_name


class ModelClient:
    """A model, with any of the supported signatures.

    Args:
        fn: sync or async, takes messages alone, or with options as one dict or as keywords; ``messages`` may
            be keyword-only, as in OpenAI's client.
        llm_opts: options for every request.

    Raises:
        OptionError: it is not callable, takes no messages, or does not take an option of ``llm_opts``.

    Attributes:
        mode: how it is called.
        send: calls it with messages and options, and returns what it returns. The model may change both.
        options: the options of every request.
        takes_parts: whether it takes content parts in tool messages: the value of its attribute
            ``accepts_tool_result_parts``, False if it has none.
        provider: the attribute ``provider`` of its class, the provider of a response that names none; else None.
        cost_of: its method ``cost_of``, which takes a response and returns US dollars, or None if it does not know
            them; None if it has no such method.
    """

    def __init__(self, fn: LLMSendFn, llm_opts: Mapping[str, Any]) -> None:
        check_model(fn)
        call = fn
        if type(fn) is not FunctionType and is_sdk_method(fn):
            # Few runs need it.
            from treadle.model.wrong_model import check_method, checked_answers  # noqa: PLC0415

            check_method(fn)
            call = checked_answers(fn)
        signature = signature_of(fn)
        self.mode = signature.mode
        self.options: Mapping[str, Any] = read_only(dict(llm_opts))
        self._has_nested = any(value.__class__ not in ATOMS for value in self.options.values())
        self.send, self._takes = adapted(call, signature, self.options)
        self._fn = fn
        plain = without_partials(fn)
        self.takes_parts = getattr(plain, "accepts_tool_result_parts", False) is True
        # Attributes of the class: an object that makes up attributes, such as a mock, has neither.
        kind: Any = plain.__class__
        provider = getattr(kind, "provider", None)
        self.provider = provider if isinstance(provider, str) and provider else None
        is_priced = callable(getattr(kind, "cost_of", None))
        self.cost_of: CostOf | None = attribute_of(plain, "cost_of") if is_priced else None

    def model_info(self) -> ModelInfo:
        """The model, the provider and the request options, if the callable shows them."""
        return model_info(self._fn, self.options)

    @property
    def length_option(self) -> str | None:
        """The option that limits the tokens of a response, by the attribute ``length_option``; None if unknown."""
        found = attribute_of(type(without_partials(self._fn)), "length_option")
        return found if isinstance(found, str) else None

    @property
    def origin(self) -> str:
        """The server of the model, or the name of the callable; see `treadle.messages.for_sdk`."""
        return origin_of(self._fn)

    def takes(self, option: str) -> bool:
        """Whether it takes an option of this name."""
        return self._takes is None or option in self._takes

    @property
    def name(self) -> str:
        """The name of the model, or of the callable if it does not show its model."""
        return self.model_info().model or callable_name(self._fn)

    def identity(self) -> list[Any]:
        """What tells the model apart from others, as far as the callable shows it."""
        info, fn = self.model_info(), self._fn
        filled: list[Any] = []
        while isinstance(fn, functools.partial):
            filled += fn.args
            fn = fn.func
        kind = fn if hasattr(fn, "__qualname__") else type(fn)
        names = [attribute_of(kind, name) for name in ("__module__", "__qualname__")]
        url, opts = attribute_of(fn, "endpoint_url"), attribute_of(fn, "opts")
        names.append(url if isinstance(url, str) else _base_url_of(fn))
        if info.model is None:  # objects of one class may differ in anything
            names.append(dict(vars(fn)) if hasattr(fn, "__dict__") else {})
            names.append(getattr(attribute_of(fn, "__self__"), "__dict__", {}))
        asked = dict(opts if is_mapping(opts) else info.request)
        return [info.provider, info.model, asked, filled, *names]

    def request(
        self,
        messages: list[JSONDict],
        tools: list[JSONDict],
        options: Mapping[str, Any],
        tool_choice: Any = None,
        events: Callable[[], EventsOf] | None = None,
    ) -> ModelRequest:
        """Make one request, ready to be sent.

        Args:
            messages: the messages to send; the request takes over the list.
            tools: the tools in OpenAI's form; the request takes over the list, and omits the key if it is empty.
            options: the options of this request.
            tool_choice: in OpenAI's form; None leaves the key out.
            events: returns the function that makes the events of each piece, if the response is streamed.

        Raises:
            OptionError: an option that the callable does not take.
        """
        # A model that changes its arguments changes a copy.
        if options is self.options:
            opts: dict[str, Any] = copy_json(self.options) if self._has_nested else {**self.options}
        else:
            opts = copy_json(dict(options))
            if self._takes is not None:
                check_options(options, self._takes)
        if tools:
            opts.setdefault("tools", tools)
        if tool_choice is not None and "tools" in opts:
            opts["tool_choice"] = tool_choice
        return ModelRequest(self, messages, opts, events)


def check_no_tools(where: str, options: Mapping[str, Any]) -> None:
    """Check that the options of a request have no tools, which would replace those of the loop.

    Raises:
        OptionError: they have some; the text says where tools belong.
    """
    if "tools" in options:
        raise OptionError(
            f"{where}: tools belong in tools= of the loop, and tools that run at the provider in options of the "
            "model, such as extra_body={'tools': [...]}"
        )


def _base_url_of(fn: Any) -> str | None:
    """The base URL of the client of which a callable is a method."""
    client = attribute_of(attribute_of(fn, "__self__"), "_client")
    url = attribute_of(client, "base_url")
    return None if url is None else str(url)


EventsOf: TypeAlias = Callable[[Chunk, Reporter], Iterable[Any]]
"""Takes a piece of a streamed response, and the reporter, which has the clock; returns the events to emit."""


ReportSwitch: TypeAlias = Callable[[Exception, str, str], Steps[None]]
"""Takes the error of a model, its name, and that of the model that is asked next; returns steps that report it."""


class ModelRequest:
    """One request to a model. A `Call` effect calls `send`; its outcome is the whole response.

    Attributes:
        model: the model that is asked.
        messages: the messages to send; the model receives those that `for_sdk` makes of them for its origin.
        opts: the options that it receives, with the tools.
        events: returns the function that makes the events of a streamed response; it is called at the first
            piece. None if there are no listeners.
        is_priced: whether the model computes the cost of its response, if it can.
        iteration: the number of the iteration.
        attempt: the number of the attempt, from 1; see ``max_retries`` of `treadle.stages.ask_model`.
        max_retry_delay: the longest wait that a server may ask for; see `treadle.stages.ask_model`.
        report_switch: reports that another model is asked; None if `treadle.stages.ask_model` did not make it.
        has_origins: whether a message may have an origin.
        elsewhere: what `so_far` returns, if a copy of the request was sent in another process; else None.
    """

    iteration = 1
    attempt = 1
    max_retry_delay = MAX_ASKED_DELAY
    report_switch: ReportSwitch | None = None
    is_priced = True
    has_origins = True
    elsewhere: tuple[str, Timing | None] | None = None
    _events_of: EventsOf | None = None
    _iterator: Any = None
    _unawaited: Any = None
    _is_abandoned = False
    _accumulator: StreamAccumulator | None = None
    _started: float | None = None
    _first_chunk: float | None = None

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
        """Send the request and read the response.

        Args:
            reporter: has the clock, and takes the events of a stream.

        Returns:
            The response with the times of its start and end, a `Timed`; or an awaitable of it.

        Raises:
            NotAResponseError: the backend returned something that cannot be converted to a response.
            ProviderError: the provider reported an error in place of a response, or within one.
            ConnectionError: a stream ended before the response did.
        """
        self._started = started = reporter.now()
        if self.has_origins:
            self.messages = for_sdk(self.messages, self.model.origin)
        raw = self.model.send(self.messages, self.opts)
        is_whole = raw.__class__ in _WHOLE
        if is_awaitable(raw) or (not is_whole and isinstance(raw, AsyncIterable)):
            # If made in a thread, it reaches the event loop later, or never if the run is cancelled meanwhile.
            self._unawaited = raw
            if self._is_abandoned:
                close_unawaited(raw)
            return self._received(raw, reporter, started)
        is_stream = not is_whole and isinstance(raw, Iterator)
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
        """Put what was measured into a response; a `Response` that the model returned may be in use elsewhere."""
        model, response = self.model, settled(response)
        if response is raw:
            response = dataclasses.replace(response)
        if response.extra or any(map(_extra_of, response.tool_calls)):
            _set_origin(response, model.origin)
        first = self._first_chunk
        _set_times(response, (started, ended) if first is None else (started, ended, first))
        # These are part of the outcome, and so of a replay.
        if model.provider is not None and response.provider is None:
            _set_provider(response, model.provider)
        if model.cost_of is not None and self.is_priced:
            response = with_cost(response, model.cost_of)
        return response, started, ended

    def _read(self, iterator: Iterator[Any], reporter: Reporter) -> Response:
        """Read a stream where blocking is allowed; close it if it breaks off."""
        # A generator may keep a span open between pieces, so it has separate context variables.
        context, accumulator = copy_context(), StreamAccumulator()
        self._iterator, self._accumulator = iterator, accumulator
        try:
            while not self._is_abandoned:
                piece = context.run(next, iterator, END)
                if piece is END:
                    return accumulator.response()
                for emitted in self._add(piece, accumulator, reporter):
                    effects.drive_sync(_awaited(emitted))  # there is no event loop here
        except BaseException:
            close(iterator, context)
            raise
        close(iterator, context)
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
                piece = await next_of(iterator, context)
                if piece is END:
                    break
                for emitted in self._add(piece, accumulator, reporter):
                    await emitted
            return accumulator.response()
        except GeneratorExit:  # the event loop is closed: nothing can be awaited
            raise
        except BaseException:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await close_async(iterator, context)
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
        """What is known of a request that has no response.

        Returns:
            The text that was streamed, and the times, of which the end is now; None if it was not sent.
        """
        if self.elsewhere is not None:
            return self.elsewhere
        text = "" if self._accumulator is None else self._accumulator.text
        if self._started is None:
            return text, None
        return text, Timing(self._started, reporter.now(), self._first_chunk)

    def abandon(self) -> None:
        """Stop reading: the caller was cancelled. A stream that is read in a thread ends at its next piece."""
        self._is_abandoned = True
        close_unawaited(self._unawaited)
        if self._iterator is not None and not isinstance(self._iterator, Generator):
            close(self._iterator, copy_context())  # closing a connection ends a read that blocks


_extra_of = operator.attrgetter("extra")
_set_times: Callable[[Response, tuple[float, ...]], None] = vars(Response)["times"].__set__
_set_origin: Callable[[Response, str], None] = vars(Response)["origin"].__set__
_set_provider: Callable[[Response, str], None] = vars(Response)["provider"].__set__

CHUNKS_AT_ONCE = 32
"""The number of pieces of a stream that are read before other tasks may run."""
CLOSE_SECONDS = 5.0
"""The maximum duration of closing a stream, in seconds."""


_WHOLE = frozenset({dict, str, Response})
"""The classes of responses that are not streams."""


def _awaited(awaitable: Awaitable[None]) -> Steps[None]:
    yield Call(lambda: awaitable)
