"""Spans, the iterations histogram and the completion event, as a layer over a run's effects.

The layer reads the run's events as they pass by, and makes the spans of them; the calls of the model and of
tools are made within their spans, so that what they trace themselves has the right parent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry._logs import LogRecord, get_logger, get_logger_provider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from treadle.pipeline import Call, Effect, Emit, Steps, is_awaitable, layered
from treadle.telemetry import names
from treadle.types import (
    ChildEvent,
    IterationStarted,
    ModelFailed,
    ModelResponded,
    ModelRetried,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolStarted,
)

R = TypeVar("R")
Attributes = Mapping[str, Any]


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
        iterations: the histogram of iterations in a run.
        emit_logs: whether the completion event goes out as a log record too.
    """

    tracer: trace.Tracer
    iterations: metrics.Histogram
    emit_logs: bool

    @classmethod
    def active(cls, tracer_provider: Any = None, meter_provider: Any = None) -> Telemetry | None:
        """Make the telemetry of a run.

        Args:
            tracer_provider: an OpenTelemetry tracer provider; None is the global one.
            meter_provider: an OpenTelemetry meter provider; None is the global one.

        Returns:
            None where no provider has an SDK behind it, so that a run need not even make events.
        """
        tracers = tracer_provider or trace.get_tracer_provider()
        meters = meter_provider or metrics.get_meter_provider()
        emit_logs = has_sdk(get_logger_provider())
        if not (has_sdk(tracers) or has_sdk(meters) or emit_logs):
            return None
        histogram = meters.get_meter(names.SCOPE).create_histogram(
            names.ITERATIONS_METRIC,
            unit=names.ITERATIONS_UNIT,
            description="Iterations of a run: model calls, each with its tool calls.",
            explicit_bucket_boundaries_advisory=names.ITERATIONS_BUCKETS,
        )
        return cls(tracers.get_tracer(names.SCOPE), histogram, emit_logs)

    def layer(self, steps: Steps[R]) -> Steps[R]:
        """Wrap the steps of a run so that it is reported."""
        return layered(steps, _Reporter(self).see)


