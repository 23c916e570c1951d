"""The metrics of runs: one set of instruments for each meter provider, and what is recorded with them."""

from __future__ import annotations

from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter, UpDownCounter

from treadle.telemetry import names
from treadle.telemetry.bounded import Bounded
from treadle.telemetry.scope import scope
from treadle.types import Usage

Labels: TypeAlias = dict[str, Any]


class Instruments:
    """All instruments, and the values of their attributes that are known so far.

    Args:
        meter: makes them.
    """

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
            return _histogram(meter, name, names.SECONDS, description, buckets)

        self.model_names = Bounded()
        self.error_types = Bounded()
        self.agent_names = Bounded()
        self.operation = seconds(
            names.OPERATION_DURATION, "Model calls, with their retries.", names.SECONDS_BUCKETS
        )
        self.first_chunk = seconds(
            names.FIRST_CHUNK_DURATION,
            "From a request to the first piece of a streamed answer.",
            names.FIRST_CHUNK_BUCKETS,
        )
        self.tokens = _histogram(
            meter,
            names.TOKEN_USAGE,
            names.TOKENS,
            "Tokens of a model call, as the provider counted them.",
            names.TOKENS_BUCKETS,
        )
        self.agent = seconds(names.AGENT_DURATION, "Runs.", names.AGENT_SECONDS_BUCKETS)
        self.tool = seconds(
            names.TOOL_DURATION, "Tool calls, with their retries.", names.SECONDS_BUCKETS
        )
        self.inference_calls = _histogram(
            meter,
            names.AGENT_INFERENCE_CALLS,
            names.INFERENCE_CALLS,
            "Model calls of a run, since it started or was gone on with.",
            names.COUNT_BUCKETS,
        )
        self.tool_calls = _histogram(
            meter,
            names.AGENT_TOOL_CALLS,
            names.TOOL_CALLS,
            "Tool calls of a run that ran, since it started or was gone on with.",
            names.COUNT_BUCKETS,
        )
        self.iterations = _histogram(
            meter,
            names.ITERATIONS_METRIC,
            names.ITERATIONS_UNIT,
            "Iterations of a run: model calls, each with its tool calls.",
            names.ITERATIONS_BUCKETS,
        )
        self.active: UpDownCounter = meter.create_up_down_counter(
            names.ACTIVE_RUNS, names.RUNS, "Runs that are under way."
        )
        self.suppressed = _counter(
            meter,
            names.SUPPRESSED_CALLS,
            names.TOOL_CALLS,
            "Tool calls that did not run, since they were answered before.",
        )
        self.deferred = _counter(
            meter,
            names.DEFERRED_CALLS,
            names.TOOL_CALLS,
            "Tool calls that did not run yet; the model may ask again.",
        )
        self.refused = _counter(
            meter,
            names.REFUSED_CALLS,
            names.TOOL_CALLS,
            "Tool calls that did not run: a budget was spent, or the tool was out of order.",
        )
        self.transitions = _counter(
            meter,
            names.BREAKER_TRANSITIONS,
            names.TRANSITIONS,
            "Changes of a circuit breaker that runs share.",
        )
        self.cost = _counter(
            meter,
            names.USAGE_COST,
            names.US_DOLLARS,
            "What model calls cost, as far as it is told.",
        )
        self.retries = _counter(
            meter, names.MODEL_RETRIES, names.RETRIES, "Tries to ask a model that failed."
        )

    def record_tokens(self, usage: Usage, labels: Labels, context: Context) -> None:
        """Count the tokens of one model call."""
        for kind, count in ((names.INPUT, usage.input_tokens), (names.OUTPUT, usage.output_tokens)):
            self.tokens.record(count, {**labels, names.TOKEN_TYPE: kind}, context)


def _histogram(
    meter: Meter, name: str, unit: str, description: str, buckets: tuple[float, ...]
) -> Histogram:
    return meter.create_histogram(
        name, unit, description, explicit_bucket_boundaries_advisory=buckets
    )


def _counter(meter: Meter, name: str, unit: str, description: str) -> Counter:
    return meter.create_counter(name, unit, description)


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
