"""What is reported of tool calls: a span and a duration for each that ran, and why the others did not."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import SpanKind

from treadle.telemetry import content, names, spans
from treadle.telemetry.report import RunReport
from treadle.types import (
    BreakerChanged,
    CallDeferred,
    CallSuppressed,
    ToolFinished,
    ToolNudged,
    ToolRetried,
    ToolStarted,
)

_FAILED_STATUSES = frozenset({"timeout", "cancelled"})
_WAITING = "waiting"
"""The status of a call that waits for a person: it is over for now, and will be made again."""


def started(report: RunReport, event: ToolStarted) -> None:
    """A tool is about to run."""
    call, description = event.call, _description(report, event.call.name)
    facts: dict[str, Any] = {
        names.OPERATION_NAME: names.EXECUTE_TOOL,
        names.TOOL_NAME: spans.clean(call.name),
        names.TOOL_CALL_ID: spans.clean(call.id),
        names.TOOL_TYPE: names.FUNCTION,
        names.ITERATION: event.iteration,
    }
    if names.AGENT_NAME in report.request:
        facts[names.AGENT_NAME] = report.request[names.AGENT_NAME]
    if description:
        facts[names.TOOL_DESCRIPTION] = description
    if report.telemetry.captures:
        facts |= content.of_call(call)
    # Names of spans are few: one that the model made up is in the attribute alone.
    name = names.EXECUTE_TOOL
    if _label(report, call.name) is not names.OTHER:
        name = f"{name} {call.name}"
    within = None if event.within is None else report.tools.get(event.within)
    report.tools[call.id] = report.open(name, SpanKind.INTERNAL, facts, event.at, within)


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
    labels = {**_labels(report, event.call.name), names.TOOL_TYPE: names.FUNCTION}
    if result.is_error:
        kind = result.status if result.status in _FAILED_STATUSES else "tool_error"
        spans.fail(tool.span, kind)
        labels[names.ERROR_TYPE] = kind
    if result.status != _WAITING:
        report.tool_calls += not tool.is_step
        report.telemetry.instruments.tool.record(event.duration, labels, tool.context)
    if report.telemetry.captures:
        tool.span.set_attributes(content.of_result(result))
    tool.span.end(spans.nanoseconds(event.at))


def suppressed(report: RunReport, event: CallSuppressed) -> None:
    """A call does not run, since it was answered before."""
    _held(report, event, names.CALL_SUPPRESSED)
    labels = {**_labels(report, event.call.name), names.REASON: event.reason.value}
    report.telemetry.instruments.suppressed.add(1, labels)


def deferred(report: RunReport, event: CallDeferred) -> None:
    """A call does not run now."""
    _held(report, event, names.CALL_DEFERRED)
    labels = {**_labels(report, event.call.name), names.REASON: event.reason.value}
    report.telemetry.instruments.deferred.add(1, labels)


def _held(report: RunReport, event: CallSuppressed | CallDeferred, name: str) -> None:
    facts = {
        names.ITERATION: event.iteration,
        names.TOOL_NAME: event.call.name,
        names.TOOL_CALL_ID: event.call.id,
        names.REASON: event.reason.value,
    }
    report.note(name, facts)


def nudged(report: RunReport, event: ToolNudged) -> None:
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
    labels = {**_labels(report, event.tool), names.BREAKER_STATE: event.after}
    report.telemetry.instruments.transitions.add(1, labels)


def _label(report: RunReport, name: str) -> str:
    """The name of a tool on a metric: one that nobody but the model knows is ``_OTHER``."""
    is_known = report.started is not None and name in report.started.available
    return name if is_known else names.OTHER


def _labels(report: RunReport, tool: str) -> dict[str, Any]:
    return {**report.labels, names.TOOL_NAME: _label(report, tool)}


def _description(report: RunReport, name: str) -> str:
    """What the tool's author says of it."""
    if not report.descriptions and report.started is not None:
        for tool in report.started.tools:
            facts = tool["function"]
            report.descriptions[facts["name"]] = spans.clean(facts.get("description") or "")
    return report.descriptions.get(name, "")
