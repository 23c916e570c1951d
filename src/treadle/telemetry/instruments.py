"""The metrics of runs: one set of instruments per meter provider, with a bound on the values of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Meter, NoOpMeter, UpDownCounter

from treadle.telemetry import names

Labels: TypeAlias = dict[str, Any]
"""The attributes of a metric; they are called labels to distinguish them from the attributes of spans."""

MAX_VALUES = 100
"""Distinct values of one label per process; further values are recorded as ``_OTHER``. A time series lasts
as long as the process, and no deployment uses this many models or kinds of errors on purpose."""
MAX_TOOLS = 1_000
"""The same for names of tools: programs with hundreds of tools exist, and some make one for each user."""
MAX_CHARACTERS = 128
"""The length of one value."""


class LimitedValues:
    """Limits the distinct values of a label that comes from outside, such as the model name in a response.

    It is shared by threads without a lock: two that add a value at the same time may exceed the limit by one.

    Args:
        most: the number of values.
    """

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int = MAX_VALUES) -> None:
        self._most = most
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value if it is among the first ones, else ``_OTHER``."""
        seen = self._seen
        if value in seen:
            return value
        # Exporters fail at lone surrogates, which are not printable.
        is_valid = value.isprintable() and 0 < len(value) <= MAX_CHARACTERS
        if len(seen) >= self._most or not is_valid:
            return names.OTHER
        seen.add(value)
        return value


_S, _CALLS, _RUN = "s", "{tool_call}", "per run, since it was started or resumed."
_HISTOGRAMS: Mapping[str, tuple[str, str, tuple[float, ...]]] = {
    names.OPERATION_DURATION: (_S, "Model calls, including retries.", names.SECONDS_BUCKETS),
    names.FIRST_CHUNK_DURATION: (_S, "Time to the first chunk.", names.FIRST_CHUNK_BUCKETS),
    names.TOKEN_USAGE: ("{token}", "Tokens of model calls.", names.TOKENS_BUCKETS),
    names.AGENT_DURATION: (_S, "Runs.", names.AGENT_SECONDS_BUCKETS),
    names.TOOL_DURATION: (_S, "Tool calls, including retries.", names.SECONDS_BUCKETS),
    names.AGENT_INFERENCE_CALLS: ("{inference_call}", f"Model calls {_RUN}", names.COUNT_BUCKETS),
    names.AGENT_TOOL_CALLS: (_CALLS, f"Executed tool calls {_RUN}", names.COUNT_BUCKETS),
    names.ITERATIONS_METRIC: ("{iteration}", "Iterations per run.", names.ITERATIONS_BUCKETS),
}
"""By name: the unit, the description, the bucket boundaries."""
_COUNTERS: Mapping[str, tuple[str, str]] = {
    names.CALLS_NOT_RUN: (_CALLS, "Calls that did not run, by the reason."),
    names.COMPACTIONS: ("{compaction}", "Compactions of histories."),
    names.BREAKER_TRANSITIONS: ("{transition}", "State changes of shared circuit breakers."),
    names.USAGE_COST: ("{USD}", "Cost of model calls, where it is known."),
    names.MODEL_RETRIES: ("{retry}", "Failed attempts at model calls that were retried."),
}
"""By name: the unit, the description."""


class Instruments:
    """All instruments of a meter, and the label values that were recorded so far."""

    def __init__(self, meter: Meter) -> None:
        self.model_names = LimitedValues()
        self.error_types = LimitedValues()
        self.agent_names = LimitedValues()
        self.stop_reasons = LimitedValues()
        self.tool_names = LimitedValues(MAX_TOOLS)
        self._histograms = {
            name: meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=buckets
            )
            for name, (unit, description, buckets) in _HISTOGRAMS.items()
        }
        self._counters: dict[str, Counter | UpDownCounter] = {
            names.ACTIVE_RUNS: meter.create_up_down_counter(
                names.ACTIVE_RUNS, "{run}", "Active runs."
            ),
            **{name: meter.create_counter(name, *facts) for name, facts in _COUNTERS.items()},
        }

    def record(self, name: str, value: float, labels: Labels, context: Context) -> None:
        """Record a value of a histogram."""
        self._histograms[name].record(value, labels, context)

    def add(self, name: str, value: float, labels: Labels, context: Context | None = None) -> None:
        """Add a value to a counter."""
        self._counters[name].add(value, labels, context)


def instruments_of(provider: Any, scope: tuple[Any, ...]) -> Instruments:
    """Return the instruments of a meter provider; creating them takes longer than a short run."""
    try:
        if provider not in _CACHE:
            _CACHE[provider] = Instruments(provider.get_meter(*scope))
        return _CACHE[provider]
    except TypeError:  # a custom provider that is not hashable or not weakly referenceable
        return Instruments(provider.get_meter(*scope))


_CACHE: WeakKeyDictionary[Any, Instruments] = WeakKeyDictionary()
NO_INSTRUMENTS = Instruments(NoOpMeter(names.SCOPE))
"""Of a meter provider without an SDK: they record nothing."""
