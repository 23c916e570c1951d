"""The telemetry of one run: its open spans, its labels, its counts, and the subagents in its calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind

from treadle import labels
from treadle.events import RunStarted
from treadle.telemetry import names, spans
from treadle.telemetry.instruments import Labels

if TYPE_CHECKING:
    from treadle.telemetry.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """What all calls of a tool share.

    Args:
        span_name: the name of the span of a call.
        attributes: the attributes of that span.
        labels: the labels of the metrics of a call.
    """

    span_name: str
    attributes: Mapping[str, Any]
    labels: Labels


class OpenSpan(NamedTuple):
    """A span that has not ended.

    Args:
        span: the span.
        context: the context in which it is the current span.
        at: its start, in seconds since the epoch.
        labels: the labels of its duration metric.
        is_step: whether it is a step of a recipe, and not a call of the model.
    """

    span: Span
    context: Context
    at: float
    labels: Labels
    is_step: bool = False


@dataclass(slots=True, eq=False)
class RunTelemetry:
    """The state of the telemetry of one run; the handlers of events update it.

    Args:
        telemetry: where it is reported.
        parent: the context of the call that the run is; None if the run is not a subagent.
        prefix: what the keys of the run's calls start with, as seen from the outermost run.

    Attributes:
        started: the first event of the run; None before it, and after the end of the run.
        agent, chat, tools: the open spans; those of tool calls by call id.
        subagents: the runs in calls, by call id.
        labels: the labels of all metrics of the run; ``model_labels`` those of its requests.
        request: the attributes with which the span of each request starts.
        tool_info: what all calls of a tool share, by its name; None is any unknown tool.
        attempt_started: the start of the latest attempt at a request, in seconds since the epoch.
        first_chunk: seconds from there to the first chunk; None if there was none.
        model_calls, tool_calls: their counts since the run was started or resumed.
    """

    telemetry: Telemetry
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
    tool_info: dict[str | None, ToolInfo] = field(default_factory=dict["str | None", ToolInfo])
    attempt_started: float = 0.0
    first_chunk: float | None = None
    model_calls: int = 0
    tool_calls: int = 0

    def subagent(self, call_id: str) -> RunTelemetry:
        """Return the telemetry of the run in a call; its spans are children of the call's span."""
        subagent = self.subagents.get(call_id)
        if subagent is None:
            call = self.tools.get(call_id, self.agent)
            parent = self.parent if call is None else call.context
            prefix = f"{self.prefix}{call_id}/"
            subagent = self.subagents[call_id] = RunTelemetry(self.telemetry, parent, prefix)
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
        kind: SpanKind,
        attributes: Mapping[str, Any],
        at: float,
        labels: Labels,
        *,
        parent: OpenSpan | None = None,
    ) -> OpenSpan:
        """Start a span.

        Args:
            name: its name.
            kind: its kind.
            attributes: its first attributes.
            at: its start, in seconds since the epoch.
            labels: the labels of its duration metric.
            parent: the call that it is a step of; None is the run.
        """
        outer = parent or self.agent
        context = self.parent if outer is None else outer.context
        span = self.telemetry.tracer.start_span(
            name, context, kind, attributes=attributes, start_time=spans.nanoseconds(at)
        )
        context = trace.set_span_in_context(span, context)
        return OpenSpan(span, context, at, labels, parent is not None)

    def add_event(self, name: str, facts: Mapping[str, Any], at: float | None = None) -> None:
        """Add an event to the span of the run; see `spans.add_event`."""
        if self.agent is not None:
            spans.add_event(self.agent.span, name, facts, at)

    def start(self, event: RunStarted) -> None:
        """Start the span of the run, and set the labels of all its metrics."""
        self.abandon()  # a retried call starts a new run, and the first may have had no last event
        self.model_calls = self.tool_calls = 0
        self.started, state = event, event.state
        self.labels, self.model_labels = self._labels_of(event)
        self.request = spans.request_attributes(event)
        span = self.telemetry.tracer.start_span(
            f"{names.INVOKE_AGENT} {spans.clean(event.agent_name)}".strip(),
            context=self.parent,
            kind=SpanKind.INTERNAL,
            attributes=spans.run_attributes(event),
            links=spans.links_to(None if state is None else state.traceparent),
            start_time=spans.nanoseconds(event.at),
        )
        context = trace.set_span_in_context(span, self.parent)
        self.agent = OpenSpan(span, context, event.at, self.labels)
        if state is not None:
            state.traceparent = spans.traceparent_of(span) or state.traceparent
        if self.telemetry.instruments is not None:
            self.telemetry.instruments.active.add(1, self.labels, context)

    def end(self, at: float, facts: Mapping[str, Any], *, is_good: bool) -> None:
        """End all open spans, emit the completion event, and record the metrics of the run.

        Args:
            at: the end of the run, in seconds since the epoch.
            facts: its iterations, its tool calls and its stop reason.
            is_good: whether the run did not fail.
        """
        agent, started = self.agent, self.started
        if agent is None or started is None:
            return
        for subagent in self.subagents.values():
            subagent.abandon()
        self.subagents.clear()
        reason, ended = facts[names.STOP_REASON], spans.nanoseconds(at)
        self._end_calls(at, reason)
        self.agent = self.started = None
        agent.span.set_attributes(facts)
        agent.span.add_event(names.COMPLETE, facts, ended)
        if not is_good:
            spans.fail(agent.span, reason)
        try:
            # The log record may be the only thing that is exported, so it identifies its run.
            identity = {names.RUN_ID: spans.clean(started.run_id)}
            if started.agent_name:
                identity[names.AGENT_NAME] = spans.clean(started.agent_name)
            self.telemetry.log_completion(agent.context, {**identity, **facts}, ended)
            self._measure(agent.context, facts, max(0.0, at - agent.at), is_good=is_good)
        finally:
            agent.span.end(ended)

    def abandon(self) -> None:
        """End the run, if it has not ended: its generator was closed, and there will be no last event."""
        facts = {
            names.TOTAL_ITERATIONS: self.model_calls,
            names.TOOL_CALLS_COUNT: self.tool_calls,
            names.STOP_REASON: names.ABANDONED,
        }
        self.end(time.time(), facts, is_good=False)

    def _labels_of(self, event: RunStarted) -> tuple[Labels, Labels]:
        """The labels of all metrics of the run, and those of its requests."""
        meters = self.telemetry.instruments
        if meters is None:
            return {}, {}
        run = {names.AGENT_NAME: meters.agent_names(event.agent_name)} if event.agent_name else {}
        model = {names.PROVIDER_NAME: event.provider, names.REQUEST_MODEL: event.model}
        return run, run | {
            key: meters.model_names(spans.clean(value))
            for key, value in model.items()
            if value is not None
        }

    def _end_calls(self, at: float, reason: str) -> None:
        """End the spans of calls that a cancellation left open, and record their durations."""
        meters, failed = self.telemetry.instruments, {names.ERROR_TYPE: reason}
        chat, tools = self.chat, list(self.tools.values())
        self.chat = None
        self.tools.clear()
        self.tool_calls += sum(not tool.is_step for tool in tools)
        for call in (chat, *tools):
            if call is None:
                continue
            if meters is not None:
                histogram = meters.operation if call is chat else meters.tool
                histogram.record(max(0.0, at - call.at), {**call.labels, **failed}, call.context)
            spans.fail(call.span, reason)
            call.span.end(spans.nanoseconds(at))

    def _measure(
        self, context: Context, facts: Mapping[str, Any], duration: float, *, is_good: bool
    ) -> None:
        meters, reason = self.telemetry.instruments, facts[names.STOP_REASON]
        if meters is None:
            return
        labels = {**self.labels, names.STOP_REASON: reason}
        meters.iterations.record(facts[names.TOTAL_ITERATIONS], labels, context)
        meters.inference_calls.record(self.model_calls, self.labels, context)
        meters.tool_calls.record(self.tool_calls, self.labels, context)
        failed = {} if is_good else {names.ERROR_TYPE: reason}
        meters.agent.record(duration, {**labels, **failed}, context)
        meters.active.add(-1, self.labels, context)
