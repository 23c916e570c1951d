"""PromQL for treadle's metrics: their names in Prometheus, and functions that build expressions."""

from __future__ import annotations

RUN = "gen_ai_invoke_agent_duration_seconds"
ITERATIONS = "treadle_invoke_agent_iterations"
MODEL = "gen_ai_client_operation_duration_seconds"
FIRST_CHUNK = "gen_ai_client_operation_time_to_first_chunk_seconds"
TOKENS = "gen_ai_client_token_usage"
MODEL_CALLS = "gen_ai_invoke_agent_inference_calls"
TOOL_CALLS = "gen_ai_invoke_agent_tool_calls"
TOOL = "gen_ai_execute_tool_duration_seconds"
SUPPRESSED = "treadle_tool_calls_suppressed_total"
DEFERRED = "treadle_tool_calls_deferred_total"
REFUSED = "treadle_tool_calls_refused_total"
BREAKER = "treadle_circuit_breaker_transitions_total"
COST = "treadle_usage_cost_total"
RETRIES = "treadle_model_retries_total"
ACTIVE = "treadle_invoke_agent_active"
NOT_RUN = {"suppressed": SUPPRESSED, "deferred": DEFERRED, "refused": REFUSED}
"""The counters of calls that a guard prevented, by what it does."""

RUNS = f"{RUN}_count"
ENDED = 'treadle_stop_reason!="paused"'
"""Matches runs that ended. A paused run is counted when it ends after it was resumed."""
FAILED = 'error_type!~"|cancelled|abandoned"'
"""Matches calls that failed. Cancelled calls did not fail."""
BY_MODEL = "gen_ai_request_model, gen_ai_response_model"
BY_TOOL = "gen_ai_tool_name"
BY_AGENT = "gen_ai_agent_name"

GOOD = "answered|output|finished"
"""Stop reasons of runs that ended with an answer."""
LIMITS = "max_iterations_reached|budget_exhausted|deadline_exceeded"
"""Stop reasons of runs that a limit ended without an answer."""


def stopped_by(reasons: str) -> str:
    """The matcher of runs that ended for one of the reasons."""
    return f'treadle_stop_reason=~"{reasons}"'


def selector(metric: str, *matchers: str) -> str:
    """A metric, restricted to series that treadle exported.

    Instrumentations of model SDKs export metrics of the same names. If the exporter does not export scopes, they
    cannot be distinguished, and the matcher accepts all of them.
    """
    scope = () if metric.startswith("treadle_") else ('otel_scope_name=~"treadle|"',)
    inside = ",".join((*scope, *matchers))
    return f"{metric}{{{inside}}}" if inside else metric


def of(metric: str, *matchers: str) -> str:
    """A metric, restricted to the selected agent."""
    return selector(metric, 'gen_ai_agent_name=~"{agent}"', *matchers)


def legend_of(by: str) -> str:
    """The legend that shows the labels of a sum: ``{{gen_ai_tool_name}} {{error_type}}``."""
    return " ".join(f"{{{{{label}}}}}" for label in by.split(", ")) if by else ""


def _sum(by: str) -> str:
    return f"sum by ({by}) " if by else "sum"


def rate(metric: str, *matchers: str, by: str = "") -> str:
    """The increase of a counter per second, summed."""
    return f"{_sum(by)}(rate({of(metric, *matchers)}[{{window}}]))"


def grown(metric: str, *matchers: str, by: str = "") -> str:
    """The increase of a counter over the whole time range, summed."""
    return f"{_sum(by)}(increase({of(metric, *matchers)}[{{range}}]))"


def quantile(share: float, metric: str, *matchers: str, by: str = "") -> str:
    """A quantile of a histogram. No value if nothing was measured."""
    keys = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', *matchers, by=keys)}) >= 0"


def per_run(counter: str) -> str:
    """A counter divided by the number of runs that ended. No value if none did."""
    return f"{rate(counter)} / ({rate(RUNS, ENDED)} > 0)"


def share(part: str, whole: str) -> str:
    """A ratio: 0 without a part, and no value without a whole."""
    return f"({part} or vector(0)) / ({whole} > 0)"
