"""The panels of the dashboards as plain data: what each shows, and its PromQL.

The Grafana dashboard, the dashboard page of ``treadle dashboard`` and the table in the guide are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from treadle.reports.dashboards.expressions import (
    ACTIVE,
    BREAKER,
    BY_AGENT,
    BY_MODEL,
    BY_TOOL,
    COMPACTIONS,
    COST,
    ENDED,
    FAILED,
    FIRST_CHUNK,
    GOOD,
    GUARDS,
    ITERATIONS,
    LIMITS,
    MODEL,
    MODEL_CALLS,
    NOT_RUN,
    RETRIES,
    RUN,
    RUNS,
    TOKENS,
    TOOL,
    TOOL_CALLS,
    WITH_ERROR,
    grown,
    legend_of,
    of,
    per_run,
    quantile,
    rate,
    ratio,
    share,
    stopped_by,
)
from treadle.reports.dashboards.panel import Column, Panel, Query
from treadle.reports.dashboards.promql import Binary, Growth, Matcher, Scaled, Selector, Sum

_stat = partial(Panel, kind="stat")
_stacked = partial(Panel, stacked=True)


def _per_minute(by: str, metric: str, *matchers: Matcher, legend: str = "") -> Query:
    return Query(Scaled(60, rate(metric, *matchers, by=by)), legend or legend_of(by))


def _breakers(*states: str) -> Sum:
    """Transitions of shared circuit breakers to some states, or to all."""
    matchers = (Matcher("treadle_circuit_breaker_state", "=", state) for state in states)
    return Sum(Selector(BREAKER, tuple(matchers)), BY_TOOL)


_PROBED = Binary(_breakers("half_open"), "or", Scaled(0, _breakers()))


def _percentiles(metric: str, *matchers: Matcher, by: str = "") -> tuple[Query, ...]:
    """The median and the 95th percentile of a histogram."""
    return tuple(
        Query(quantile(share, metric, *matchers, by=by), f"{name} {legend_of(by)}".rstrip())
        for name, share in (("p50", 0.5), ("p95", 0.95))
    )


OVERVIEW = (
    _stat(
        "active_runs",
        "Active runs",
        "Runs that have started and not ended. A subagent counts as a run.",
        "runs",
        (Query(Sum(of(ACTIVE)), "active"),),
    ),
    _stat(
        "runs",
        "Runs",
        "Runs that ended in the time range. A paused run is counted when it ends after it was resumed.",
        "runs",
        (Query(grown(RUNS, ENDED), "runs"),),
    ),
    _stat(
        "answered",
        "Answered",
        "The share of runs that ended with an answer, including answers given after a limit was reached.",
        "ratio",
        (Query(share(grown(RUNS, stopped_by(GOOD)), grown(RUNS, ENDED)), "answered"),),
    ),
    _stat(
        "cost",
        "Cost",
        "US dollars spent in the time range, as reported by the backend or by `cost_of=`.",
        "dollars",
        (Query(grown(COST), "cost"),),
    ),
    _stat(
        "mean_cost",
        "Mean cost per run",
        "US dollars per run that ended in the time range.",
        "dollars",
        (Query(ratio(grown(COST), grown(RUNS, ENDED)), "mean"),),
    ),
)

RUNS_ROW = (
    _stacked(
        "runs_per_minute",
        "Runs per minute",
        "Runs that ended, by agent.",
        "per_minute",
        (_per_minute(BY_AGENT, RUNS, ENDED),),
    ),
    _stacked(
        "active_runs_by_agent",
        "Active runs by agent",
        "Runs that have started and not ended. If the number only grows, runs hang.",
        "runs",
        (Query(Sum(of(ACTIVE), BY_AGENT), legend_of(BY_AGENT)),),
    ),
    Panel(
        "run_duration",
        "Run duration",
        "The time from the start to the end of a run.",
        "seconds",
        _percentiles(RUN, ENDED),
    ),
    _stacked(
        "stop_reasons",
        "Stop reasons",
        "Why runs ended, per minute. `answered` and `output` are answers, `finished` is an answer given after a "
        "limit was reached, and all others are runs without an answer.",
        "per_minute",
        (_per_minute("treadle_stop_reason", RUNS, ENDED),),
    ),
    Panel(
        "stop_reasons_total",
        "Stop reasons, total",
        "The number of runs that ended for each reason in the time range.",
        "runs",
        (Query(grown(RUNS, ENDED, by="treadle_stop_reason"), "{{treadle_stop_reason}}"),),
        kind="table",
    ),
    _stacked(
        "budget_exhausted",
        "Limits reached",
        "The share of runs that reached a limit (iterations, calls, tokens, cost, time), without an answer and "
        "with a last answer.",
        "ratio",
        (
            Query(share(rate(RUNS, stopped_by(LIMITS)), rate(RUNS, ENDED)), "no answer"),
            Query(share(rate(RUNS, stopped_by("finished")), rate(RUNS, ENDED)), "last answer"),
        ),
    ),
)

ITERATIONS_ROW = (
    Panel(
        "iterations",
        "Iterations per run",
        "The number of model calls of a run. If it is close to `max_iterations`, runs are cut short.",
        "iterations",
        _percentiles(ITERATIONS, ENDED),
    ),
    Panel(
        "iterations_heatmap",
        "Iterations per run, distribution",
        "The number of runs by their number of iterations. A band at the limit means runs that do not finish by "
        "themselves.",
        "iterations",
        (
            Query(
                Sum(Growth("increase", of(f"{ITERATIONS}_bucket", ENDED), "window"), "le"),
                "{{le}}",
            ),
        ),
        kind="heatmap",
    ),
    Panel(
        "calls_per_run",
        "Calls per run",
        "Tool calls and model calls of a run. The parts of a paused run, before and after the pause, are measured "
        "separately: means are of whole runs, p95 is of parts.",
        "calls",
        (
            Query(per_run(f"{TOOL_CALLS}_sum"), "tool calls, mean"),
            Query(quantile(0.95, TOOL_CALLS), "tool calls, p95"),
            Query(per_run(f"{MODEL_CALLS}_sum"), "model calls, mean"),
        ),
    ),
    Panel(
        "compactions",
        "Compactions",
        "How often the model was shown less of a history that had become too long, per minute. `true`: a summary "
        "was written. `false`: only old results were replaced and repetitions left out. Each compaction costs the "
        "provider's cache of the prompt: with many of them, raise `max_tokens` or return shorter results.",
        "per_minute",
        (
            _per_minute(
                "treadle_is_summarized",
                COMPACTIONS,
                legend="summarised: {{treadle_is_summarized}}",
            ),
        ),
    ),
)

TOOLS_ROW = (
    _stacked(
        "tool_calls",
        "Tool calls",
        "Tool calls that ran, per minute. Unknown tools have the name `_OTHER`.",
        "per_minute",
        (_per_minute(BY_TOOL, f"{TOOL}_count"),),
    ),
    Panel(
        "tool_latency",
        "Tool latency",
        "The 95th percentile of the duration of tool calls, including retries.",
        "seconds",
        (Query(quantile(0.95, TOOL, by=BY_TOOL), legend_of(BY_TOOL)),),
    ),
    Panel(
        "tool_errors",
        "Tool errors",
        "Tool calls that failed, per minute: `tool_error`, `timeout` or `cancelled`.",
        "per_minute",
        (_per_minute(f"{BY_TOOL}, error_type", f"{TOOL}_count", WITH_ERROR),),
    ),
    Panel(
        "calls_held",
        "Tool calls not run",
        "Calls that did not run, per minute, by reason.",
        "per_minute",
        (_per_minute(f"{BY_TOOL}, treadle_reason", NOT_RUN),),
    ),
)

FAILURES_ROW = (
    Panel(
        "breaker_transitions",
        "Breaker transitions",
        "How often shared circuit breakers opened, allowed a probe call (`half_open`) and closed, per minute.",
        "per_minute",
        (_per_minute(f"{BY_TOOL}, treadle_circuit_breaker_state", BREAKER),),
    ),
    Panel(
        "breakers_open",
        "Open breakers",
        "Shared circuit breakers that are open. Calls of their tools are refused. "
        "Counted over all agents, because agents share them.",
        "breakers",
        (Query(Binary(_breakers("open"), "-", _PROBED), legend_of(BY_TOOL)),),
    ),
    Panel(
        "broken_runs",
        "Runs stopped by a guard",
        "Runs per minute that ended because a tool kept failing with the same error (`circuit_broken`), "
        "because the model repeated itself (`loop_detected`), or because the history became too long again and "
        "again without new results (`compaction_stalled`).",
        "per_minute",
        (_per_minute("treadle_stop_reason", RUNS, stopped_by(GUARDS)),),
    ),
)

MODEL_ROW = (
    Panel(
        "model_latency",
        "Model latency",
        "The duration of model calls, including retries and the whole stream.",
        "seconds",
        _percentiles(MODEL, by=BY_MODEL),
    ),
    Panel(
        "time_to_first_chunk",
        "Time to first token",
        "The time until the first chunk of a streamed response.",
        "seconds",
        _percentiles(FIRST_CHUNK, by=BY_MODEL),
    ),
    Panel(
        "tokens",
        "Tokens",
        "Tokens per second of all model calls, as counted by the provider.",
        "tokens_per_second",
        (Query(rate(f"{TOKENS}_sum", by="gen_ai_token_type"), "{{gen_ai_token_type}}"),),
    ),
    Panel(
        "output_speed",
        "Output speed",
        "Output tokens per second of model call duration.",
        "tokens_per_second",
        (
            Query(
                ratio(
                    rate(f"{TOKENS}_sum", Matcher("gen_ai_token_type", "=", "output"), by=BY_MODEL),
                    rate(f"{MODEL}_sum", by=BY_MODEL),
                ),
                legend_of(BY_MODEL),
            ),
        ),
    ),
    Panel(
        "model_retries",
        "Model retries",
        "Failed attempts that were retried, per minute, by type of error.",
        "per_minute",
        (_per_minute("error_type", RETRIES),),
    ),
    Panel(
        "model_errors",
        "Model errors",
        "The share of model calls that failed after all retries. Cancelled calls do not count as failed.",
        "ratio",
        (Query(share(rate(f"{MODEL}_count", FAILED), rate(f"{MODEL}_count")), "failed"),),
    ),
)

COST_ROW = (
    _stacked(
        "cost_per_hour",
        "Cost per hour",
        "US dollars per hour at the current rate, by model.",
        "dollars",
        (Query(Scaled(3600, rate(COST, by=BY_MODEL)), legend_of(BY_MODEL)),),
    ),
    Panel(
        "cost_per_run",
        "Cost per run",
        "US dollars per run that ended. The cost of an active run is counted before it ends.",
        "dollars",
        (Query(per_run(COST), "mean"),),
    ),
)

ROWS: Mapping[str, tuple[Panel, ...]] = {
    "Overview": OVERVIEW,
    "Runs": RUNS_ROW,
    "Iterations": ITERATIONS_ROW,
    "Tools": TOOLS_ROW,
    "Failures": FAILURES_ROW,
    "Model": MODEL_ROW,
    "Cost": COST_ROW,
}
"""The panels by heading, in display order."""

PANELS: tuple[Panel, ...] = tuple(panel for row in ROWS.values() for panel in row)
"""All panels, in display order."""

TOOLS = (
    Column("calls", "Calls", "calls", grown(f"{TOOL}_count", by=BY_TOOL)),
    Column("errors", "Errors", "calls", grown(f"{TOOL}_count", WITH_ERROR, by=BY_TOOL)),
    Column("p50", "p50", "seconds", quantile(0.5, TOOL, by=BY_TOOL)),
    Column("p95", "p95", "seconds", quantile(0.95, TOOL, by=BY_TOOL)),
    Column("not_run", "Not run", "calls", grown(NOT_RUN, by=BY_TOOL)),
)
"""The columns of the table of tools, each over the whole time range."""

AGENTS = (rate(RUNS, by=BY_AGENT), Sum(of(ACTIVE), BY_AGENT))
"""Queries whose series have the names of all agents."""
