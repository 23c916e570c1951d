"""Prometheus recording rules as plain data, for the alerts and for custom graphs.

``scripts/build_dashboards.py`` writes them and the alerts to ``dashboards/prometheus-rules.yml``.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.reports.dashboards.expressions import (
    ACTIVE,
    BREAKER,
    COST,
    DEFERRED,
    ENDED,
    FAILED,
    FIRST_CHUNK,
    GOOD,
    ITERATIONS,
    LIMITS,
    MODEL,
    REFUSED,
    RETRIES,
    RUN,
    RUNS,
    SUPPRESSED,
    TOKENS,
    TOOL,
    TOOL_CALLS,
    selector,
    stopped_by,
)


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """A Prometheus recording rule.

    Args:
        name: the name of the recorded series.
        expression: its PromQL.
        meaning: a short description.
    """

    name: str
    expression: str
    meaning: str


_AGENT = "job, gen_ai_agent_name"
_TOOL = "job, gen_ai_tool_name"
_MODEL = "job, gen_ai_request_model"


def _rate(by: str, window: str, metric: str, *matchers: str) -> str:
    return f"sum by ({by}) (rate({selector(metric, *matchers)}[{window}]))"


def _share(part: str, whole: str) -> str:
    """A ratio: 0 without a part, and no value without a whole."""
    return f"({part} or 0 * {whole}) / ({whole} > 0)"


def _share_of_runs(reasons: str) -> str:
    runs = _rate(_AGENT, "30m", RUNS, ENDED)
    return _share(_rate(_AGENT, "30m", RUNS, stopped_by(reasons)), runs)


def _quantile(share: float, by: str, metric: str, *matchers: str) -> str:
    buckets = _rate(f"{by}, le", "5m", f"{metric}_bucket", *matchers)
    return f"histogram_quantile({share}, {buckets}) >= 0"


def _breakers(states: str) -> str:
    """The number of transitions of circuit breakers to one of the states."""
    matcher = f'treadle_circuit_breaker_state=~"{states}"'
    return f"sum by ({_TOOL}) ({selector(BREAKER, matcher)})"


_RULES = {
    "treadle:runs_active:sum": (
        f"sum by ({_AGENT}) ({ACTIVE})",
        "runs that have started and not ended",
    ),
    "treadle:runs:rate5m": (
        _rate(f"{_AGENT}, treadle_stop_reason", "5m", RUNS, ENDED),
        "runs that ended per second, by stop reason",
    ),
    "treadle:runs:increase30m": (
        f"sum by ({_AGENT}) (increase({selector(RUNS, ENDED)}[30m]))",
        "runs that ended in 30 minutes",
    ),
    "treadle:answered:ratio": (
        _share_of_runs(GOOD),
        "share of runs that ended with an answer, over 30 minutes",
    ),
    "treadle:budget_exhausted:ratio": (
        _share_of_runs(f"{LIMITS}|finished"),
        "share of runs that reached a limit, with or without a last answer, over 30 minutes",
    ),
    "treadle:loop_detected:ratio": (
        _share_of_runs("loop_detected"),
        "share of runs in which the model repeated itself, over 30 minutes",
    ),
    "treadle:iterations:p50": (
        _quantile(0.5, _AGENT, ITERATIONS, ENDED),
        "iterations per run, median over 5 minutes",
    ),
    "treadle:iterations:p95": (
        _quantile(0.95, _AGENT, ITERATIONS, ENDED),
        "iterations per run, 95th percentile over 5 minutes",
    ),
    "treadle:run_seconds:p95": (
        _quantile(0.95, _AGENT, RUN, ENDED),
        "duration of runs in seconds, 95th percentile over 5 minutes",
    ),
    "treadle:tool_calls:per_run": (
        f"{_rate(_AGENT, '30m', f'{TOOL_CALLS}_sum')} / ({_rate(_AGENT, '30m', RUNS, ENDED)} > 0)",
        "tool calls per run, mean over 30 minutes",
    ),
    "treadle:tool_seconds:p95": (
        _quantile(0.95, _TOOL, TOOL),
        "duration of tool calls in seconds, 95th percentile over 5 minutes",
    ),
    "treadle:tool_errors:ratio": (
        _share(
            _rate(_TOOL, "15m", f"{TOOL}_count", FAILED),
            _rate(_TOOL, "15m", f"{TOOL}_count"),
        ),
        "share of tool calls that failed, without cancelled ones, over 15 minutes",
    ),
    "treadle:calls_suppressed:rate5m": (
        _rate(f"{_TOOL}, treadle_reason", "5m", SUPPRESSED),
        "tool calls per second that were answered before and did not run",
    ),
    "treadle:calls_deferred:rate5m": (
        _rate(f"{_TOOL}, treadle_reason", "5m", DEFERRED),
        "tool calls per second that were deferred",
    ),
    "treadle:calls_refused:rate5m": (
        _rate(f"{_TOOL}, treadle_reason", "5m", REFUSED),
        "tool calls per second that were over a budget or refused by an open circuit breaker",
    ),
    "treadle:breakers_open:sum": (
        f"{_breakers('open')} - ({_breakers('half_open')} or 0 * {_breakers('.+')})",
        "open shared circuit breakers, by tool",
    ),
    "treadle:model_seconds:p95": (
        _quantile(0.95, _MODEL, MODEL),
        "duration of model calls in seconds, 95th percentile over 5 minutes",
    ),
    "treadle:first_chunk_seconds:p95": (
        _quantile(0.95, _MODEL, FIRST_CHUNK),
        "seconds until the first chunk of a streamed response, 95th percentile over 5 minutes",
    ),
    "treadle:model_errors:ratio": (
        _share(
            _rate(_MODEL, "10m", f"{MODEL}_count", FAILED),
            _rate(_MODEL, "10m", f"{MODEL}_count"),
        ),
        "share of model calls that failed after all retries, without cancelled ones, over 10 minutes",
    ),
    "treadle:model_retries:rate5m": (
        _rate(f"{_MODEL}, error_type", "5m", RETRIES),
        "failed attempts of model calls per second that were retried",
    ),
    "treadle:tokens:rate5m": (
        _rate(f"{_AGENT}, gen_ai_token_type", "5m", f"{TOKENS}_sum"),
        "tokens per second, of prompts (`input`) and responses (`output`)",
    ),
    "treadle:cost_usd:per_hour": (
        f"3600 * {_rate(_AGENT, '5m', COST)}",
        "US dollars per hour, at the rate of the last 5 minutes",
    ),
    "treadle:cost_usd:per_run": (
        f"{_rate(_AGENT, '1h', COST)} / ({_rate(_AGENT, '1h', RUNS, ENDED)} > 0)",
        "US dollars per run that ended, mean over an hour",
    ),
}

RECORDING_RULES = tuple(RecordingRule(name, *rest) for name, rest in _RULES.items())
"""The rules in the order of their evaluation."""
