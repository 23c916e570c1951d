"""Prometheus' recording rules as plain data: what is computed once, for alerts and for graphs of one's own.

``scripts/build_dashboards.py`` makes ``dashboards/prometheus-rules.yml`` of them and of the alerts.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.reports.dashboards.promql import (
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
class Recording:
    """A series that Prometheus computes again and again, and keeps.

    Args:
        name: of the series.
        expression: PromQL.
        meaning: what it is, in a few words.
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
    """A ratio: 0 where there is no part, and nothing where there is no whole."""
    return f"({part} or 0 * {whole}) / ({whole} > 0)"


def _share_of_runs(reasons: str) -> str:
    runs = _rate(_AGENT, "30m", RUNS, ENDED)
    return _share(_rate(_AGENT, "30m", RUNS, stopped_by(reasons)), runs)


def _quantile(share: float, by: str, metric: str, *matchers: str) -> str:
    buckets = _rate(f"{by}, le", "5m", f"{metric}_bucket", *matchers)
    return f"histogram_quantile({share}, {buckets}) >= 0"


def _breakers(states: str) -> str:
    """How often breakers came to one of some states, since the processes began."""
    matcher = f'treadle_circuit_breaker_state=~"{states}"'
    return f"sum by ({_TOOL}) ({selector(BREAKER, matcher)})"


RECORDINGS: tuple[Recording, ...] = (
    Recording(
        "treadle:runs_active:sum",
        f"sum by ({_AGENT}) ({ACTIVE})",
        "runs that have begun and not ended",
    ),
    Recording(
        "treadle:runs:rate5m",
        _rate(f"{_AGENT}, treadle_stop_reason", "5m", RUNS, ENDED),
        "runs that ended per second, by stop reason",
    ),
    Recording(
        "treadle:runs:increase30m",
        f"sum by ({_AGENT}) (increase({selector(RUNS, ENDED)}[30m]))",
        "runs that ended in 30 minutes",
    ),
    Recording(
        "treadle:answered:ratio",
        _share_of_runs(GOOD),
        "share of runs that brought an answer, over 30 minutes",
    ),
    Recording(
        "treadle:budget_exhausted:ratio",
        _share_of_runs(f"{LIMITS}|finished"),
        "share of runs that came to a limit, over 30 minutes; with a last answer or without",
    ),
    Recording(
        "treadle:loop_detected:ratio",
        _share_of_runs("loop_detected"),
        "share of runs that went round in circles, over 30 minutes",
    ),
    Recording(
        "treadle:iterations:p50",
        _quantile(0.5, _AGENT, ITERATIONS, ENDED),
        "iterations of a run, median of 5 minutes",
    ),
    Recording(
        "treadle:iterations:p95",
        _quantile(0.95, _AGENT, ITERATIONS, ENDED),
        "iterations of a run, 95th percentile of 5 minutes",
    ),
    Recording(
        "treadle:run_seconds:p95",
        _quantile(0.95, _AGENT, RUN, ENDED),
        "seconds that a run takes, 95th percentile of 5 minutes",
    ),
    Recording(
        "treadle:tool_calls:per_run",
        f"{_rate(_AGENT, '30m', f'{TOOL_CALLS}_sum')} / ({_rate(_AGENT, '30m', RUNS, ENDED)} > 0)",
        "tool calls of a run, mean of 30 minutes",
    ),
    Recording(
        "treadle:tool_seconds:p95",
        _quantile(0.95, _TOOL, TOOL),
        "seconds that a call of a tool takes, 95th percentile of 5 minutes",
    ),
    Recording(
        "treadle:tool_errors:ratio",
        _share(
            _rate(_TOOL, "15m", f"{TOOL}_count", FAILED),
            _rate(_TOOL, "15m", f"{TOOL}_count"),
        ),
        "share of a tool's calls that failed, over 15 minutes; those that were cancelled did not",
    ),
    Recording(
        "treadle:calls_suppressed:rate5m",
        _rate(f"{_TOOL}, treadle_reason", "5m", SUPPRESSED),
        "calls per second that were not made",
    ),
    Recording(
        "treadle:calls_deferred:rate5m",
        _rate(f"{_TOOL}, treadle_reason", "5m", DEFERRED),
        "calls per second that were put off",
    ),
    Recording(
        "treadle:calls_refused:rate5m",
        _rate(f"{_TOOL}, treadle_reason", "5m", REFUSED),
        "calls per second that were over a budget, or of a tool that is out of order",
    ),
    Recording(
        "treadle:breakers_open:sum",
        f"{_breakers('open')} - ({_breakers('half_open')} or 0 * {_breakers('.+')})",
        "shared breakers that are open, by tool",
    ),
    Recording(
        "treadle:model_seconds:p95",
        _quantile(0.95, _MODEL, MODEL),
        "seconds that a model call takes, 95th percentile of 5 minutes",
    ),
    Recording(
        "treadle:first_chunk_seconds:p95",
        _quantile(0.95, _MODEL, FIRST_CHUNK),
        "seconds until a streamed answer begins, 95th percentile of 5 minutes",
    ),
    Recording(
        "treadle:model_errors:ratio",
        _share(
            _rate(_MODEL, "10m", f"{MODEL}_count", FAILED),
            _rate(_MODEL, "10m", f"{MODEL}_count"),
        ),
        "share of model calls that failed for good, over 10 minutes; those that were cancelled did not",
    ),
    Recording(
        "treadle:model_retries:rate5m",
        _rate(f"{_MODEL}, error_type", "5m", RETRIES),
        "tries per second that failed and were made again",
    ),
    Recording(
        "treadle:tokens:rate5m",
        _rate(f"{_AGENT}, gen_ai_token_type", "5m", f"{TOKENS}_sum"),
        "tokens per second, of prompts (`input`) and answers (`output`)",
    ),
    Recording(
        "treadle:cost_usd:per_hour",
        f"3600 * {_rate(_AGENT, '5m', COST)}",
        "US dollars per hour, at the rate of 5 minutes",
    ),
    Recording(
        "treadle:cost_usd:per_run",
        f"{_rate(_AGENT, '1h', COST)} / ({_rate(_AGENT, '1h', RUNS, ENDED)} > 0)",
        "US dollars for each run that ended, mean of an hour",
    ),
)
"""In the order of their evaluation."""
