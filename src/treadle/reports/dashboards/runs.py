"""The panels of runs: how many there are, how they end, how many iterations they take."""

from __future__ import annotations

from treadle.reports.dashboards.panel import Panel, Query
from treadle.reports.dashboards.promql import (
    ACTIVE,
    COST,
    ENDED,
    GOOD,
    ITERATIONS,
    LIMITS,
    MODEL_CALLS,
    RUN,
    RUNS,
    TOOL_CALLS,
    grown,
    of,
    per_run,
    quantile,
    rate,
    share,
    stopped_by,
)

OVERVIEW = (
    Panel(
        "active_runs",
        "Active runs",
        "Runs that have begun and not ended. A nested loop is a run of its own.",
        "stat",
        "runs",
        (Query(f"sum({of(ACTIVE)})", "active"),),
    ),
    Panel(
        "runs",
        "Runs",
        "Runs that ended in the time shown. One that is paused counts when it has been resumed and has ended.",
        "stat",
        "runs",
        (Query(grown(RUNS, ENDED), "runs"),),
    ),
    Panel(
        "answered",
        "Answered",
        "The share of runs that brought an answer, a last one after a limit included.",
        "stat",
        "ratio",
        (Query(share(grown(RUNS, stopped_by(GOOD)), grown(RUNS, ENDED)), "answered"),),
    ),
    Panel(
        "cost",
        "Cost",
        "US dollars spent in the time shown, as far as the backend or `cost_of=` told.",
        "stat",
        "dollars",
        (Query(grown(COST), "cost"),),
    ),
    Panel(
        "mean_cost",
        "Cost of a run",
        "US dollars for each run that ended, over the time shown.",
        "stat",
        "dollars",
        (Query(f"{grown(COST)} / ({grown(RUNS, ENDED)} > 0)", "mean"),),
    ),
)

RUNS_ROW = (
    Panel(
        "runs_per_minute",
        "Runs per minute",
        "Runs that ended, by agent.",
        "timeseries",
        "per_minute",
        (Query(f"60 * {rate(RUNS, ENDED, by='gen_ai_agent_name')}", "{{gen_ai_agent_name}}"),),
        stacked=True,
    ),
    Panel(
        "active_runs_by_agent",
        "Active runs by agent",
        "Runs that have begun and not ended. A number that only grows is runs that hang.",
        "timeseries",
        "runs",
        (Query(f"sum by (gen_ai_agent_name) ({of(ACTIVE)})", "{{gen_ai_agent_name}}"),),
        stacked=True,
    ),
    Panel(
        "run_duration",
        "Run duration",
        "How long runs take, from start to end.",
        "timeseries",
        "seconds",
        (
            Query(quantile(0.5, RUN, ENDED), "p50"),
            Query(quantile(0.95, RUN, ENDED), "p95"),
        ),
    ),
    Panel(
        "stop_reasons",
        "Stop reasons",
        "Why runs ended, per minute. `answered` and `output` are answers, `finished` is a last answer after a "
        "limit, all others are runs without an answer.",
        "timeseries",
        "per_minute",
        (Query(f"60 * {rate(RUNS, ENDED, by='treadle_stop_reason')}", "{{treadle_stop_reason}}"),),
        stacked=True,
    ),
    Panel(
        "stop_reasons_total",
        "Stop reasons, all told",
        "How many runs ended for each reason in the time shown.",
        "table",
        "runs",
        (Query(grown(RUNS, ENDED, by="treadle_stop_reason"), "{{treadle_stop_reason}}"),),
    ),
    Panel(
        "budget_exhausted",
        "Budgets exhausted",
        "The share of runs that came to a limit (iterations, calls, tokens, cost, time): those that it ended, and "
        "those that gave a last answer.",
        "timeseries",
        "ratio",
        (
            Query(share(rate(RUNS, stopped_by(LIMITS)), rate(RUNS, ENDED)), "no answer"),
            Query(share(rate(RUNS, stopped_by("finished")), rate(RUNS, ENDED)), "last answer"),
        ),
        stacked=True,
    ),
)

ITERATIONS_ROW = (
    Panel(
        "iterations",
        "Iterations of a run",
        "Model calls that a run takes. Near `max_iterations`, runs do not get done in time.",
        "timeseries",
        "iterations",
        (
            Query(quantile(0.5, ITERATIONS, ENDED), "p50"),
            Query(quantile(0.95, ITERATIONS, ENDED), "p95"),
        ),
    ),
    Panel(
        "iterations_heatmap",
        "Iterations of a run, all",
        "How many runs took how many iterations. A band at the limit is runs that never come to an end.",
        "heatmap",
        "iterations",
        (
            Query(
                f"sum by (le) (increase({of(f'{ITERATIONS}_bucket', ENDED)}[{{window}}]))",
                "{{le}}",
            ),
        ),
    ),
    Panel(
        "calls_per_run",
        "Calls of a run",
        "Tool calls that a run makes, and how many model calls it takes for them. A run that was paused "
        "has a part before and a part after: the means are of whole runs, p95 is of parts.",
        "timeseries",
        "calls",
        (
            Query(per_run(f"{TOOL_CALLS}_sum"), "tool calls, mean"),
            Query(quantile(0.95, TOOL_CALLS), "tool calls, p95"),
            Query(per_run(f"{MODEL_CALLS}_sum"), "model calls, mean"),
        ),
    ),
)
