"""What is reported of the requests to the model: a span and metrics for each, its retries in it."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import SpanKind

from treadle.events import (
    FirstChunk,
    IterationStarted,
    ModelFailed,
    ModelResponded,
    ModelRetried,
)
from treadle.messages import Response
from treadle.telemetry import content, names, spans
from treadle.telemetry.report import Open, RunReport


def asked(report: RunReport, event: IterationStarted) -> None:
    """A request begins."""
    report.tried_at = event.at
    report.first_chunk = None
    report.model_calls += 1
    told: dict[str, str] = {}
    if report.telemetry.captures:
        tools = () if report.started is None else report.started.tools
        told = content.of_request(event.messages, event.guidance, tools)
        if report.model_calls == 1 and report.agent is not None:
            report.agent.span.set_attributes(told)
    if report.telemetry.has_chats:
        name = f"{names.CHAT} {report.request.get(names.REQUEST_MODEL, '')}".strip()
        facts = {**report.request, names.ITERATION: event.iteration, **told}
        labels = {names.OPERATION_NAME: names.CHAT, **report.model_labels}
        report.chat = report.open(name, SpanKind.CLIENT, facts, event.at, labels)


def retried(report: RunReport, event: ModelRetried) -> None:
    """A try failed, and another follows."""
    report.tried_at, report.first_chunk = event.at + event.delay, None
    facts: dict[str, Any] = {
        names.ITERATION: event.iteration,
        names.ERROR_TYPE: event.error_type,
        names.ATTEMPT: event.attempt,
        names.DELAY: event.delay,
    }
    place, meters = report.chat or report.agent, report.telemetry.instruments
    if place is not None:
        spans.add_event(place.span, names.MODEL_RETRY, facts, event.at)
    if meters is not None:
        kind = meters.error_types(event.error_type)
        meters.retries.add(1, {**report.model_labels, names.ERROR_TYPE: kind})


def first_chunk(report: RunReport, event: FirstChunk) -> None:
    """The first piece of an answer is there."""
    report.first_chunk = max(0.0, event.at - report.tried_at)


def responded(report: RunReport, event: ModelResponded) -> None:
    """The model answered."""
    chat = report.chat
    _measure(report, event)
    if chat is not None:
        if chat.span.is_recording():
            _describe(report, chat, event.response)
        _end(report, chat, event.at)


def _measure(report: RunReport, event: ModelResponded) -> None:
    response, chat, meters = event.response, report.chat, report.telemetry.instruments
    if meters is None:
        return
    usage, answered_by = response.usage, {}
    if response.model is not None:
        answered_by = {names.RESPONSE_MODEL: meters.model_names(response.model)}
    if usage is not None and usage.cost is not None:
        meters.cost.add(usage.cost, {**report.model_labels, **answered_by})
    if chat is None:  # who instruments the SDK measures there
        return
    labels = {**chat.labels, **answered_by}
    meters.operation.record(event.duration, labels, chat.context)
    if report.first_chunk is not None:
        meters.first_chunk.record(report.first_chunk, labels, chat.context)
    if usage is not None:
        meters.record_tokens(usage, labels, chat.context)


def _describe(report: RunReport, chat: Open, response: Response) -> None:
    if response.model is not None and names.REQUEST_MODEL not in report.request:
        chat.span.update_name(f"{names.CHAT} {spans.clean(response.model)}")
    chat.span.set_attributes(spans.attributes_of_response(response, report.first_chunk))
    if report.telemetry.captures:
        chat.span.set_attributes(content.of_response(response))


def failed(report: RunReport, event: ModelFailed) -> None:
    """The model could not be asked."""
    chat, meters = report.chat, report.telemetry.instruments
    if chat is None:
        return
    if meters is not None:
        labels = {**chat.labels, names.ERROR_TYPE: meters.error_types(event.error_type)}
        meters.operation.record(max(0.0, event.at - chat.at), labels, chat.context)
    spans.fail(chat.span, event.error_type)
    _end(report, chat, event.at)


def _end(report: RunReport, chat: Open, at: float) -> None:
    report.chat = None
    chat.span.end(spans.nanoseconds(at))
