"""What is reported of tool calls: a span and a duration for each that ran, and why the others did not."""

from __future__ import annotations

from typing import Any

from opentelemetry.metrics import Counter
from opentelemetry.trace import SpanKind

from treadle.events import (
    BreakerChanged,
    CallDeferred,
    CallRefused,
    CallSuppressed,
    RepeatWarned,
    ToolFinished,
    ToolRetried,
    ToolStarted,
)
from treadle.telemetry import content, names, spans
from treadle.telemetry.instruments import Labels
from treadle.telemetry.report import Open, RunReport, ToolFacts

_FAILED_STATUSES = frozenset({"timeout", "cancelled"})
_WAITING = "waiting"
"""The status of a call that waits for a person: it is over for now, and will be made again."""


def started(report: RunReport, event: ToolStarted) -> None:
    """A tool is about to run."""
    call, known = event.call, _facts(report, event.call.name)
    facts: dict[str, Any] = {
        **known.attributes,
        names.TOOL_CALL_ID: spans.clean(call.id),
        names.ITERATION: event.iteration,
    }
    if known.labels[names.TOOL_NAME] is names.OTHER:
        facts[names.TOOL_NAME] = spans.clean(call.name)
    if report.telemetry.captures:
        facts |= content.of_call(call)
    around = None if event.within is None else report.tools.get(event.within)
    labels = {**known.labels, names.TOOL_TYPE: names.FUNCTION}
    report.tools[call.id] = report.open(
        known.span_name, SpanKind.INTERNAL, facts, event.at, labels, within=around
    )


def retried(report: RunReport, event: ToolRetried) -> None:
    """A try of a tool failed, and another follows."""
    tool = report.tools.get(event.call.id)
    if tool is not None:
        facts = {
            names.ERROR_TYPE: event.error_type,
            names.ATTEMPT: event.attempt,
            names.DELAY: event.delay,
        }
        spans.add_event(tool.span, names.TOOL_RETRY, facts, event.at)


def finished(report: RunReport, event: ToolFinished) -> None:
    """A call has its result, or waits for a person."""
    tool, result = report.tools.pop(event.call.id, None), event.result
    child = report.children.pop(event.call.id, None)
    if child is not None:
        child.abandon()  # where it ended as it should, there is nothing left to end
    if tool is None:
        return
    kind: str | None = None
    if result.is_error:
        kind = result.status if result.status in _FAILED_STATUSES else "tool_error"
        spans.fail(tool.span, kind)
    if result.status != _WAITING:
        report.tool_calls += not tool.is_step
        _measure(report, event, tool, kind)
    if report.telemetry.captures:
        tool.span.set_attributes(content.of_result(result))
    tool.span.end(spans.nanoseconds(event.at))


def _measure(report: RunReport, event: ToolFinished, tool: Open, error_type: str | None) -> None:
    meters = report.telemetry.instruments
    if meters is not None:
        failed = {} if error_type is None else {names.ERROR_TYPE: error_type}
        meters.tool.record(event.duration, {**tool.labels, **failed}, tool.context)


def suppressed(report: RunReport, event: CallSuppressed) -> None:
    """A call does not run, since it was answered before."""
    meters = report.telemetry.instruments
    _held(report, event, names.CALL_SUPPRESSED, None if meters is None else meters.suppressed)


def deferred(report: RunReport, event: CallDeferred) -> None:
    """A call does not run now."""
    meters = report.telemetry.instruments
    _held(report, event, names.CALL_DEFERRED, None if meters is None else meters.deferred)


def refused(report: RunReport, event: CallRefused) -> None:
    """A call does not run: a budget is spent, or its tool is out of order."""
    meters = report.telemetry.instruments
    _held(report, event, names.CALL_REFUSED, None if meters is None else meters.refused)


def _held(
    report: RunReport,
    event: CallSuppressed | CallDeferred | CallRefused,
    name: str,
    counter: Counter | None,
) -> None:
    facts = {
        names.ITERATION: event.iteration,
        names.TOOL_NAME: event.call.name,
        names.TOOL_CALL_ID: event.call.id,
        names.REASON: event.reason.value,
    }
    report.note(name, facts)
    if counter is not None:
        counter.add(1, {**_labels(report, event.call.name), names.REASON: event.reason.value})


def nudged(report: RunReport, event: RepeatWarned) -> None:
    """A result carries a note, since the same call was made often."""
    facts = {
        names.ITERATION: event.iteration,
        names.TOOL_NAME: event.call.name,
        names.TOOL_CALL_ID: event.call.id,
        names.COUNT: event.count,
    }
    report.note(names.CALL_NUDGED, facts)


def breaker_changed(report: RunReport, event: BreakerChanged) -> None:
    """A circuit breaker that runs share stands elsewhere for a tool."""
    facts = {
        names.ITERATION: event.iteration,
        names.TOOL_NAME: event.tool,
        names.BREAKER_STATE: event.after,
    }
    report.note(names.BREAKER_CHANGED, facts)
    meters = report.telemetry.instruments
    if meters is not None:
        labels = {**_labels(report, event.tool), names.BREAKER_STATE: event.after}
        meters.transitions.add(1, labels)


def _labels(report: RunReport, tool: str) -> Labels:
    return _facts(report, tool).labels


def _facts(report: RunReport, name: str) -> ToolFacts:
    """What is the same for all calls of a tool. One that nobody but the model knows is ``_OTHER``."""
    known = report.tool_facts.get(name)
    if known is None:
        started = report.started
        told = name if started is not None and name in started.available else None
        known = report.tool_facts.get(told) or _made(report, told)
        report.tool_facts[told] = known
    return known


def _made(report: RunReport, name: str | None) -> ToolFacts:
    attributes: dict[str, Any] = {
        names.OPERATION_NAME: names.EXECUTE_TOOL,
        names.TOOL_TYPE: names.FUNCTION,
    }
    if names.AGENT_NAME in report.request:
        attributes[names.AGENT_NAME] = report.request[names.AGENT_NAME]
    if name is None:
        # Names of spans are few: what the model made up is in the attribute alone.
        labels = {**report.labels, names.TOOL_NAME: names.OTHER}
        return ToolFacts(names.EXECUTE_TOOL, attributes, labels)
    attributes[names.TOOL_NAME] = spans.clean(name)
    for tool in () if report.started is None else report.started.tools:
        facts = tool["function"]
        if facts["name"] == name and facts["description"]:
            attributes[names.TOOL_DESCRIPTION] = spans.clean(facts["description"])
    labels = {**report.labels, names.TOOL_NAME: attributes[names.TOOL_NAME]}
    return ToolFacts(f"{names.EXECUTE_TOOL} {attributes[names.TOOL_NAME]}", attributes, labels)
