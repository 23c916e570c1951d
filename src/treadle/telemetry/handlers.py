"""The handlers of events: they turn what happens in a run into spans and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.events import (
    BreakerChanged,
    CallDeferred,
    CallRefused,
    CallSuppressed,
    Event,
    FirstChunk,
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
from treadle.telemetry import chat_spans, content, names, tool_spans
from treadle.telemetry.run_telemetry import RunTelemetry


def handle_event(run: RunTelemetry, event: Event) -> None:
    """Handle an event of a run, or of a subagent in it."""
    while isinstance(event, SubagentEvent):
        run, event = run.subagent(event.call_id), event.event
    handler = _HANDLERS.get(event.__class__)
    if handler is not None and (run.started is not None or event.__class__ is RunStarted):
        handler(run, event)


def _run_finished(run: RunTelemetry, event: RunFinished) -> None:
    facts = {
        names.TOTAL_ITERATIONS: event.total_iterations,
        names.TOOL_CALLS_COUNT: event.tool_calls_count,
        names.STOP_REASON: event.stop_reason,
    }
    response = getattr(event.result, "response", None)
    if run.telemetry.captures and response is not None and run.agent is not None:
        run.agent.span.set_attributes(content.response_attributes(response))
    run.end(event.at, facts, is_good=event.stop_reason in _GOOD)


def _history_repaired(run: RunTelemetry, event: HistoryRepaired) -> None:
    run.add_event(names.HISTORY_REPAIRED, {names.COUNT: len(event.repairs)})


def _iteration_finished(run: RunTelemetry, event: IterationFinished) -> None:
    facts = {names.ITERATION: event.iteration, names.STAGES: " ".join(event.context.trace)}
    run.add_event(names.ITERATION_END, facts, event.at)


def _user_message_added(run: RunTelemetry, event: UserMessageAdded) -> None:
    facts = {names.ITERATION: event.iteration, names.COUNT: len(event.messages)}
    run.add_event(names.USER_MESSAGE_ADDED, facts)


def _limit_reached(run: RunTelemetry, event: LimitReached) -> None:
    facts = {names.ITERATION: event.iteration, names.STOP_REASON: event.reason.stop_reason}
    run.add_event(names.LIMIT_REACHED, facts)


_GOOD = frozenset({"answered", "output", "finished", "paused"})
_HANDLERS: Mapping[type, Callable[[RunTelemetry, Any], None]] = {
    RunStarted: RunTelemetry.start,
    RunFinished: _run_finished,
    HistoryRepaired: _history_repaired,
    IterationFinished: _iteration_finished,
    UserMessageAdded: _user_message_added,
    LimitReached: _limit_reached,
    ModelRequested: chat_spans.model_requested,
    FirstChunk: chat_spans.first_chunk,
    ModelRetried: chat_spans.model_retried,
    ModelResponded: chat_spans.model_responded,
    ModelFailed: chat_spans.model_failed,
    ToolStarted: tool_spans.tool_started,
    ToolRetried: tool_spans.tool_retried,
    ToolFinished: tool_spans.tool_finished,
    CallSuppressed: tool_spans.call_not_run,
    CallDeferred: tool_spans.call_not_run,
    CallRefused: tool_spans.call_not_run,
    RepeatWarned: tool_spans.repeat_warned,
    BreakerChanged: tool_spans.breaker_changed,
}
