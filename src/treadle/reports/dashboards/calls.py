"""The panels of tools, of the guards around them, of the model, and of what it costs."""

from __future__ import annotations

from treadle.reports.dashboards.panel import Panel, Query
from treadle.reports.dashboards.promql import (
    BREAKER,
    BY_MODEL,
    COST,
    DEFERRED,
    FAILED,
    FIRST_CHUNK,
    MODEL,
    REFUSED,
    RETRIES,
    RUNS,
    SUPPRESSED,
    THE_MODEL,
    TOKENS,
    TOOL,
    per_run,
    quantile,
    rate,
    share,
    stopped_by,
)

TOOLS_ROW = (
    Panel(
        "tool_calls",
        "Tool calls",
        "Calls that ran, per minute. `_OTHER` are names that no tool has.",
        "timeseries",
        "per_minute",
        (Query(f"60 * {rate(f'{TOOL}_count', by='gen_ai_tool_name')}", "{{gen_ai_tool_name}}"),),
        stacked=True,
    ),
    Panel(
        "tool_latency",
        "Tool latency",
        "How long calls take, retries included: 95 of 100 are faster.",
        "timeseries",
        "seconds",
        (Query(quantile(0.95, TOOL, by="gen_ai_tool_name"), "{{gen_ai_tool_name}}"),),
    ),
    Panel(
        "tool_errors",
        "Tool errors",
        "Calls that failed, per minute: `tool_error`, `timeout` or `cancelled`.",
        "timeseries",
        "per_minute",
        (
            Query(
                "60 * "
                + rate(f"{TOOL}_count", 'error_type!=""', by="gen_ai_tool_name, error_type"),
                "{{gen_ai_tool_name}} {{error_type}}",
            ),
        ),
    ),
    Panel(
        "calls_held",
        "Calls that were not made",
        "Per minute, with the reason: `suppressed` calls were answered before, `deferred` ones may be asked for "
        "again, `refused` ones are over a budget, or their tool is out of order.",
        "timeseries",
        "per_minute",
        (
            Query(
                f"60 * {rate(SUPPRESSED, by='gen_ai_tool_name, treadle_reason')}",
                "suppressed {{gen_ai_tool_name}}: {{treadle_reason}}",
            ),
            Query(
                f"60 * {rate(DEFERRED, by='gen_ai_tool_name, treadle_reason')}",
                "deferred {{gen_ai_tool_name}}: {{treadle_reason}}",
            ),
            Query(
                f"60 * {rate(REFUSED, by='gen_ai_tool_name, treadle_reason')}",
                "refused {{gen_ai_tool_name}}: {{treadle_reason}}",
            ),
        ),
    ),
)

BROKEN_ROW = (
    Panel(
        "breaker_transitions",
        "Breaker transitions",
        "How often shared circuit breakers opened, let a probe through (`half_open`) and closed, per minute.",
        "timeseries",
        "per_minute",
        (
            Query(
                f"60 * {rate(BREAKER, by='gen_ai_tool_name, treadle_circuit_breaker_state')}",
                "{{gen_ai_tool_name}} {{treadle_circuit_breaker_state}}",
            ),
        ),
    ),
    Panel(
        "breakers_open",
        "Open breakers",
        "Shared breakers that are open: their tools are out of order, and their calls are not made. "
        "Counted over all agents, since agents share them.",
        "timeseries",
        "breakers",
        (
            Query(
                f'sum by (gen_ai_tool_name) ({BREAKER}{{treadle_circuit_breaker_state="open"}}) - '
                f"(sum by (gen_ai_tool_name) ("
                f'{BREAKER}{{treadle_circuit_breaker_state="half_open"}}) or '
                f"0 * sum by (gen_ai_tool_name) ({BREAKER}))",
                "{{gen_ai_tool_name}}",
            ),
        ),
    ),
    Panel(
        "broken_runs",
        "Runs broken off",
        "Runs that a guard ended, per minute: a tool failed alike again and again (`circuit_broken`), "
        "or the model went round in circles (`loop_detected`).",
        "timeseries",
        "per_minute",
        (
            Query(
                "60 * "
                + rate(RUNS, stopped_by("circuit_broken|loop_detected"), by="treadle_stop_reason"),
                "{{treadle_stop_reason}}",
            ),
        ),
    ),
)

MODEL_ROW = (
    Panel(
        "model_latency",
        "Model latency",
        "How long a model call takes, its retries and its whole stream included.",
        "timeseries",
        "seconds",
        (
            Query(quantile(0.5, MODEL, by=BY_MODEL), f"p50 {THE_MODEL}"),
            Query(quantile(0.95, MODEL, by=BY_MODEL), f"p95 {THE_MODEL}"),
        ),
    ),
    Panel(
        "time_to_first_chunk",
        "Time to first token",
        "How long a streamed answer takes to begin.",
        "timeseries",
        "seconds",
        (
            Query(quantile(0.5, FIRST_CHUNK, by=BY_MODEL), f"p50 {THE_MODEL}"),
            Query(quantile(0.95, FIRST_CHUNK, by=BY_MODEL), f"p95 {THE_MODEL}"),
        ),
    ),
    Panel(
        "tokens",
        "Tokens",
        "Tokens per second, of all model calls together, as the provider counted them.",
        "timeseries",
        "tokens_per_second",
        (
            Query(
                rate(f"{TOKENS}_sum", by="gen_ai_token_type"),
                "{{gen_ai_token_type}}",
            ),
        ),
    ),
    Panel(
        "output_speed",
        "Speed of the model",
        "Tokens of the answers for each second that a model call took.",
        "timeseries",
        "tokens_per_second",
        (
            Query(
                rate(f"{TOKENS}_sum", 'gen_ai_token_type="output"', by=BY_MODEL)
                + f" / ({rate(f'{MODEL}_sum', by=BY_MODEL)} > 0)",
                THE_MODEL,
            ),
        ),
    ),
    Panel(
        "model_retries",
        "Model retries",
        "Tries that failed and were made again, per minute, by what went wrong.",
        "timeseries",
        "per_minute",
        (Query(f"60 * {rate(RETRIES, by='error_type')}", "{{error_type}}"),),
    ),
    Panel(
        "model_errors",
        "Model errors",
        "The share of model calls that failed for good, after all retries. Those that were cancelled did not.",
        "timeseries",
        "ratio",
        (Query(share(rate(f"{MODEL}_count", FAILED), rate(f"{MODEL}_count")), "failed"),),
    ),
)

COST_ROW = (
    Panel(
        "cost_per_hour",
        "Cost per hour",
        "US dollars per hour at the present rate, by model.",
        "timeseries",
        "dollars",
        (Query(f"3600 * {rate(COST, by=BY_MODEL)}", THE_MODEL),),
        stacked=True,
    ),
    Panel(
        "cost_per_run",
        "Cost per run",
        "US dollars for each run that ended. The cost of a run under way is counted before its end.",
        "timeseries",
        "dollars",
        (Query(per_run(COST), "mean"),),
    ),
)
