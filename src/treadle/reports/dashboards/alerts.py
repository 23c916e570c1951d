"""Prometheus' alerts as plain data; they read the series that `treadle.reports.dashboards.rules` records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from treadle.reports.dashboards.promql import ACTIVE, MODEL, TOOL


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert.

    Args:
        name: of the alert.
        expression: PromQL; it fires for each series that this brings.
        lasting: how long it has to hold, as a PromQL duration.
        severity: ``critical`` is work that does not get done, ``warning`` is to be looked at in the day.
        summary: one line, with Prometheus' templates.
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
"""A share of one or two runs says nothing."""


def _stuck() -> str:
    """Processes in which runs were active for ten minutes, and no model call or tool call ended.

    By process and not by agent: while a nested loop works, the agent that called it is rightly quiet.
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
        "Look at the newest spans of the process for a model or a tool that does not answer; give tools a "
        "timeout and runs max_seconds, then restart the process.",
    ),
    Alert(
        "TreadleLoopsDetected",
        f"treadle:loop_detected:ratio > 0.05 {_ENOUGH}",
        "5m",
        "warning",
        "Runs of {{ or $labels.gen_ai_agent_name `an unnamed agent` }} go round in circles",
        "{{ $value | humanizePercentage }} of the runs of 30 minutes ended as loop_detected.",
        "Read the last iterations of such a run: the model repeats calls that teach it nothing, most often since "
        "a tool's result does not say what to do next.",
    ),
    Alert(
        "TreadleBudgetsExhausted",
        f"treadle:budget_exhausted:ratio > 0.2 {_ENOUGH}",
        "10m",
        "warning",
        "Runs of {{ or $labels.gen_ai_agent_name `an unnamed agent` }} use up their budgets",
        "{{ $value | humanizePercentage }} of the runs of 30 minutes came to a limit.",
        "See in the panel of stop reasons which limit it is, and in that of iterations whether runs got longer; "
        "raise the limit only if the runs were about to get done.",
    ),
    Alert(
        "TreadleBreakerOpen",
        "treadle:breakers_open:sum > 0",
        "1m",
        "warning",
        "The breaker of tool {{ $labels.gen_ai_tool_name }} is open",
        "{{ $value }} circuit breakers of the tool are open: its calls are answered as out of order.",
        "Mend what the tool depends on; the breaker lets one call through after its cool-down and closes when "
        "that succeeds, so it stays open where nobody calls the tool any more.",
    ),
    Alert(
        "TreadleToolFailing",
        "treadle:tool_errors:ratio > 0.5",
        "5m",
        "warning",
        "Tool {{ $labels.gen_ai_tool_name }} fails",
        "{{ $value | humanizePercentage }} of its calls of 15 minutes failed.",
        "The panel of tool errors says whether they time out or fail; the spans of the calls, and the messages of "
        "a run, have the errors.",
    ),
    Alert(
        "TreadleModelFailing",
        "treadle:model_errors:ratio > 0.1",
        "5m",
        "critical",
        "{{ or $labels.gen_ai_request_model `A model of no known name` }} fails",
        "{{ $value | humanizePercentage }} of its calls of 10 minutes failed for good, after all retries.",
        "Look at the error types in the panel of retries and at the provider's status page; runs end as llm_error "
        "until it answers again, or until they are given another model.",
    ),
)
"""Of runs, of tools, of the model."""
