"""OpenTelemetry: spans, metrics and the completion event. The only package that imports ``opentelemetry``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.telemetry.telemetry import Telemetry


def active_telemetry(*providers: Any, **options: Any) -> Telemetry | None:
    """Make the telemetry of a run; see `treadle.telemetry.telemetry.Telemetry.active`.

    ``opentelemetry`` is imported here, when the first run starts, so that ``import treadle`` stays fast.
    """
    from treadle.telemetry.telemetry import Telemetry  # noqa: PLC0415 - see above

    return Telemetry.active(*providers, **options)


def no_telemetry() -> dict[str, Any]:
    """The options of a loop whose runs report nothing themselves."""
    from opentelemetry import _logs, metrics, trace  # noqa: PLC0415 - as above

    return {
        "tracer_provider": trace.NoOpTracerProvider(),
        "meter_provider": metrics.NoOpMeterProvider(),
        "logger_provider": _logs.NoOpLoggerProvider(),
    }


__all__ = ["active_telemetry", "no_telemetry"]