@dataclass(slots=True)
class _Reporter:
    """The spans of one run."""

    telemetry: Telemetry
    agent_name: str = ""
    agent: Span = trace.INVALID_SPAN
    chat: Span = trace.INVALID_SPAN
    tools: dict[str, Span] = field(default_factory=dict[str, Span])
    around: Span | None = None
    children: dict[str, _Reporter] = field(default_factory=dict[str, "_Reporter"])

    def see(self, effect: Effect) -> Effect:
        if isinstance(effect, Emit):
            self.tell(effect.event)
            return effect
        if isinstance(effect, Call):
            span = self.span_for(effect.label, effect.key)
            if span is not None:
                fn = _within(span, effect.fn)
                return Call(fn, *effect.args, mode=effect.mode, label=effect.label, key=effect.key)
        return effect

    def tell(self, event: Any) -> None:
        if isinstance(event, ChildEvent):
            self._child_of(event.call_id).tell(event.event)
            return
        tell = _TELLERS.get(event.__class__)
        if tell is not None:
            tell(self, event)

    def _child_of(self, call_id: str) -> _Reporter:
        """The reporter of the run that a call is made of; its spans are within that of the call."""
        child = self.children.get(call_id)
        if child is None:
            around = self.tools.get(call_id, self.agent)
            child = self.children[call_id] = _Reporter(self.telemetry, around=around)
        return child

    def span_for(self, label: str, key: str) -> Span | None:
        """The span within which a call is made; the calls of a child have its id before their own key."""
        for call_id, child in self.children.items():
            if key.startswith(f"{call_id}/"):
                return child.span_for(label, key.removeprefix(f"{call_id}/"))
        if label == "execute_tool":
            return self.tools.get(key)
        return self.chat if label in _OF_THE_MODEL else None

    def run_started(self, event: RunStarted) -> None:
        self.agent_name = event.agent_name
        name = f"{names.INVOKE_AGENT} {event.agent_name}".strip()
        attributes = {names.OPERATION_NAME: names.INVOKE_AGENT, names.RUN_ID: event.run_id}
        if event.agent_name:
            attributes[names.AGENT_NAME] = event.agent_name
        self.agent = self.telemetry.tracer.start_span(
            name,
            context=None if self.around is None else trace.set_span_in_context(self.around),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=_nanoseconds(event.at),
        )

    def _child(self, name: str, kind: SpanKind, attributes: Attributes, at: float) -> Span:
        return self.telemetry.tracer.start_span(
            name,
            context=trace.set_span_in_context(self.agent),
            kind=kind,
            attributes=attributes,
            start_time=_nanoseconds(at),
        )

    def iteration_started(self, event: IterationStarted) -> None:
        attributes = {names.OPERATION_NAME: names.CHAT, names.ITERATION: event.iteration}
        self.chat = self._child(names.CHAT, SpanKind.CLIENT, attributes, event.at)

    def model_retried(self, event: ModelRetried) -> None:
        attributes: dict[str, Any] = {
            names.ERROR_TYPE: event.error_type,
            names.RETRY_ATTEMPT: event.attempt,
        }
        self.chat.add_event(names.RETRY, attributes)

    def model_responded(self, event: ModelResponded) -> None:
        response, chat = event.response, self.chat
        if response.model is not None:
            chat.update_name(f"{names.CHAT} {response.model}")
            chat.set_attribute(names.RESPONSE_MODEL, response.model)
        if response.id is not None:
            chat.set_attribute(names.RESPONSE_ID, response.id)
        if response.finish_reason is not None:
            chat.set_attribute(names.FINISH_REASONS, [response.finish_reason])
        if response.usage is not None:
            chat.set_attribute(names.INPUT_TOKENS, response.usage.input_tokens)
            chat.set_attribute(names.OUTPUT_TOKENS, response.usage.output_tokens)
        self._end_chat(event.at)

    def model_failed(self, event: ModelFailed) -> None:
        _fail(self.chat, event.error_type)
        self._end_chat(event.at)

    def _end_chat(self, at: float) -> None:
        self.chat.end(_nanoseconds(at))
        self.chat = trace.INVALID_SPAN

    def tool_started(self, event: ToolStarted) -> None:
        attributes = {
            names.OPERATION_NAME: names.EXECUTE_TOOL,
            names.TOOL_NAME: event.call.name,
            names.TOOL_CALL_ID: event.call.id,
            names.TOOL_TYPE: "function",
            names.ITERATION: event.iteration,
        }
        name = f"{names.EXECUTE_TOOL} {event.call.name}"
        self.tools[event.call.id] = self._child(name, SpanKind.INTERNAL, attributes, event.at)

    def tool_finished(self, event: ToolFinished) -> None:
        span = self.tools.pop(event.call.id)
        self.children.pop(event.call.id, None)
        if event.result.is_error:
            status = event.result.status
            kind = status if status in {"timeout", "cancelled"} else "tool_error"
            _fail(span, kind)
        span.end(_nanoseconds(event.at))

    def run_finished(self, event: RunFinished) -> None:
        at = _nanoseconds(event.at)
        for span in (self.chat, *self.tools.values()):  # what a cancellation left open
            _fail(span, event.stop_reason)
            span.end(at)
        facts: dict[str, Any] = {
            names.TOTAL_ITERATIONS: event.total_iterations,
            names.TOOL_CALLS_COUNT: event.tool_calls_count,
            names.STOP_REASON: event.stop_reason,
        }
        self.agent.set_attributes(facts)
        self.agent.add_event(names.COMPLETE, facts, timestamp=at)
        if event.stop_reason not in _GOOD:
            _fail(self.agent, event.stop_reason)
        context = trace.set_span_in_context(self.agent)
        if self.telemetry.emit_logs:
            record = LogRecord(
                timestamp=at, context=context, event_name=names.COMPLETE, attributes=facts
            )
            get_logger(names.SCOPE).emit(record)
        labels = {names.STOP_REASON: event.stop_reason, names.AGENT_NAME: self.agent_name}
        self.telemetry.iterations.record(event.total_iterations, labels, context=context)
        self.agent.end(at)


_GOOD = frozenset({"answered", "output", "finished", "paused"})
_OF_THE_MODEL = frozenset({"chat", "chunk", "close"})
_TELLERS: Mapping[type, Callable[[_Reporter, Any], None]] = {
    RunStarted: _Reporter.run_started,
    IterationStarted: _Reporter.iteration_started,
    ModelRetried: _Reporter.model_retried,
    ModelResponded: _Reporter.model_responded,
    ModelFailed: _Reporter.model_failed,
    ToolStarted: _Reporter.tool_started,
    ToolFinished: _Reporter.tool_finished,
    RunFinished: _Reporter.run_finished,
}


def _fail(span: Span, error_type: str) -> None:
    """Mark a span as failed; by the kind of failure alone, since its text may hold what a user said."""
    span.set_attribute(names.ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR, error_type))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


def _within(span: Span, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run with a span as the current one, in whatever thread or task it is called."""

    def run(*args: Any) -> Any:
        token = otel_context.attach(trace.set_span_in_context(span))
        try:
            value = fn(*args)
        finally:
            otel_context.detach(token)
        return later(value) if is_awaitable(value) else value

    async def later(value: Any) -> Any:
        token = otel_context.attach(trace.set_span_in_context(span))
        try:
            return await value
        finally:
            otel_context.detach(token)

    return run
