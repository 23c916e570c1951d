"""What a run logs to ``treadle.loop``; no handler is installed.

Levels: INFO for the start and the end of a run, DEBUG for details, WARNING for what needs attention: a run
failed or a guard ended it, a model call is retried, a breaker opened. Warnings are always logged; other events
are made only if there is a listener.

Each log record has the attributes ``run_id`` and ``agent_name``, and ``iteration`` and ``call_id`` if they
apply. Neither these attributes nor the messages contain texts of models, tools or users. A record about an
exception of user-supplied code has its traceback (``exc_info``), which may contain such texts;
docs/guide-telemetry.md lists the loggers of these records, their levels, and whose exceptions they log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from treadle.events import (
    BreakerChanged,
    CallNotRun,
    CompactionFailed,
    Event,
    HistoryCompacted,
    HistoryRepaired,
    LimitReached,
    ModelRequested,
    ModelResponded,
    ModelRetried,
    RunFinished,
    RunStarted,
    SubagentEvent,
    ToolFinished,
    ToolRetried,
    ToolStarted,
)
from treadle.results import RunCancelled

log = logging.getLogger("treadle.loop")

Line: TypeAlias = tuple[int, str, tuple[Any, ...]]
"""A level, a format string, and its values."""
Lines: TypeAlias = Mapping[type, Callable[[Any], Line]]
"""The log lines of events, by their classes."""


def is_logged(level: int) -> bool:
    """Whether records of a level are logged, and a handler is configured.

    Without a handler, Python would write warnings to stderr, next to the result that reports them anyway.
    """
    return log.isEnabledFor(level) and log.hasHandlers()


class RunLog:
    """An observer that writes the events of one run to the log.

    Args:
        run_id: the id of the run.
        agent_name: the name of the agent.
    """

    __slots__ = ("_children", "_ids", "_lines")

    def __init__(self, run_id: str, agent_name: str = "") -> None:
        self._ids = {"run_id": run_id, "agent_name": agent_name}
        self._children: dict[str, RunLog] = {}
        self._lines = _LINES if log.isEnabledFor(logging.INFO) else _WARNINGS

    def __call__(self, event: Event) -> None:
        """Write one event, if its level is enabled."""
        if isinstance(event, SubagentEvent):
            self._child(event)
            return
        tell = self._lines.get(event.__class__)
        if tell is None:
            return
        level, text, values = tell(event)
        if log.isEnabledFor(level):
            log.log(level, text, *values, extra=self._extra(event))

    def _child(self, event: SubagentEvent) -> None:
        """Write an event of a subagent, with the ids of the subagent's run state."""
        child = self._children.get(event.call_id)
        if child is None:
            run_id = f"{self._ids['run_id']}/{event.call_id}"
            child = self._children[event.call_id] = RunLog(run_id)
        if isinstance(event.event, RunStarted):
            child._ids["agent_name"] = event.event.agent_name
        child(event.event)
        if isinstance(event.event, RunFinished):
            del self._children[event.call_id]

    def _extra(self, event: Any) -> dict[str, Any]:
        extra: dict[str, Any] = dict(self._ids)
        iteration = getattr(event, "iteration", None)
        call = getattr(event, "call", None)
        if iteration is not None:
            extra["iteration"] = iteration
        if call is not None:
            extra["call_id"] = call.id
        return extra


def _run_started(event: RunStarted) -> Line:
    return logging.INFO, "run resumed" if event.resumed else "run started", ()


def _history_repaired(event: HistoryRepaired) -> Line:
    return logging.INFO, "history repaired; places: %d", (len(event.repairs),)


def _model_requested(event: ModelRequested) -> Line:
    return logging.DEBUG, "iteration %d: calling the model", (event.iteration,)


