"""OpenTelemetry: spans, metrics and the completion event. The only package that imports ``opentelemetry``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.telemetry.configuration import Telemetry

if TYPE_CHECKING:
    from treadle.telemetry.telemetry import ActiveTelemetry


_GLOBAL = Telemetry()
"""The telemetry of the global providers."""


def active_telemetry(chosen: Telemetry | None = None) -> ActiveTelemetry | None:
    """Make the telemetry of a run; None if no provider has an SDK.

    ``opentelemetry`` is imported here, when the first run starts, so that ``import treadle`` stays fast.

    Args:
        chosen: the option of the loop; None takes the global providers.
    """
    from treadle.telemetry.sinks import Sinks  # noqa: PLC0415 - see above
    from treadle.telemetry.telemetry import ActiveTelemetry  # noqa: PLC0415

    sinks = Sinks.of(chosen or _GLOBAL)
    return None if sinks is None else ActiveTelemetry(sinks)


def no_telemetry() -> Telemetry:
    """The telemetry of a loop whose runs report nothing themselves."""
    from opentelemetry import _logs, metrics, trace  # noqa: PLC0415 - as above

    return Telemetry(
        tracer_provider=trace.NoOpTracerProvider(),
        meter_provider=metrics.NoOpMeterProvider(),
        logger_provider=_logs.NoOpLoggerProvider(),
    )


__all__ = ["Telemetry", "active_telemetry", "no_telemetry"]
