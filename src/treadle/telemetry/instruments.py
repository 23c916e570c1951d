"""The metrics of runs: one set of instruments for each meter provider, and what is recorded with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter, UpDownCounter

from treadle.messages import Usage
from treadle.telemetry import names
from treadle.telemetry.bounded import Bounded
from treadle.telemetry.scope import scope

Labels: TypeAlias = dict[str, Any]


HISTOGRAMS: Mapping[str, tuple[str, str, tuple[float, ...]]] = {
    names.OPERATION_DURATION: (
        names.SECONDS,
        "Model calls, with their retries.",
        names.SECONDS_BUCKETS,
    ),
    names.FIRST_CHUNK_DURATION: (
        names.SECONDS,
        "From a request to the first piece of a streamed answer.",
        names.FIRST_CHUNK_BUCKETS,
    ),
    names.TOKEN_USAGE: (
        names.TOKENS,
        "Tokens of a model call, as the provider counted them.",
        names.TOKENS_BUCKETS,
    ),
    names.AGENT_DURATION: (names.SECONDS, "Runs.", names.AGENT_SECONDS_BUCKETS),
    names.TOOL_DURATION: (
        names.SECONDS,
        "Tool calls, with their retries.",
        names.SECONDS_BUCKETS,
    ),
    names.AGENT_INFERENCE_CALLS: (
        names.INFERENCE_CALLS,
        "Model calls of a run, since it started or was gone on with.",
        names.COUNT_BUCKETS,
    ),
    names.AGENT_TOOL_CALLS: (
        names.TOOL_CALLS,
        "Tool calls of a run that ran, since it started or was gone on with.",
        names.COUNT_BUCKETS,
    ),
    names.ITERATIONS_METRIC: (
        names.ITERATIONS_UNIT,
        "Iterations of a run: model calls, each with its tool calls.",
        names.ITERATIONS_BUCKETS,
    ),
}
"""Histograms by name: the unit, what they count, the bounds of their buckets."""

COUNTERS: Mapping[str, tuple[str, str]] = {
    names.SUPPRESSED_CALLS: (
        names.TOOL_CALLS,
        "Tool calls that did not run, since they were answered before.",
    ),
    names.DEFERRED_CALLS: (
        names.TOOL_CALLS,
        "Tool calls that did not run yet; the model may ask again.",
    ),
    names.REFUSED_CALLS: (
        names.TOOL_CALLS,
        "Tool calls that did not run: a budget was spent, or the tool was out of order.",
    ),
    names.BREAKER_TRANSITIONS: (
        names.TRANSITIONS,
        "Changes of a circuit breaker that runs share.",
    ),
    names.USAGE_COST: (names.US_DOLLARS, "What model calls cost, as far as it is told."),
    names.MODEL_RETRIES: (names.RETRIES, "Tries to ask a model that failed."),
}
"""Counters by name: the unit, and what they count."""


class Instruments:
    """All instruments, and the values of their attributes that are known so far.

    Args:
        meter: makes them.
    """

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str) -> Histogram:
            unit, description, buckets = HISTOGRAMS[name]
            return meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=buckets
            )

        def counter(name: str) -> Counter:
            return meter.create_counter(name, *COUNTERS[name])

        self.model_names = Bounded()
        self.error_types = Bounded()
        self.agent_names = Bounded()
        self.operation = histogram(names.OPERATION_DURATION)
        self.first_chunk = histogram(names.FIRST_CHUNK_DURATION)
        self.tokens = histogram(names.TOKEN_USAGE)
        self.agent = histogram(names.AGENT_DURATION)
        self.tool = histogram(names.TOOL_DURATION)
        self.inference_calls = histogram(names.AGENT_INFERENCE_CALLS)
        self.tool_calls = histogram(names.AGENT_TOOL_CALLS)
        self.iterations = histogram(names.ITERATIONS_METRIC)
        self.suppressed = counter(names.SUPPRESSED_CALLS)
        self.deferred = counter(names.DEFERRED_CALLS)
        self.refused = counter(names.REFUSED_CALLS)
        self.transitions = counter(names.BREAKER_TRANSITIONS)
        self.cost = counter(names.USAGE_COST)
        self.retries = counter(names.MODEL_RETRIES)
        self.active: UpDownCounter = meter.create_up_down_counter(
            names.ACTIVE_RUNS, names.RUNS, "Runs that are under way."
        )

    def record_tokens(self, usage: Usage, labels: Labels, context: Context) -> None:
        """Count the tokens of one model call."""
        for kind, count in ((names.INPUT, usage.input_tokens), (names.OUTPUT, usage.output_tokens)):
            self.tokens.record(count, {**labels, names.TOKEN_TYPE: kind}, context)


def instruments_of(meters: Any) -> Instruments:
    """The instruments of a meter provider: made once, since to make them takes longer than a short run."""
    try:
        made = _MADE.get(meters)
        if made is None:
            made = _MADE[meters] = Instruments(meters.get_meter(*scope()))
    except TypeError:  # somebody's own provider, which no table can have as a key
        return Instruments(meters.get_meter(*scope()))
    return made


_MADE: WeakKeyDictionary[Any, Instruments] = WeakKeyDictionary()
