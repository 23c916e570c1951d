"""The telemetry of one run: its open spans, its labels, its counts, and the subagents in its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind

from treadle import labels
from treadle.events import RunStarted
from treadle.telemetry import names, spans
from treadle.telemetry.instruments import Labels
from treadle.telemetry.sinks import Sinks


class OpenSpan(NamedTuple):
    """A span that has not ended.

    Args:
        span: the span.
        context: the context in which it is the current span.
        at: its start, in seconds since the epoch.
        metric, labels: the name and the labels of its duration metric.
        is_step: whether it is a step of a recipe, and not a call of the model.
    """

    span: Span
    context: Context
    at: float
    metric: str
    labels: Labels
    is_step: bool = False


@dataclass(slots=True, eq=False)
class RunTelemetry:
    """The state of the telemetry of one run; the handlers of events update it.

    Args:
        sinks: where it is reported.
        parent: the context of the call that the run is; None if the run is not a subagent.
        prefix: what the keys of the run's calls start with, as seen from the outermost run.

    Attributes:
        started: the first event of the run; None before it, and after the end of the run.
        agent, chat, tools: the open spans; those of tool calls by call id.
        subagents: the runs in calls, by call id.
        labels: the labels of all metrics of the run; ``model_labels`` those of its requests.
        request: the attributes with which the span of each request starts.
        model_calls, tool_calls: their counts since the run was started or resumed.
        clock: the time of the latest event that has one, in seconds since the epoch. The driver's clock may differ
            from the system's, so events without a time happen at this one: within their span.
    """

    sinks: Sinks
    parent: Context | None = None
    prefix: str = ""
    started: RunStarted | None = None
    agent: OpenSpan | None = None
    chat: OpenSpan | None = None
    tools: dict[str, OpenSpan] = field(default_factory=dict[str, OpenSpan])
    subagents: dict[str, RunTelemetry] = field(default_factory=dict[str, "RunTelemetry"])
    labels: Labels = field(default_factory=dict[str, Any])
    model_labels: Labels = field(default_factory=dict[str, Any])
    request: dict[str, Any] = field(default_factory=dict[str, Any])
    model_calls: int = 0
    tool_calls: int = 0
    clock: float = 0.0

    def subagent(self, call_id: str) -> RunTelemetry:
        """Return the telemetry of the run in a call; its spans are children of the call's span."""
        subagent = self.subagents.get(call_id)
        if subagent is None:
            call = self.tools.get(call_id, self.agent)
            parent = self.parent if call is None else call.context
            prefix = f"{self.prefix}{call_id}/"
            subagent = self.subagents[call_id] = RunTelemetry(self.sinks, parent, prefix)
        return subagent

    def context_for(self, label: str, key: str) -> Context | None:
        """Return the context in which a call of this run is made; None if it is not to be changed."""
        if label in labels.OF_THE_LOOP:
            return None
        span = self.agent
        if label == labels.EXECUTE_TOOL:
            span = self.tools.get(key.removeprefix(self.prefix), span)
        elif label == labels.CHAT:
            span = self.chat or span
        return None if span is None else span.context

    def open(
        self,
        name: str,
        attributes: Mapping[str, Any],
        at: float,
        labels: Labels,
        metric: str,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: OpenSpan | None = None,
        links: Sequence[Link] = (),
    ) -> OpenSpan:
        """Start a span; see `OpenSpan`. ``parent`` is the call that it is a step of; None is the run."""
        outer = parent or self.agent
        context = self.parent if outer is None else outer.context
        span = self.sinks.tracer.start_span(
            name, context, kind, attributes, links, spans.nanoseconds(at)
        )
        context = trace.set_span_in_context(span, context)
        return OpenSpan(span, context, at, metric, labels, parent is not None)

    def close(
        self, span: OpenSpan, at: float, more: Mapping[str, Any], duration: float | None = None
    ) -> None:
        """End a span, and record its duration with more labels; None is the time since its start."""
        at = max(at, span.at)  # a resumed run may report the time of an earlier process
        seconds = at - span.at if duration is None else duration
        meters = self.sinks.instruments
        try:
            meters.record(span.metric, seconds, {**span.labels, **more}, span.context)
        finally:
            span.span.end(spans.nanoseconds(at))

    def add_event(self, name: str, facts: Mapping[str, Any], at: float | None = None) -> None:
        """Add an event to the span of the run; see `spans.add_event`."""
        if self.agent is not None:
            spans.add_event(self.agent.span, name, facts, self.clock if at is None else at)

    def start(self, event: RunStarted) -> None:
        """Start the span of the run, and set the labels of all its metrics."""
        # A retried call starts a new run, and the first may have had no last event.
        self.abandon(event.at)
        self.model_calls = self.tool_calls = 0
        self.started, state = event, event.state
        self.labels, self.model_labels = self._labels_of(event)
        self.request = spans.request_attributes(event)
        self.agent = self.open(
            f"{names.INVOKE_AGENT} {spans.clean(event.agent_name)}".strip(),
            spans.run_attributes(event),
            event.at,
            self.labels,
            names.AGENT_DURATION,
            links=spans.links_to(None if state is None else state.traceparent),
        )
        if state is not None:
            state.traceparent = spans.traceparent_of(self.agent.span) or state.traceparent
        meters = self.sinks.instruments
        meters.add(names.ACTIVE_RUNS, 1, self.labels, self.agent.context)

    def end(self, at: float, facts: Mapping[str, Any], *, is_good: bool) -> None:
        """End all open spans, emit the completion event with its facts, and record the metrics of the run."""
        agent, started = self.agent, self.started
        if agent is None or started is None:
            return
        for subagent in self.subagents.values():
            subagent.abandon(at)
        self.subagents.clear()
        reason = facts[names.STOP_REASON]
        # Of a class that the program derives, the reason is any text.
        limited = self.sinks.instruments.stop_reasons(reason)
        self._end_calls(at, limited)
        self.agent = self.started = None
        agent.span.set_attributes(facts)
        agent.span.add_event(names.COMPLETE, facts, spans.nanoseconds(at))
        if not is_good:
            spans.fail(agent.span, reason)
        labels = {names.STOP_REASON: limited} | ({} if is_good else {names.ERROR_TYPE: limited})
        try:
            # The log record may be the only thing that is exported, so it identifies its run.
            identity = {names.RUN_ID: spans.clean(started.run_id)}
            if started.agent_name:
                identity[names.AGENT_NAME] = spans.clean(started.agent_name)
            self.sinks.log_completion(agent.context, {**identity, **facts}, at)
            self._measure(agent.context, facts, limited)
        finally:
            self.close(agent, at, labels)

    def abandon(self, at: float) -> None:
        """End the run, if it has not ended: its generator was closed, and there will be no last event."""
        facts = {
            names.TOTAL_ITERATIONS: self.model_calls,
            names.TOOL_CALLS_COUNT: self.tool_calls,
            names.STOP_REASON: names.ABANDONED,
        }
        self.end(at, facts, is_good=False)

    def tool_labels(self, name: str) -> Labels:
        """Return the labels of the metrics of a tool. A tool that only the model named is ``_OTHER``."""
        is_known = self.started is not None and name in self.started.available
        limited = self.sinks.instruments.tool_names
        return {**self.labels, names.TOOL_NAME: limited(name) if is_known else names.OTHER}

    def _labels_of(self, event: RunStarted) -> tuple[Labels, Labels]:
        """The labels of all metrics of the run, and those of its requests."""
        meters = self.sinks.instruments
        run = {names.AGENT_NAME: meters.agent_names(event.agent_name)} if event.agent_name else {}
        model = {names.PROVIDER_NAME: event.provider, names.REQUEST_MODEL: event.model}
        return run, run | {
            key: meters.model_names(spans.clean(value))
            for key, value in model.items()
            if value is not None
        }

    def _end_calls(self, at: float, reason: str) -> None:
        """End the spans of calls that a cancellation left open, and record their durations."""
        chat, tools = self.chat, list(self.tools.values())
        self.chat = None
        self.tools.clear()
        self.tool_calls += sum(not tool.is_step for tool in tools)
        for call in (chat, *tools):
            if call is not None:
                spans.fail(call.span, reason)
                self.close(call, at, {names.ERROR_TYPE: reason})

    def _measure(self, context: Context, facts: Mapping[str, Any], stop_reason: str) -> None:
        meters, labels = self.sinks.instruments, self.labels
        reason = {names.STOP_REASON: stop_reason}
        iterations = facts[names.TOTAL_ITERATIONS]
        meters.record(names.ITERATIONS_METRIC, iterations, {**labels, **reason}, context)
        meters.record(names.AGENT_INFERENCE_CALLS, self.model_calls, labels, context)
        meters.record(names.AGENT_TOOL_CALLS, self.tool_calls, labels, context)
        meters.add(names.ACTIVE_RUNS, -1, labels, context)
