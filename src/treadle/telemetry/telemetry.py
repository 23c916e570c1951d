"""The telemetry of runs: middleware around their steps, or an observer of their events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from opentelemetry.context import get_current

from treadle.effects import Steps
from treadle.telemetry.handlers import handle_event
from treadle.telemetry.middleware import observe
from treadle.telemetry.run_telemetry import RunTelemetry
from treadle.telemetry.sinks import Sinks

R = TypeVar("R")


class ActiveTelemetry:
    """The telemetry of runs that report somewhere.

    Args:
        sinks: where they report to.
    """

    def __init__(self, sinks: Sinks) -> None:
        self._sinks = sinks

    def observer(self) -> Callable[[Any], None]:
        """Make an observer that reports a run from its events alone, for a run whose steps are replayed.

        Its spans are inside the span that is the current one now. The code of the run does not see them.
        """
        run = RunTelemetry(self._sinks, get_current())

        def observe(event: Any) -> None:
            handle_event(run, event)

        # Spans show no text of a response before it is complete.
        observe.discards_on_retry = True  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]
        return observe

    def middleware(self, steps: Steps[R]) -> Steps[R]:
        """Wrap the steps of a run so that it is reported; see `treadle.telemetry.middleware`."""
        return observe(steps, RunTelemetry(self._sinks))
