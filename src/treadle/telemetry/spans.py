"""The content of spans: attributes, span events, links, and the mark of a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode, TraceFlags

from treadle.events import RunStarted
from treadle.messages import Response
from treadle.messages.sanitizing import sendable
from treadle.telemetry import names


def nanoseconds(seconds: float) -> int:
    """Convert seconds since the epoch to OpenTelemetry's unit."""
    return int(seconds * 1_000_000_000)


def clean(text: str) -> str:
    """Replace lone surrogates, which models may write and UTF-8 cannot encode."""
    return text if text.isascii() else sendable(text)


def fail(span: Span, error_type: str) -> None:
    """Mark a span as failed, without the text of the error: it may contain what a user wrote."""
    error_type = clean(error_type)
    span.set_attribute(names.ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR, error_type))


def add_event(span: Span, name: str, facts: Mapping[str, Any], at: float | None = None) -> None:
    """Add an event to a span, if it is recorded; ``at`` is in seconds since the epoch, None is now."""
    if span.is_recording():
        attributes = {
            key: clean(value) if isinstance(value, str) else value for key, value in facts.items()
        }
        span.add_event(name, attributes, None if at is None else nanoseconds(at))


def run_attributes(event: RunStarted) -> dict[str, Any]:
    """Return the attributes with which the span of a run starts."""
    attributes: dict[str, Any] = {
        names.OPERATION_NAME: names.INVOKE_AGENT,
        names.RUN_ID: clean(event.run_id),
        **_common_attributes(event),
    }
    if event.resumed:
        attributes[names.RESUMED] = True
    return attributes


def request_attributes(event: RunStarted) -> dict[str, Any]:
    """Return the attributes with which the span of each request of a run starts."""
    options = {
        names.REQUEST_OPTIONS[option]: _option_value(value)
        for option, value in event.request.items()
        if _option_value(value) is not None
    }
    return {names.OPERATION_NAME: names.CHAT, **_common_attributes(event), **options}


def _common_attributes(event: RunStarted) -> dict[str, str]:
    return _cleaned(
        {
            names.AGENT_NAME: event.agent_name or None,
            names.PROVIDER_NAME: event.provider,
            names.REQUEST_MODEL: event.model,
        }
    )


def _cleaned(texts: Mapping[str, str | None]) -> dict[str, str]:
    """Valid attributes, without those that are None."""
    return {name: clean(text) for name, text in texts.items() if text is not None}


def _option_value(value: Any) -> Any:
    """Convert the value of an option; None if it is not a valid attribute."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, (list, tuple)):
        return [clean(part) for part in value if isinstance(part, str)]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None  # OTLP has 64 bits: an exporter would fail and lose the whole batch
    return value if isinstance(value, (bool, int, float)) else None


def response_attributes(response: Response) -> dict[str, Any]:
    """Return the attributes of a response."""
    attributes: dict[str, Any] = {
        **_cleaned({names.RESPONSE_MODEL: response.model, names.RESPONSE_ID: response.id})
    }
    if response.finish_reason is not None:
        attributes[names.FINISH_REASONS] = [clean(response.finish_reason)]
    first_chunk = response.time_to_first_token
    if first_chunk is not None:
        attributes[names.TIME_TO_FIRST_CHUNK] = first_chunk
        attributes[names.REQUEST_OPTIONS["stream"]] = True
    usage = response.usage
    if usage is not None and usage.is_measured:  # an estimate is no count
        attributes[names.INPUT_TOKENS] = usage.input_tokens
        attributes[names.OUTPUT_TOKENS] = usage.output_tokens
        if usage.cached_tokens:
            attributes[names.CACHED_TOKENS] = usage.cached_tokens
        if usage.cache_write_tokens:
            attributes[names.CACHE_WRITE_TOKENS] = usage.cache_write_tokens
        if usage.reasoning_tokens:
            attributes[names.REASONING_TOKENS] = usage.reasoning_tokens
    return attributes


def traceparent_of(span: Span) -> str | None:
    """Format the context of a span as W3C Trace Context; None if it has no valid ids."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def links_to(traceparent: str | None) -> list[Link]:
    """Return a link to the span of the run that is resumed; an empty list if it is not known."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    if match is None:
        return []
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return [Link(context, {names.LINK: "continues"})] if context.is_valid else []


_TRACEPARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""Source: https://www.w3.org/TR/trace-context/#traceparent-header"""
