"""The handlers of events: they turn what happens in a run into spans, span events and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import Span, SpanKind

from treadle.events import (
    BreakerChanged,
    CallNotRun,
    CompactionFailed,
    Event,
    HistoryCompacted,
    HistoryRepaired,
    IterationFinished,
    LimitReached,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    ModelRetried,
    RepeatWarned,
    RunFinished,
    RunStarted,
    SubagentEvent,
    ToolFinished,
    ToolRetried,
    ToolStarted,
    UserMessageAdded,
)
from treadle.messages import Response
from treadle.telemetry import content, names, spans
from treadle.telemetry.run_telemetry import RunTelemetry


def innermost(run: RunTelemetry, event: Event) -> tuple[RunTelemetry, Event]:
    """Return the run that an event belongs to, the given one or a subagent in it, and the event of that run."""
    while isinstance(event, SubagentEvent):
        run, event = run.subagent(event.call_id), event.event
    return run, event


def handle_event(run: RunTelemetry, event: Event) -> None:
    """Handle an event of a run, or of a subagent in it."""
    run, event = innermost(run, event)
    run.clock = max(run.clock, getattr(event, "at", run.clock))
    handler = _HANDLERS.get(event.__class__)
    if handler is not None and (run.started is not None or event.__class__ is RunStarted):
        handler(run, event)


# The run: a span, and an event in it for what happens outside of calls.


def _run_finished(run: RunTelemetry, event: RunFinished) -> None:
    facts = {
        names.TOTAL_ITERATIONS: event.total_iterations,
        names.TOOL_CALLS_COUNT: event.tool_calls_count,
        names.STOP_REASON: event.stop_reason,
    }
    response = getattr(event.result, "response", None)
    if run.sinks.captures and response is not None and run.agent is not None:
        run.agent.span.set_attributes(content.response_attributes(response))
    run.end(event.at, facts, is_good=event.stop_reason in _GOOD)


_GOOD = frozenset({"answered", "output", "finished", "paused"})


def _iteration_finished(run: RunTelemetry, event: IterationFinished) -> None:
    facts = {names.ITERATION: event.iteration, names.STAGES: " ".join(event.context.trace)}
    run.add_event(names.ITERATION_END, facts, event.at)


def _history_repaired(run: RunTelemetry, event: HistoryRepaired) -> None:
    run.add_event(names.HISTORY_REPAIRED, {names.COUNT: len(event.repairs)})


def _user_message_added(run: RunTelemetry, event: UserMessageAdded) -> None:
    facts = {names.ITERATION: event.iteration, names.COUNT: len(event.messages)}
    run.add_event(names.USER_MESSAGE_ADDED, facts)


def _history_compacted(run: RunTelemetry, event: HistoryCompacted) -> None:
    how = {names.IS_SUMMARIZED: event.is_summarized}
    tokens = {names.TOKENS_BEFORE: event.tokens_before, names.TOKENS_AFTER: event.tokens_after}
    run.add_event(names.HISTORY_COMPACTED, {names.ITERATION: event.iteration, **tokens, **how})
    run.sinks.instruments.add(names.COMPACTIONS, 1, {**run.labels, **how})


def _compaction_failed(run: RunTelemetry, event: CompactionFailed) -> None:
    facts = {names.ITERATION: event.iteration, names.GIVES_UP: event.gives_up}
    run.add_event(names.COMPACTION_FAILED, facts)


def _limit_reached(run: RunTelemetry, event: LimitReached) -> None:
    facts = {names.ITERATION: event.iteration, names.STOP_REASON: event.reason.stop_reason}
    run.add_event(names.LIMIT_REACHED, facts)


# Model calls: a ``chat`` span and metrics for each, which include its retries.


def _model_requested(run: RunTelemetry, event: ModelRequested) -> None:
    run.model_calls += 1
    captured: dict[str, str] = {}
    if run.sinks.captures:
        tools = () if run.started is None else run.started.tools
        captured = content.request_attributes(event.messages, event.guidance, tools)
        if run.model_calls == 1 and run.agent is not None:
            run.agent.span.set_attributes(captured)
    if run.sinks.has_chats:
        name = f"{names.CHAT} {run.request.get(names.REQUEST_MODEL, '')}".strip()
        attributes = {**run.request, names.ITERATION: event.iteration, **captured}
        labels = {names.OPERATION_NAME: names.CHAT, **run.model_labels}
        run.chat = run.open(
            name, attributes, event.at, labels, names.OPERATION_DURATION, kind=SpanKind.CLIENT
        )


def _model_retried(run: RunTelemetry, event: ModelRetried) -> None:
    facts = {names.ITERATION: event.iteration, **_retry_facts(event)}
    if event.next_model is not None:
        facts[names.NEXT_MODEL] = event.next_model
    span, meters = run.chat or run.agent, run.sinks.instruments
    if span is not None:
        spans.add_event(span.span, names.MODEL_RETRY, facts, event.at)
    error_type = meters.error_types(event.error_type)
    meters.add(names.MODEL_RETRIES, 1, {**run.model_labels, names.ERROR_TYPE: error_type})


def _model_responded(run: RunTelemetry, event: ModelResponded) -> None:
    chat, response, meters = run.chat, event.response, run.sinks.instruments
    usage, model = response.usage, {}
    if response.model is not None:
        model = {names.RESPONSE_MODEL: meters.model_names(response.model)}
    if usage is not None and usage.cost is not None and not usage.is_estimate:
        meters.add(names.USAGE_COST, usage.cost, {**run.model_labels, **model})
    around = chat or run.agent
    if around is None or not run.sinks.has_chats:  # the model's SDK is instrumented
        return
    labels = {names.OPERATION_NAME: names.CHAT, **run.model_labels, **model}
    if usage is not None and usage.is_measured:
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            of_kind = {**labels, names.TOKEN_TYPE: kind}
            meters.record(names.TOKEN_USAGE, count, of_kind, around.context)
    if chat is None:  # another process made the request
        return
    first_chunk = response.time_to_first_token
    if first_chunk is not None:
        meters.record(names.FIRST_CHUNK_DURATION, first_chunk, labels, chat.context)
    if chat.span.is_recording():
        _describe_response(run, chat.span, response)
    run.chat = None
    run.close(chat, event.at, model, event.duration)


def _describe_response(run: RunTelemetry, span: Span, response: Response) -> None:
    if response.model is not None and names.REQUEST_MODEL not in run.request:
        span.update_name(f"{names.CHAT} {spans.clean(response.model)}")
    span.set_attributes(spans.response_attributes(response))
    if run.sinks.captures:
        span.set_attributes(content.response_attributes(response))


def _model_failed(run: RunTelemetry, event: ModelFailed) -> None:
    chat, run.chat = run.chat, None
    if chat is not None:
        spans.fail(chat.span, event.error_type)
        error_type = run.sinks.instruments.error_types(event.error_type)
        run.close(chat, event.at, {names.ERROR_TYPE: error_type})


# Tool calls: an ``execute_tool`` span and a duration for each that ran, a span event for each that did not.


def _tool_started(run: RunTelemetry, event: ToolStarted) -> None:
    call, labels = event.call, run.tool_labels(event.call.name)
    attributes: dict[str, Any] = {
        names.OPERATION_NAME: names.EXECUTE_TOOL,
        names.TOOL_TYPE: names.FUNCTION,
        names.TOOL_NAME: spans.clean(call.name),
        names.TOOL_CALL_ID: spans.clean(call.id),
        names.ITERATION: event.iteration,
    }
    if names.AGENT_NAME in run.request:
        attributes[names.AGENT_NAME] = run.request[names.AGENT_NAME]
    for tool in () if run.started is None else run.started.tools:
        function = tool["function"]
        if function["name"] == call.name and function["description"]:
            attributes[names.TOOL_DESCRIPTION] = spans.clean(function["description"])
    if run.sinks.captures:
        attributes |= content.call_attributes(call)
    # Span names have few distinct values, so a name that the model made up is an attribute only.
    is_known = labels[names.TOOL_NAME] != names.OTHER
    name = f"{names.EXECUTE_TOOL} {spans.clean(call.name)}" if is_known else names.EXECUTE_TOOL
    parent = None if event.within is None else run.tools.get(event.within)
    labels[names.TOOL_TYPE] = names.FUNCTION
    run.tools[call.id] = run.open(
        name, attributes, event.at, labels, names.TOOL_DURATION, parent=parent
    )


def _tool_retried(run: RunTelemetry, event: ToolRetried) -> None:
    tool = run.tools.get(event.call.id)
    if tool is not None:
        spans.add_event(tool.span, names.TOOL_RETRY, _retry_facts(event), event.at)


def _tool_finished(run: RunTelemetry, event: ToolFinished) -> None:
    tool, result = run.tools.pop(event.call.id, None), event.result
    subagent = run.subagents.pop(event.call.id, None)
    if subagent is not None:
        subagent.abandon(event.at)  # nothing is open if it emitted its last event
    if tool is None:
        return
    if run.sinks.captures:
        tool.span.set_attributes(content.result_attributes(result))
        if event.exception is not None and tool.span.is_recording():
            facts = content.exception_attributes(event.exception)
            spans.add_event(tool.span, names.EXCEPTION, facts, event.at)
    failed: dict[str, str] = {}
    if result.is_error:
        error_type = result.status if result.status in {"timeout", "cancelled"} else "tool_error"
        failed = {names.ERROR_TYPE: error_type}
        spans.fail(tool.span, error_type)
    if result.status == "waiting":  # a call that waits for approval runs later
        tool.span.end(spans.nanoseconds(event.at))
        return
    run.tool_calls += not tool.is_step
    run.close(tool, event.at, failed, event.duration)


def _call_not_run(run: RunTelemetry, event: CallNotRun) -> None:
    reason = {names.REASON: event.reason.value}
    run.add_event(names.CALL_NOT_RUN, {**_call_facts(event), **reason})
    labels = {**run.tool_labels(event.call.name), **reason}
    run.sinks.instruments.add(names.CALLS_NOT_RUN, 1, labels)


def _repeat_warned(run: RunTelemetry, event: RepeatWarned) -> None:
    run.add_event(names.REPEAT_WARNED, {**_call_facts(event), names.COUNT: event.count})


def _breaker_changed(run: RunTelemetry, event: BreakerChanged) -> None:
    state = {names.BREAKER_STATE: event.after}
    facts = {names.ITERATION: event.iteration, names.TOOL_NAME: event.tool, **state}
    run.add_event(names.BREAKER_CHANGED, facts)
    labels = {**run.tool_labels(event.tool), **state}
    run.sinks.instruments.add(names.BREAKER_TRANSITIONS, 1, labels)


def _call_facts(event: CallNotRun | RepeatWarned) -> dict[str, Any]:
    return {
        names.ITERATION: event.iteration,
        names.TOOL_NAME: event.call.name,
        names.TOOL_CALL_ID: event.call.id,
    }


def _retry_facts(event: ModelRetried | ToolRetried) -> dict[str, Any]:
    return {
        names.ERROR_TYPE: event.error_type,
        names.ATTEMPT: event.attempt,
        names.DELAY: event.delay,
    }


_HANDLERS: Mapping[type, Callable[[RunTelemetry, Any], None]] = {
    RunStarted: RunTelemetry.start,
    RunFinished: _run_finished,
    HistoryRepaired: _history_repaired,
    IterationFinished: _iteration_finished,
    UserMessageAdded: _user_message_added,
    HistoryCompacted: _history_compacted,
    CompactionFailed: _compaction_failed,
    LimitReached: _limit_reached,
    ModelRequested: _model_requested,
    ModelRetried: _model_retried,
    ModelResponded: _model_responded,
    ModelFailed: _model_failed,
    ToolStarted: _tool_started,
    ToolRetried: _tool_retried,
    ToolFinished: _tool_finished,
    CallNotRun: _call_not_run,
    RepeatWarned: _repeat_warned,
    BreakerChanged: _breaker_changed,
}
