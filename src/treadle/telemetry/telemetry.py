"""OpenTelemetry for a run: what it reports to, and the layer over its effects that does so.

The layer reads the run's events as they pass by, and makes spans and metrics of them. The calls of the model
and of tools are made within their spans, and the stages within that of the run, so that what they trace
themselves has the right parent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from opentelemetry import metrics, trace
from opentelemetry._logs import Logger, LogRecord, SeverityNumber, get_logger_provider
from opentelemetry.context import Context, attach, detach

from treadle.effects import NOW, Bounded, Call, Effect, Emit, Parallel, Steps
from treadle.events import RunStarted, SubagentEvent
from treadle.telemetry import content, names
from treadle.telemetry.instruments import Instruments, instruments_of
from treadle.telemetry.report import RunReport
from treadle.telemetry.scope import scope
from treadle.telemetry.spans import within
from treadle.telemetry.telling import tell

R = TypeVar("R")

log = logging.getLogger("treadle.telemetry")


def has_sdk(provider: object) -> bool:
    """Whether a provider does anything: the API's own are placeholders."""
    module = type(provider).__module__
    return not module.startswith(
        ("opentelemetry.trace", "opentelemetry.metrics", "opentelemetry._")
    )


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What a run reports to.

    Args:
        tracer: makes spans.
        instruments: make metrics; None where nobody takes them.
        logger: takes the completion event; None where nobody does.
        captures: whether spans have what models, tools and users say.
        has_chats: whether the calls of the model are reported, as spans and as metrics.
    """

    tracer: trace.Tracer
    instruments: Instruments | None
    logger: Logger | None = None
    captures: bool = False
    has_chats: bool = True

    @classmethod
    def active(
        cls,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        logger_provider: Any = None,
        *,
        capture_content: bool | None = None,
        chat_telemetry: bool = True,
    ) -> Telemetry | None:
        """Make the telemetry of a run.

        Args:
            tracer_provider: an OpenTelemetry tracer provider; None is the global one.
            meter_provider: an OpenTelemetry meter provider; None is the global one.
            logger_provider: an OpenTelemetry logger provider; None is the global one.
            capture_content: whether spans have what models, tools and users say; None asks the environment.
            chat_telemetry: whether the calls of the model are reported.

        Returns:
            None where no provider has an SDK behind it, so that a run need not even make events.
        """
        tracers = tracer_provider or trace.get_tracer_provider()
        meters = meter_provider or metrics.get_meter_provider()
        loggers = logger_provider or get_logger_provider()
        measures, logs = has_sdk(meters), has_sdk(loggers)
        if not (has_sdk(tracers) or measures or logs):
            return None
        return cls(
            tracers.get_tracer(*scope()),
            instruments_of(meters) if measures else None,
            loggers.get_logger(*scope()) if logs else None,
            content.is_asked_for(capture_content),
            chat_telemetry,
        )

    def log_completion(self, context: Context, facts: Mapping[str, Any], at: int) -> None:
        """Tell that a run is complete, as a log record; ``at`` is in nanoseconds since the epoch."""
        if self.logger is not None:
            self.logger.emit(
                LogRecord(
                    timestamp=at,
                    context=context,
                    severity_number=SeverityNumber.INFO,
                    body=names.COMPLETE,
                    event_name=names.COMPLETE,
                    attributes=facts,
                )
            )

    def middleware(self, steps: Steps[R]) -> Steps[R]:
        """Wrap the steps of a run so that it is reported, whatever its end."""
        report = RunReport(self)
        try:
            return (yield from _reported(steps, report, [report]))
        finally:
            _safely(report.abandon)  # where its end was told, there is nothing left to end


def _reported(steps: Steps[R], root: RunReport, runs: list[RunReport]) -> Steps[R]:
    """Advance steps in the context of the run that they are of, and see to each of their effects.

    Args:
        steps: a generator of effects that has not been started.
        root: of the outermost run, which all events are told from.
        runs: those that the steps are of, each within the one before; kept up to date.
    """
    advance: Any = steps.send
    given: Any = None
    try:
        while True:
            run = runs[-1] if len(runs) == 1 else _innermost(runs)
            if run.agent is None:
                effect = advance(given)
            else:
                # It is synchronous from here to there: nobody's code between effects finds it current.
                token = attach(run.agent.context)
                try:
                    effect = advance(given)
                finally:
                    detach(token)
            if isinstance(effect, Emit):
                _safely(tell, root, effect.event)
                if effect.event.__class__ in _STARTING:
                    _follow(root, effect.event, runs)
            elif effect is not NOW:
                effect = _seen(effect, root, runs)
            try:
                given = yield effect
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as raised:  # noqa: BLE001 - whatever it is, it is the inner steps'
                advance, given = steps.throw, raised
            else:
                advance = steps.send
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        del given  # an exception leads to this frame, and would keep it alive


def _safely(report: Callable[..., Any], *args: Any) -> None:
    """Report something; where somebody's exporter or processor raises, the run goes on all the same."""
    try:
        report(*args)
    except Exception:
        log.exception("telemetry failed; the run goes on")


_STARTING = frozenset({RunStarted, SubagentEvent})
"""Events with which steps may come to be those of a run within a call."""


def _innermost(runs: list[RunReport]) -> RunReport:
    """The run that steps are of now: a run within a call only until its end."""
    while len(runs) > 1 and runs[-1].agent is None:
        runs.pop()
    return runs[-1]


def _follow(report: RunReport, event: Any, runs: list[RunReport]) -> None:
    """Keep in mind that steps are those of a run within a call, from its start on."""
    while isinstance(event, SubagentEvent):
        report, event = report.child_of(event.call_id), event.event
    if isinstance(event, RunStarted) and report is not runs[-1]:
        runs.append(report)


def _seen(effect: Effect, root: RunReport, runs: list[RunReport]) -> Effect:
    """The effect to perform in the place of one: a call within its span, steps that are reported, too."""
    run = _innermost(runs)
    if isinstance(effect, Call):
        place = run.context_for(effect.label, effect.key)
        if place is None:
            return effect
        fn = within(place, effect.fn)
        return Call(fn, *effect.args, mode=effect.mode, label=effect.label, key=effect.key)
    if isinstance(effect, Parallel):
        # What is alone goes on where these steps stand, and a run may begin or end in it.
        is_one = len(effect.steps) == 1
        inner = [_reported(steps, root, runs if is_one else [run]) for steps in effect.steps]
        return Parallel(inner, effect.limit)
    if isinstance(effect, Bounded):
        inner_steps = _reported(effect.steps, root, [run])
        return Bounded(inner_steps, seconds=effect.seconds, until=effect.until)
    return effect
