"""PromQL for treadle's metrics: their names in Prometheus, and functions that build expressions."""

from __future__ import annotations

from typing import get_args

from treadle.reports.dashboards.promql import (
    AGENT,
    Binary,
    Compared,
    Expression,
    Growth,
    Matcher,
    Quantile,
    Selector,
    Sum,
    Vector,
)
from treadle.results import (
    BudgetExhausted,
    DeadlineExceeded,
    LimitNotMeasurable,
    MaxIterationsReached,
    Reason,
)

RUN = "gen_ai_invoke_agent_duration_seconds"
ITERATIONS = "treadle_invoke_agent_iterations"
MODEL = "gen_ai_client_operation_duration_seconds"
FIRST_CHUNK = "gen_ai_client_operation_time_to_first_chunk_seconds"
TOKENS = "gen_ai_client_token_usage"
MODEL_CALLS = "gen_ai_invoke_agent_inference_calls"
TOOL_CALLS = "gen_ai_invoke_agent_tool_calls"
TOOL = "gen_ai_execute_tool_duration_seconds"
NOT_RUN = "treadle_tool_calls_not_run_total"
BREAKER = "treadle_circuit_breaker_transitions_total"
COMPACTIONS = "treadle_compactions_total"
COST = "treadle_usage_cost_total"
RETRIES = "treadle_model_retries_total"
ACTIVE = "treadle_invoke_agent_active"

RUNS = f"{RUN}_count"
ENDED = Matcher("treadle_stop_reason", "!=", "paused")
"""Runs that ended. A paused run is counted when it ends after it was resumed."""
FAILED = Matcher("error_type", "!~", "|cancelled|abandoned")
"""Calls that failed. Cancelled calls did not fail."""
WITH_ERROR = Matcher("error_type", "!=", "")
"""Calls that ended with an error, or were cancelled."""
BY_MODEL = "gen_ai_request_model, gen_ai_response_model"
BY_TOOL = "gen_ai_tool_name"
BY_AGENT = "gen_ai_agent_name"

GOOD = "answered|output|finished"
"""Stop reasons of runs that ended with an answer."""
_OF_LIMITS = (MaxIterationsReached, BudgetExhausted, DeadlineExceeded)
LIMITS = "|".join(kind.stop_reason for kind in _OF_LIMITS)
"""Stop reasons of runs that a limit ended without an answer."""
GUARDS = "|".join(
    kind.stop_reason
    for kind in get_args(Reason)
    if kind.is_guard and kind not in {*_OF_LIMITS, LimitNotMeasurable}
)
"""Stop reasons of runs that another guard ended."""

_OURS = Matcher("otel_scope_name", "=~", "treadle|")
"""Series that treadle exported: instrumentations of model SDKs export metrics of the same names. If the exporter
does not export scopes, they cannot be distinguished, and all match."""


def stopped_by(reasons: str) -> Matcher:
    """The matcher of runs that ended for one of the reasons."""
    return Matcher("treadle_stop_reason", "=~", reasons)


def of(metric: str, *matchers: Matcher) -> Selector:
    """A metric, restricted to series that treadle exported, and to the selected agent."""
    scope = () if metric.startswith("treadle_") else (_OURS,)
    return Selector(metric, (*scope, Matcher(BY_AGENT, "=~", AGENT), *matchers))


def legend_of(by: str) -> str:
    """The legend that shows the labels of a sum: ``{{gen_ai_tool_name}} {{error_type}}``."""
    return " ".join(f"{{{{{label}}}}}" for label in by.split(", ")) if by else ""


def rate(metric: str, *matchers: Matcher, by: str = "") -> Sum:
    """The increase of a counter per second, summed."""
    return Sum(Growth("rate", of(metric, *matchers), "window"), by)


def grown(metric: str, *matchers: Matcher, by: str = "") -> Sum:
    """The increase of a counter over the whole time range, summed."""
    return Sum(Growth("increase", of(metric, *matchers), "range"), by)


def quantile(share: float, metric: str, *matchers: Matcher, by: str = "") -> Expression:
    """A quantile of a histogram. No value if nothing was measured."""
    return Compared(Quantile(share, of(f"{metric}_bucket", *matchers), by), ">=")


def ratio(part: Expression, whole: Sum) -> Expression:
    """A part divided by a whole. No value without a whole."""
    return Binary(part, "/", Compared(whole, ">"))


def per_run(counter: str) -> Expression:
    """A counter divided by the number of runs that ended. No value if none did."""
    return ratio(rate(counter), rate(RUNS, ENDED))


def share(part: Expression, whole: Sum) -> Expression:
    """A ratio: 0 without a part, and no value without a whole."""
    return ratio(Binary(part, "or", Vector(0)), whole)
