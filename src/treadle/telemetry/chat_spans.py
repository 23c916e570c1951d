"""Model calls: a ``chat`` span and metrics for each, which include its retries."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import SpanKind

from treadle.events import (
    FirstChunk,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    ModelRetried,
)
from treadle.messages import Response
from treadle.telemetry import content, names, spans
from treadle.telemetry.run_telemetry import OpenSpan, RunTelemetry


def model_requested(run: RunTelemetry, event: ModelRequested) -> None:
    """Start the span of a model call."""
    run.attempt_started = event.at
    run.first_chunk = None
    run.model_calls += 1
    captured: dict[str, str] = {}
    if run.telemetry.captures:
        tools = () if run.started is None else run.started.tools
        captured = content.request_attributes(event.messages, event.guidance, tools)
        if run.model_calls == 1 and run.agent is not None:
            run.agent.span.set_attributes(captured)
    if run.telemetry.has_chats:
        name = f"{names.CHAT} {run.request.get(names.REQUEST_MODEL, '')}".strip()
        attributes = {**run.request, names.ITERATION: event.iteration, **captured}
        labels = {names.OPERATION_NAME: names.CHAT, **run.model_labels}
        run.chat = run.open(name, SpanKind.CLIENT, attributes, event.at, labels)


def first_chunk(run: RunTelemetry, event: FirstChunk) -> None:
    """Note the time to the first chunk of a streamed response."""
    run.first_chunk = max(0.0, event.at - run.attempt_started)


def model_retried(run: RunTelemetry, event: ModelRetried) -> None:
    """Add an event for a failed attempt that is followed by another."""
    run.attempt_started, run.first_chunk = event.at + event.delay, None
    facts: dict[str, Any] = {
        names.ITERATION: event.iteration,
        names.ERROR_TYPE: event.error_type,
        names.ATTEMPT: event.attempt,
        names.DELAY: event.delay,
    }
    span, meters = run.chat or run.agent, run.telemetry.instruments
    if span is not None:
        spans.add_event(span.span, names.MODEL_RETRY, facts, event.at)
    if meters is not None:
        error_type = meters.error_types(event.error_type)
        meters.retries.add(1, {**run.model_labels, names.ERROR_TYPE: error_type})


def model_responded(run: RunTelemetry, event: ModelResponded) -> None:
    """Record a response, and end the span of its call."""
    _measure(run, event)
    chat = run.chat
    if chat is not None:
        if chat.span.is_recording():
            _describe(run, chat, event.response)
        _end(run, chat, event.at)


def _measure(run: RunTelemetry, event: ModelResponded) -> None:
    response, chat, meters = event.response, run.chat, run.telemetry.instruments
    if meters is None:
        return
    usage, model = response.usage, {}
    if response.model is not None:
        model = {names.RESPONSE_MODEL: meters.model_names(response.model)}
    if usage is not None and usage.cost is not None:
        meters.cost.add(usage.cost, {**run.model_labels, **model})
    if chat is None:  # the instrumentation of the model's SDK records the other metrics
        return
    labels = {**chat.labels, **model}
    meters.operation.record(event.duration, labels, chat.context)
    if run.first_chunk is not None:
        meters.first_chunk.record(run.first_chunk, labels, chat.context)
    if usage is not None:
        meters.record_tokens(usage, labels, chat.context)


def _describe(run: RunTelemetry, chat: OpenSpan, response: Response) -> None:
    if response.model is not None and names.REQUEST_MODEL not in run.request:
        chat.span.update_name(f"{names.CHAT} {spans.clean(response.model)}")
    chat.span.set_attributes(spans.response_attributes(response, run.first_chunk))
    if run.telemetry.captures:
        chat.span.set_attributes(content.response_attributes(response))


def model_failed(run: RunTelemetry, event: ModelFailed) -> None:
    """Mark a model call as failed, and end its span."""
    chat, meters = run.chat, run.telemetry.instruments
    if chat is None:
        return
    if meters is not None:
        labels = {**chat.labels, names.ERROR_TYPE: meters.error_types(event.error_type)}
        meters.operation.record(max(0.0, event.at - chat.at), labels, chat.context)
    spans.fail(chat.span, event.error_type)
    _end(run, chat, event.at)


def _end(run: RunTelemetry, chat: OpenSpan, at: float) -> None:
    run.chat = None
    chat.span.end(spans.nanoseconds(at))
