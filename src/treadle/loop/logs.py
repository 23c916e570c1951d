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
from logging import DEBUG, INFO, WARNING
from typing import Any, TypeAlias

from treadle import events
from treadle.results import RunCancelled

log = logging.getLogger("treadle.loop")

_Line: TypeAlias = tuple[Any, ...]
"""A level, a format string, and its values."""


def is_logged(level: int) -> bool:
    """Whether records of a level are logged, and a handler is configured.

    Without a handler, Python would write warnings to stderr, next to the result that reports them anyway.
    """
    return log.isEnabledFor(level) and log.hasHandlers()


class RunLog:
    """An observer that writes the events of one run to the log, with the ids of the run and its agent."""

    def __init__(self, run_id: str, agent_name: str = "") -> None:
        self._agents = {run_id: agent_name}  # of this run and of the subagents in progress
        self._run_id = run_id

    def __call__(self, event: events.Event) -> None:
        """Write one event, if its level is enabled."""
        run_id = self._run_id
        while isinstance(event, events.SubagentEvent):
            run_id, event = f"{run_id}/{event.call_id}", event.event
        if isinstance(event, events.RunStarted):
            self._agents.setdefault(run_id, event.agent_name)
        if event.__class__ in _LINES:
            level, text, *values = _LINES[event.__class__](event)
            if log.isEnabledFor(level):
                call, iteration = getattr(event, "call", None), getattr(event, "iteration", None)
                extra = {"run_id": run_id, "agent_name": self._agents.get(run_id, "")}
                extra |= {} if iteration is None else {"iteration": iteration}
                extra |= {} if call is None else {"call_id": call.id}
                log.log(level, text, *values, extra=extra)
        if isinstance(event, events.RunFinished):
            self._agents.pop(run_id, None)


def _model_retried(event: events.ModelRetried) -> _Line:
    if event.next_model is not None:
        text = "iteration %d: the model %s failed (%s); calling %s"
        return WARNING, text, event.iteration, event.model, event.error_type, event.next_model
    text = "iteration %d: attempt %d to call the model failed (%s); retrying in %.1f s"
    return WARNING, text, event.iteration, event.attempt, event.error_type, event.delay


def _model_responded(event: events.ModelResponded) -> _Line:
    usage, calls = event.response.usage, len(event.response.tool_calls)
    text = "iteration %d: the model responded in %.3f s; tool calls: %d"
    values = (event.iteration, event.duration, calls)
    if usage is None or not usage.is_measured:
        return DEBUG, text, *values
    return DEBUG, f"{text}, tokens: %d + %d", *values, usage.input_tokens, usage.output_tokens


def _tool_finished(event: events.ToolFinished) -> _Line:
    result = event.result
    status = "failed" if result.is_error and result.status == "done" else result.status
    level = INFO if result.is_error else DEBUG
    return level, "call of %s ended: %s, %.3f s", event.call.name, status, event.duration


def _run_finished(event: events.RunFinished) -> _Line:
    is_fine = event.error is None or event.stop_reason == RunCancelled.stop_reason
    kind = getattr(getattr(event.result, "reason", None), "error_type", "")
    text = f"run ended: %s; iterations: %d, tool calls: %d{' (%s)' if kind else ''}"
    values = (event.stop_reason, event.total_iterations, event.tool_calls_count)
    return INFO if is_fine else WARNING, text, *values, *([kind] if kind else ())


_LINES: Mapping[type, Callable[[Any], _Line]] = {
    events.RunStarted: lambda event: (INFO, "run resumed" if event.resumed else "run started"),
    events.HistoryRepaired: lambda event: (INFO, "history repaired; places: %d", len(event.repairs)),
    events.ModelRequested: lambda event: (DEBUG, "iteration %d: calling the model", event.iteration),
    events.ModelRetried: _model_retried,
    events.ModelResponded: _model_responded,
    events.CallNotRun: lambda event: (
        DEBUG, "call of %s not run: %s", event.call.name, event.reason.value,
    ),
    events.ToolStarted: lambda event: (DEBUG, "call of %s started", event.call.name),
    events.ToolRetried: lambda event: (
        INFO, "call of %s: attempt %d failed (%s); retrying in %.1f s",
        event.call.name, event.attempt, event.error_type, event.delay,
    ),
    events.ToolFinished: _tool_finished,
    events.BreakerChanged: lambda event: (
        WARNING if event.after == "open" else INFO,
        "breaker of %s: %s, was %s", event.tool, event.after, event.before,
    ),
    events.HistoryCompacted: lambda event: (
        INFO, "iteration %d: history %s, %d to %d tokens, %d to %d messages", event.iteration,
        "summarised" if event.is_summarized else "shortened", event.tokens_before, event.tokens_after,
        event.messages_before, event.messages_after,
    ),
    events.CompactionFailed: lambda event: (
        WARNING, "iteration %d: the history was not summarised%s", event.iteration,
        "; no further summary is tried in this run" if event.gives_up else "",
    ),
    events.LimitReached: lambda event: (INFO, "limit reached: %s", event.reason.stop_reason),
    events.RunFinished: _run_finished,
}  # fmt: skip
"""The log lines of events, by their classes."""
