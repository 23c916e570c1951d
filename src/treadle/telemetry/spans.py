"""What is on spans: attributes, links, failures, and how a function is run within one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
)

from treadle.effects import is_awaitable
from treadle.events import RunStarted
from treadle.messages import Response, sendable
from treadle.telemetry import names

_NANOSECONDS = 1_000_000_000


def nanoseconds(seconds: float) -> int:
    """A time as OpenTelemetry takes it."""
    return int(seconds * _NANOSECONDS)


def clean(text: str) -> str:
    """Text that every exporter takes: lone surrogates, which models write, are none that UTF-8 has."""
    return text if text.isascii() else sendable(text)


def fail(span: Span, error_type: str) -> None:
    """Mark a span as failed; by the kind of failure alone, since its text may hold what a user said."""
    error_type = clean(error_type)
    span.set_attribute(names.ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR, error_type))


def add_event(span: Span, name: str, facts: Mapping[str, Any], at: float | None = None) -> None:
    """Add an event to a span that somebody records, at some time in seconds since the epoch; None is now."""
    if span.is_recording():
        told = {
            key: clean(value) if isinstance(value, str) else value for key, value in facts.items()
        }
        span.add_event(name, told, None if at is None else nanoseconds(at))


def attributes_of_run(event: RunStarted) -> dict[str, Any]:
    """The attributes that the span of a run starts with."""
    attributes: dict[str, Any] = {
        names.OPERATION_NAME: names.INVOKE_AGENT,
        names.RUN_ID: clean(event.run_id),
    }
    if event.resumed:
        attributes[names.RESUMED] = True
    if event.agent_name:
        attributes[names.AGENT_NAME] = clean(event.agent_name)
    return attributes | _attributes_of_backend(event)


def attributes_of_requests(event: RunStarted) -> dict[str, Any]:
    """The attributes that the span of each request of a run starts with."""
    attributes: dict[str, Any] = {names.OPERATION_NAME: names.CHAT}
    if event.agent_name:
        attributes[names.AGENT_NAME] = clean(event.agent_name)
    for option, value in event.request.items():
        told = _attribute(value)
        if told is not None:
            attributes[names.REQUEST_OPTIONS[option]] = told
    return attributes | _attributes_of_backend(event)


def _attributes_of_backend(event: RunStarted) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if event.provider is not None:
        attributes[names.PROVIDER_NAME] = clean(event.provider)
    if event.model is not None:
        attributes[names.REQUEST_MODEL] = clean(event.model)
    return attributes


def _attribute(value: Any) -> Any:
    """An option as an attribute; None where it can be none."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, (list, tuple)):
        return [clean(part) for part in value if isinstance(part, str)]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, int) and not -_MOST <= value < _MOST:
        return None
    return value if isinstance(value, (bool, int, float)) else None


_MOST = 2**63
"""What is beyond it has no place in what is sent: an exporter would fail at it, and at all that goes with it."""


def attributes_of_response(response: Response, first_chunk: float | None) -> dict[str, Any]:
    """The attributes of an answer.

    Args:
        response: the answer.
        first_chunk: seconds to its first piece; None where it came at once.
    """
    attributes: dict[str, Any] = {}
    if response.model is not None:
        attributes[names.RESPONSE_MODEL] = clean(response.model)
    if response.id is not None:
        attributes[names.RESPONSE_ID] = clean(response.id)
    if response.finish_reason is not None:
        attributes[names.FINISH_REASONS] = [clean(response.finish_reason)]
    if first_chunk is not None:
        attributes[names.TIME_TO_FIRST_CHUNK] = first_chunk
        attributes[names.REQUEST_OPTIONS["stream"]] = True
    usage = response.usage
    if usage is not None:
        attributes[names.INPUT_TOKENS] = usage.input_tokens
        attributes[names.OUTPUT_TOKENS] = usage.output_tokens
        if usage.cached_tokens:
            attributes[names.CACHED_TOKENS] = usage.cached_tokens
        if usage.reasoning_tokens:
            attributes[names.REASONING_TOKENS] = usage.reasoning_tokens
    return attributes


def traceparent_of(span: Span) -> str | None:
    """Where a span is, as W3C's Progress Context writes it; None of one that is nowhere."""
    where = span.get_span_context()
    if not where.is_valid:
        return None
    return f"00-{where.trace_id:032x}-{where.span_id:016x}-{where.trace_flags:02x}"


def link_to(traceparent: str | None) -> list[Link]:
    """A link to the span that a run goes on from; none where that is not known."""
    told = _TRACEPARENT.fullmatch(traceparent or "")
    if told is None:
        return []
    trace_id, span_id, flags = (int(part, 16) for part in told.groups())
    where = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return [Link(where, {names.LINK: "continues"})] if where.is_valid else []


_TRACEPARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""Source: https://www.w3.org/TR/trace-context/#traceparent-header"""


def within(context: Context, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run in a context, in whatever thread or task it is called.

    Args:
        context: has the span that is to be the current one.
        fn: may return an awaitable, which is awaited in that context, too.
    """

    def run(*args: Any) -> Any:
        token = otel_context.attach(context)
        try:
            value = fn(*args)
        finally:
            otel_context.detach(token)
        return Attached(value, context) if is_awaitable(value) else value

    return run


class Attached(Coroutine[Any, Any, Any]):
    """An awaitable, within a context from its first step to its last.

    It has no frame of its own, so that one which is given up before it began reaches the awaitable itself:
    wrapped in an ``async def`` that would be left over, and Python would warn of it.

    Args:
        awaitable: a coroutine, or anything else that can be awaited.
        context: has the span that is to be the current one.
    """

    __slots__ = ("_context", "_inner", "_token")

    def __init__(self, awaitable: Awaitable[Any], context: Context) -> None:
        self._inner: Coroutine[Any, Any, Any] = (
            awaitable if isinstance(awaitable, Coroutine) else _awaited(awaitable)
        )
        self._context = context
        self._token: Any = None

    def send(self, value: Any) -> Any:
        """Go on; see `collections.abc.Coroutine`."""
        self._begin()
        try:
            return self._inner.send(value)
        except BaseException:
            self._end()
            raise

    def throw(self, *error: Any) -> Any:
        """Raise an exception where it waits; see `collections.abc.Coroutine`."""
        try:
            return self._inner.throw(*error)
        except GeneratorExit:
            # Somebody lets go of it, and where that is, this context is not the current one.
            raise
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """End it; see `collections.abc.Coroutine`."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        self._begin()
        try:
            value = yield from self._inner.__await__()
        except GeneratorExit:  # as above
            raise
        except BaseException:
            self._end()
            raise
        self._end()
        return value

    def _begin(self) -> None:
        if self._token is None:
            self._token = otel_context.attach(self._context)

    def _end(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            otel_context.detach(token)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