def _model_retried(event: ModelRetried) -> Line:
    if event.next_model is not None:
        text = "iteration %d: the model %s failed (%s); calling %s"
        names = event.iteration, event.model, event.error_type, event.next_model
        return logging.WARNING, text, names
    text = "iteration %d: attempt %d to call the model failed (%s); retrying in %.1f s"
    return logging.WARNING, text, (event.iteration, event.attempt, event.error_type, event.delay)


def _model_responded(event: ModelResponded) -> Line:
    usage, calls = event.response.usage, len(event.response.tool_calls)
    text = "iteration %d: the model responded in %.3f s; tool calls: %d"
    values: tuple[Any, ...] = (event.iteration, event.duration, calls)
    if usage is None or not usage.is_measured:
        return logging.DEBUG, text, values
    tokens = (usage.input_tokens, usage.output_tokens)
    return logging.DEBUG, f"{text}, tokens: %d + %d", (*values, *tokens)


def _call_not_run(event: CallNotRun) -> Line:
    return logging.DEBUG, "call of %s not run: %s", (event.call.name, event.reason.value)


def _tool_started(event: ToolStarted) -> Line:
    return logging.DEBUG, "call of %s started", (event.call.name,)


def _tool_retried(event: ToolRetried) -> Line:
    text = "call of %s: attempt %d failed (%s); retrying in %.1f s"
    return logging.INFO, text, (event.call.name, event.attempt, event.error_type, event.delay)


def _tool_finished(event: ToolFinished) -> Line:
    level = logging.INFO if event.result.is_error else logging.DEBUG
    status = (
        "failed" if event.result.is_error and event.result.status == "done" else event.result.status
    )
    values = (event.call.name, status, event.duration)
    return level, "call of %s ended: %s, %.3f s", values


def _breaker_changed(event: BreakerChanged) -> Line:
    level = logging.WARNING if event.after == "open" else logging.INFO
    return level, "breaker of %s: %s, was %s", (event.tool, event.after, event.before)


def _history_compacted(event: HistoryCompacted) -> Line:
    text = "iteration %d: history %s, %d to %d tokens, %d to %d messages"
    how = "summarised" if event.is_summarized else "shortened"
    tokens = event.tokens_before, event.tokens_after
    values = (event.iteration, how, *tokens, event.messages_before, event.messages_after)
    return logging.INFO, text, values


def _compaction_failed(event: CompactionFailed) -> Line:
    text = "iteration %d: the history was not summarised"
    end = "; no further summary is tried in this run" if event.gives_up else ""
    return logging.WARNING, text + end, (event.iteration,)


def _limit_reached(event: LimitReached) -> Line:
    return logging.INFO, "limit reached: %s", (event.reason.stop_reason,)


def _run_finished(event: RunFinished) -> Line:
    is_fine = event.error is None or event.stop_reason == RunCancelled.stop_reason
    level = logging.INFO if is_fine else logging.WARNING
    text = "run ended: %s; iterations: %d, tool calls: %d"
    values: tuple[Any, ...] = (event.stop_reason, event.total_iterations, event.tool_calls_count)
    kind = getattr(getattr(event.result, "reason", None), "error_type", "")
    return (level, f"{text} (%s)", (*values, kind)) if kind else (level, text, values)


_LINES: Lines = {
    RunStarted: _run_started,
    HistoryRepaired: _history_repaired,
    ModelRequested: _model_requested,
    ModelRetried: _model_retried,
    ModelResponded: _model_responded,
    CallNotRun: _call_not_run,
    ToolStarted: _tool_started,
    ToolRetried: _tool_retried,
    ToolFinished: _tool_finished,
    BreakerChanged: _breaker_changed,
    HistoryCompacted: _history_compacted,
    CompactionFailed: _compaction_failed,
    LimitReached: _limit_reached,
    RunFinished: _run_finished,
}
_MAY_WARN = (ModelRetried, BreakerChanged, CompactionFailed, RunFinished)
_WARNINGS: Lines = {kind: _LINES[kind] for kind in _MAY_WARN}
"""The log lines of the events that may be warnings."""
