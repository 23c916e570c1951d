"""What a run reports of each of its events."""

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
    IterationStarted,
    LimitReached,
    ModelFailed,
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
from treadle.telemetry import content, names, of_model, of_tools
from treadle.telemetry.report import RunReport


def tell(report: RunReport, event: Event) -> None:
    """Take an event of a run into its report.

    Args:
        report: of the run.
        event: what happened, in the run or in one within it.
    """
    while isinstance(event, SubagentEvent):
        report, event = report.child_of(event.call_id), event.event
    teller = _TELLERS.get(event.__class__)
    if teller is not None and (report.started is not None or event.__class__ is RunStarted):
        teller(report, event)


def _run_finished(report: RunReport, event: RunFinished) -> None:
    facts = {
        names.TOTAL_ITERATIONS: event.total_iterations,
        names.TOOL_CALLS_COUNT: event.tool_calls_count,
        names.STOP_REASON: event.stop_reason,
    }
    response = getattr(event.result, "response", None)
    if report.telemetry.captures and response is not None and report.agent is not None:
        report.agent.span.set_attributes(content.of_response(response))
    report.end(event.at, facts, is_good=event.stop_reason in _GOOD)


def _history_repaired(report: RunReport, event: HistoryRepaired) -> None:
    report.note(names.HISTORY_REPAIRED, {names.COUNT: len(event.repairs)})


def _iteration_finished(report: RunReport, event: IterationFinished) -> None:
    facts = {names.ITERATION: event.iteration, names.STAGES: " ".join(event.context.trace)}
    report.note(names.ITERATION_END, facts, event.at)


def _user_message_added(report: RunReport, event: UserMessageAdded) -> None:
    facts = {names.ITERATION: event.iteration, names.COUNT: len(event.messages)}
    report.note(names.STEERED, facts)


def _limit_reached(report: RunReport, event: LimitReached) -> None:
    facts = {names.ITERATION: event.iteration, names.STOP_REASON: event.reason.stop_reason}
    report.note(names.LIMIT_REACHED, facts)


_GOOD = frozenset({"answered", "output", "finished", "paused"})
_TELLERS: Mapping[type, Callable[[RunReport, Any], None]] = {
    RunStarted: RunReport.start,
    RunFinished: _run_finished,
    HistoryRepaired: _history_repaired,
    IterationFinished: _iteration_finished,
    UserMessageAdded: _user_message_added,
    LimitReached: _limit_reached,
    IterationStarted: of_model.asked,
    FirstChunk: of_model.first_chunk,
    ModelRetried: of_model.retried,
    ModelResponded: of_model.responded,
    ModelFailed: of_model.failed,
    ToolStarted: of_tools.started,
    ToolRetried: of_tools.retried,
    ToolFinished: of_tools.finished,
    RepeatWarned: of_tools.nudged,
    CallSuppressed: of_tools.suppressed,
    CallDeferred: of_tools.deferred,
    CallRefused: of_tools.refused,
    BreakerChanged: of_tools.breaker_changed,
}
