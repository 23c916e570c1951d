"""Where a run reports to: its tracer, its instruments and its logger, from providers or the global ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry._logs import Logger, LogRecord, SeverityNumber, get_logger_provider
from opentelemetry.context import Context

from treadle.telemetry import content, names
from treadle.telemetry.configuration import Telemetry
from treadle.telemetry.instruments import NO_INSTRUMENTS, Instruments, instruments_of
from treadle.telemetry.spans import nanoseconds


@functools.cache
def scope() -> tuple[str, str | None, str]:
    """Return the name, version and schema URL of treadle's instrumentation scope.

    The version is None if treadle is not installed as a package.
    """
    try:
        found = version(names.SCOPE)
    except PackageNotFoundError:
        found = None
    return names.SCOPE, found, names.SCHEMA_URL


def _has_sdk(provider: object) -> bool:
    """Whether a provider does anything: those of the API itself are placeholders."""
    apis = ("opentelemetry.trace", "opentelemetry.metrics", "opentelemetry._")
    return not type(provider).__module__.startswith(apis)


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where a run reports to.

    Args:
        tracer: creates spans.
        instruments: record metrics.
        logger: receives the completion event; None if the logger provider has no SDK.
        captures: whether spans have content.
        has_chats: whether model calls have spans and metrics.
    """

    tracer: trace.Tracer
    instruments: Instruments
    logger: Logger | None = None
    captures: bool = False
    has_chats: bool = True

    @classmethod
    def of(cls, chosen: Telemetry) -> Sinks | None:
        """Find the sinks of the chosen providers, or of the global ones.

        Returns:
            None if no provider has an SDK, so that the run does not even create events.
        """
        tracers = chosen.tracer_provider or trace.get_tracer_provider()
        meters = chosen.meter_provider or metrics.get_meter_provider()
        loggers = chosen.logger_provider or get_logger_provider()
        has_meters, has_loggers = _has_sdk(meters), _has_sdk(loggers)
        if not (_has_sdk(tracers) or has_meters or has_loggers):
            return None
        return cls(
            tracers.get_tracer(*scope()),
            instruments_of(meters, scope()) if has_meters else NO_INSTRUMENTS,
            loggers.get_logger(*scope()) if has_loggers else None,
            content.captures_content(chosen.capture_content),
            chosen.model_calls,
        )

    def log_completion(self, context: Context, facts: Mapping[str, Any], at: float) -> None:
        """Emit the completion event as a log record in the context of the run's span."""
        if self.logger is not None:
            self.logger.emit(
                LogRecord(
                    timestamp=nanoseconds(at),
                    context=context,
                    severity_number=SeverityNumber.INFO,
                    body=names.COMPLETE,
                    event_name=names.COMPLETE,
                    attributes=facts,
                )
            )
