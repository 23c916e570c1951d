"""The option ``telemetry`` of a loop."""

from __future__ import annotations

from typing import Any

from treadle.checks import FLAG, ValueCheck, check_fields, checked, methods
from treadle.fast_dataclass import fast_dataclass_kw


@fast_dataclass_kw
class Telemetry:
    """What is reported to OpenTelemetry, and where: ``Loop(telemetry=Telemetry(capture_content=True))``.

    Raises:
        OptionError: a value that a field does not accept.
    """

    tracer_provider: Any = checked(None, methods("a TracerProvider", "get_tracer"))
    """Creates the spans; None means the global one."""
    meter_provider: Any = checked(None, methods("a MeterProvider", "get_meter"))
    """Records the metrics; None means the global one."""
    logger_provider: Any = checked(None, methods("a LoggerProvider", "get_logger"))
    """Emits the completion event; None means the global one."""
    capture_content: bool | None = checked(None, ValueCheck(FLAG.accepts, "True, False or None"))
    """Whether spans have messages, arguments and results; None uses the environment variable
    ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, which is off by default."""
    model_calls: bool = checked(True, FLAG)
    """Whether model calls are reported as spans and metrics; set it to False if the model's SDK is instrumented
    and reports them itself."""

    def __post_init__(self) -> None:
        check_fields(self)
