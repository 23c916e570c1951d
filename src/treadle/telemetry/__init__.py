"""OpenTelemetry: spans, metrics, the completion event. Nothing else imports it, and this only in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.telemetry.telemetry import Telemetry


def active_telemetry(*providers: Any, **options: Any) -> Telemetry | None:
    """Make the telemetry of a run; see `treadle.telemetry.telemetry.Telemetry.active`.

    The import waits for the first run: it is no small part of what ``import treadle`` would take.
    """
    from treadle.telemetry.telemetry import Telemetry  # noqa: PLC0415 - as said above

    return Telemetry.active(*providers, **options)


__all__ = ["active_telemetry"]
