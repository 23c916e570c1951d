"""Tool calls: an ``execute_tool`` span and a duration for each that ran, a span event for each that did not."""

from __future__ import annotations

from typing import Any

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
from treadle.telemetry.run_telemetry import RunTelemetry, ToolInfo


def tool_started(run: RunTelemetry, event: ToolStarted) -> None:
    """Start the span of a tool call."""
    call, info = event.call, _tool_info(run, event.call.name)
    attributes: dict[str, Any] = {
        **info.attributes,
        names.TOOL_NAME: spans.clean(call.name),
        names.TOOL_CALL_ID: spans.clean(call.id),
        names.ITERATION: event.iteration,
    }
    if run.telemetry.captures:
        attributes |= content.call_attributes(call)
    parent = None if event.within is None else run.tools.get(event.within)
    labels = {**info.labels, names.TOOL_TYPE: names.FUNCTION}
    run.tools[call.id] = run.open(
        info.span_name, SpanKind.INTERNAL, attributes, event.at, labels, parent=parent
    )


def tool_retried(run: RunTelemetry, event: ToolRetried) -> None:
    """Add an event for a failed attempt that is followed by another."""
    tool = run.tools.get(event.call.id)
    if tool is not None:
        facts = {
            names.ERROR_TYPE: event.error_type,
            names.ATTEMPT: event.attempt,
            names.DELAY: event.delay,
        }
        spans.add_event(tool.span, names.TOOL_RETRY, facts, event.at)


def tool_finished(run: RunTelemetry, event: ToolFinished) -> None:
    """End the span of a call that has a result or waits for approval."""
    tool, result = run.tools.pop(event.call.id, None), event.result
    subagent = run.subagents.pop(event.call.id, None)
    if subagent is not None:
        subagent.abandon()  # nothing is open if it emitted its last event
    if tool is None:
        return
    failed: dict[str, str] = {}
    if result.is_error:
        error_type = result.status if result.status in {"timeout", "cancelled"} else "tool_error"
        failed = {names.ERROR_TYPE: error_type}
        spans.fail(tool.span, error_type)
    if result.status != "waiting":  # a call that waits for approval runs later
        run.tool_calls += not tool.is_step
        meters = run.telemetry.instruments
        if meters is not None:
            meters.tool.record(event.duration, {**tool.labels, **failed}, tool.context)
    if run.telemetry.captures:
        tool.span.set_attributes(content.result_attributes(result))
    tool.span.end(spans.nanoseconds(event.at))


def call_not_run(run: RunTelemetry, event: CallSuppressed | CallDeferred | CallRefused) -> None:
    """Add an event for a call that does not run, and count it by its reason."""
    name, counter = _NOT_RUN[event.__class__]
    reason = event.reason.value
    run.add_event(name, {**_call_facts(event), names.REASON: reason})
    meters = run.telemetry.instruments
    if meters is not None:
        labels = {**_tool_info(run, event.call.name).labels, names.REASON: reason}
        getattr(meters, counter).add(1, labels)


_NOT_RUN: dict[type, tuple[str, str]] = {
    CallSuppressed: (names.CALL_SUPPRESSED, "suppressed"),
    CallDeferred: (names.CALL_DEFERRED, "deferred"),
    CallRefused: (names.CALL_REFUSED, "refused"),
}
"""The span event, and the attribute of `Instruments` that counts it."""


def repeat_warned(run: RunTelemetry, event: RepeatWarned) -> None:
    """Add an event for a result with a note that the call was repeated."""
    run.add_event(names.REPEAT_WARNED, {**_call_facts(event), names.COUNT: event.count})


def breaker_changed(run: RunTelemetry, event: BreakerChanged) -> None:
    """Add an event for a state change of a shared circuit breaker, and count it."""
    state = {names.BREAKER_STATE: event.after}
    facts = {names.ITERATION: event.iteration, names.TOOL_NAME: event.tool, **state}
    run.add_event(names.BREAKER_CHANGED, facts)
    meters = run.telemetry.instruments
    if meters is not None:
        meters.transitions.add(1, {**_tool_info(run, event.tool).labels, **state})


def _call_facts(
    event: CallSuppressed | CallDeferred | CallRefused | RepeatWarned,
) -> dict[str, Any]:
    return {
        names.ITERATION: event.iteration,
        names.TOOL_NAME: event.call.name,
        names.TOOL_CALL_ID: event.call.id,
    }


def _tool_info(run: RunTelemetry, name: str) -> ToolInfo:
    """What all calls of a tool share. A tool that only the model named is ``_OTHER``."""
    info = run.tool_info.get(name)
    if info is None:
        is_known = run.started is not None and name in run.started.available
        key = name if is_known else None
        info = run.tool_info.get(key) or _new_tool_info(run, key)
        run.tool_info[key] = info
    return info


def _new_tool_info(run: RunTelemetry, name: str | None) -> ToolInfo:
    attributes: dict[str, Any] = {
        names.OPERATION_NAME: names.EXECUTE_TOOL,
        names.TOOL_TYPE: names.FUNCTION,
    }
    if names.AGENT_NAME in run.request:
        attributes[names.AGENT_NAME] = run.request[names.AGENT_NAME]
    if name is None:
        # Span names have few distinct values, so a name that the model made up is an attribute only.
        labels = {**run.labels, names.TOOL_NAME: names.OTHER}
        return ToolInfo(names.EXECUTE_TOOL, attributes, labels)
    for tool in () if run.started is None else run.started.tools:
        function = tool["function"]
        if function["name"] == name and function["description"]:
            attributes[names.TOOL_DESCRIPTION] = spans.clean(function["description"])
    labels = {**run.labels, names.TOOL_NAME: spans.clean(name)}
    return ToolInfo(f"{names.EXECUTE_TOOL} {spans.clean(name)}", attributes, labels)
