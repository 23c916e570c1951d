"""The metrics of runs: one set of instruments per meter provider, with a bound on the values of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter

from treadle.messages import Usage
from treadle.telemetry import names

Labels: TypeAlias = dict[str, Any]
"""The attributes of a metric; they are called labels to distinguish them from the attributes of spans."""

MAX_VALUES = 100
"""Distinct values of one label per process; further values are recorded as ``_OTHER``. A time series lasts
as long as the process, and no deployment uses this many models or kinds of errors on purpose."""
MAX_CHARACTERS = 128
"""The length of one value."""


class LimitedValues:
    """Limits the distinct values of a label that comes from outside, such as the model name in a response.

    It is shared by threads without a lock: two that add a value at the same time may exceed the limit by one.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value if it is among the first `MAX_VALUES`, else ``_OTHER``."""
        seen = self._seen
        if value in seen:
            return value
        # Exporters fail at lone surrogates, which are not printable.
        is_valid = value.isprintable() and 0 < len(value) <= MAX_CHARACTERS
        if len(seen) >= MAX_VALUES or not is_valid:
            return names.OTHER
        seen.add(value)
        return value


_S, _CALLS = names.SECONDS, names.TOOL_CALLS
HISTOGRAMS: Mapping[str, tuple[str, str, tuple[float, ...]]] = {
    names.OPERATION_DURATION: (_S, "Model calls, including retries.", names.SECONDS_BUCKETS),
    names.FIRST_CHUNK_DURATION: (_S, "Time to the first chunk.", names.FIRST_CHUNK_BUCKETS),
    names.TOKEN_USAGE: (names.TOKENS, "Tokens of model calls.", names.TOKENS_BUCKETS),
    names.AGENT_DURATION: (_S, "Runs.", names.AGENT_SECONDS_BUCKETS),
    names.TOOL_DURATION: (_S, "Tool calls, including retries.", names.SECONDS_BUCKETS),
    names.AGENT_INFERENCE_CALLS: (
        names.INFERENCE_CALLS,
        "Model calls per run, since it was started or resumed.",
        names.COUNT_BUCKETS,
    ),
    names.AGENT_TOOL_CALLS: (
        _CALLS,
        "Executed tool calls per run, since it was started or resumed.",
        names.COUNT_BUCKETS,
    ),
    names.ITERATIONS_METRIC: (
        names.ITERATIONS_UNIT,
        "Iterations per run.",
        names.ITERATIONS_BUCKETS,
    ),
}
"""Histograms by name: the unit, the description, the bucket boundaries."""

COUNTERS: Mapping[str, tuple[str, str]] = {
    names.SUPPRESSED_CALLS: (_CALLS, "Calls that did not run: they repeat an earlier call."),
    names.DEFERRED_CALLS: (_CALLS, "Calls that did not run yet; the model may request them again."),
    names.REFUSED_CALLS: (_CALLS, "Calls that did not run: a limit, or an open circuit breaker."),
    names.BREAKER_TRANSITIONS: (names.TRANSITIONS, "State changes of shared circuit breakers."),
    names.USAGE_COST: (names.US_DOLLARS, "Cost of model calls, where it is known."),
    names.MODEL_RETRIES: (names.RETRIES, "Failed attempts at model calls that were retried."),
}
"""Counters by name: the unit, the description."""


class Instruments:
    """All instruments of a meter, and the label values that were recorded so far."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str) -> Histogram:
            unit, description, buckets = HISTOGRAMS[name]
            return meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=buckets
            )

        def counter(name: str) -> Counter:
            return meter.create_counter(name, *COUNTERS[name])

        self.model_names = LimitedValues()
        self.error_types = LimitedValues()
        self.agent_names = LimitedValues()
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
        self.active = meter.create_up_down_counter(names.ACTIVE_RUNS, names.RUNS, "Active runs.")

    def record_tokens(self, usage: Usage, labels: Labels, context: Context) -> None:
        """Record the tokens of one model call."""
        for kind, count in ((names.INPUT, usage.input_tokens), (names.OUTPUT, usage.output_tokens)):
            self.tokens.record(count, {**labels, names.TOKEN_TYPE: kind}, context)


def instruments_of(provider: Any, scope: tuple[Any, ...]) -> Instruments:
    """Return the instruments of a meter provider; creating them takes longer than a short run.

    Args:
        provider: an OpenTelemetry meter provider.
        scope: the name, version and schema URL of the instrumentation scope.
    """
    try:
        instruments = _CACHE.get(provider)
        if instruments is None:
            instruments = _CACHE[provider] = Instruments(provider.get_meter(*scope))
    except TypeError:  # a custom provider that is not hashable or not weakly referenceable
        return Instruments(provider.get_meter(*scope))
    return instruments


_CACHE: WeakKeyDictionary[Any, Instruments] = WeakKeyDictionary()
