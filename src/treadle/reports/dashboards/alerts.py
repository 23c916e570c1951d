"""Prometheus alerts as plain data. They use the series of `treadle.reports.dashboards.rules`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from treadle.reports.dashboards.expressions import ACTIVE, MODEL, TOOL


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert.

    Args:
        name: the name of the alert.
        expression: PromQL. The alert fires for each series of the result.
        lasting: how long the condition must hold, as a PromQL duration.
        severity: ``critical``: work is not done; ``warning``: look at it during the day.
        summary: one line, with templates of Prometheus.
        description: what was measured.
        runbook: what to do.
    """

    name: str
    expression: str
    lasting: str
    severity: Literal["critical", "warning"]
    summary: str
    description: str
    runbook: str


_PROCESS = "job, instance"
_ENOUGH = "and on (job, gen_ai_agent_name) treadle:runs:increase30m >= 5"
"""A share of one or two runs is not significant."""


def _stuck() -> str:
    """Processes in which runs were active for ten minutes while no model call and no tool call ended.

    By process and not by agent: an agent makes no calls of its own while its subagent works.
    """
    active = f"sum by ({_PROCESS}) ({ACTIVE})"
    ended = f'{{__name__=~"{MODEL}_count|{TOOL}_count",otel_scope_name=~"treadle|"}}'
    now, before = (f"sum by ({_PROCESS}) ({ended}{offset})" for offset in ("", " offset 10m"))
    return (
        f"min_over_time(({active})[10m:1m]) > 0"
        f" and on ({_PROCESS}) sum by ({_PROCESS}) ({ACTIVE} offset 10m)"
        f" unless on ({_PROCESS}) ({now} unless {now} == {before})"
    )


ALERTS: tuple[Alert, ...] = (
    Alert(
        "TreadleLoopsStuck",
        _stuck(),
        "1m",
        "critical",
        "{{ $value }} runs of {{ $labels.instance }} are stuck",
        "Runs are active, and for ten minutes no model call and no tool call has ended.",
        "Find the model call or tool call that does not return in the newest spans of the process. Set timeout= "
        "for tools and max_seconds= for runs, then restart the process.",
    ),
    Alert(
        "TreadleLoopsDetected",
        f"treadle:loop_detected:ratio > 0.05 {_ENOUGH}",
        "5m",
        "warning",
        "Runs of {{ or $labels.gen_ai_agent_name `an unnamed agent` }} repeat themselves",
        "{{ $value | humanizePercentage }} of the runs of the last 30 minutes ended with loop_detected.",
        "Read the last iterations of such a run. The model repeats calls that return nothing new, most often "
        "because the result of a tool does not say what to do next.",
    ),
    Alert(
        "TreadleBudgetsExhausted",
        f"treadle:budget_exhausted:ratio > 0.2 {_ENOUGH}",
        "10m",
        "warning",
        "Runs of {{ or $labels.gen_ai_agent_name `an unnamed agent` }} reach their limits",
        "{{ $value | humanizePercentage }} of the runs of the last 30 minutes reached a limit.",
        "The panel 'Stop reasons' shows which limit it is, and the panel 'Iterations per run' whether runs got "
        "longer. Raise the limit only if the runs were making progress.",
    ),
    Alert(
        "TreadleBreakerOpen",
        "treadle:breakers_open:sum > 0",
        "1m",
        "warning",
        "The circuit breaker of tool {{ $labels.gen_ai_tool_name }} is open",
        "{{ $value }} circuit breakers of the tool are open, so its calls are refused.",
        "Fix what the tool depends on. After its cool-down the breaker allows one call and closes if that "
        "succeeds, so it stays open if the tool is not called any more.",
    ),
    Alert(
        "TreadleToolFailing",
        "treadle:tool_errors:ratio > 0.5",
        "5m",
        "warning",
        "Tool {{ $labels.gen_ai_tool_name }} fails",
        "{{ $value | humanizePercentage }} of its calls of the last 15 minutes failed.",
        "The panel 'Tool errors' shows whether they time out or fail. The errors are in the spans of the calls "
        "and in the messages of a run.",
    ),
    Alert(
        "TreadleModelFailing",
        "treadle:model_errors:ratio > 0.1",
        "5m",
        "critical",
        "{{ or $labels.gen_ai_request_model `An unnamed model` }} fails",
        "{{ $value | humanizePercentage }} of its calls of the last 10 minutes failed after all retries.",
        "Check the error types in the panel 'Model retries' and the provider's status page. Runs end with "
        "llm_error until the model responds again or they use another model.",
    ),
)
"""The alerts about runs, tools and the model."""
