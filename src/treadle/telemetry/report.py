"""How one run stands in what it reports: its open spans, its labels, and the runs within its calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
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
class ToolFacts:
    """What is the same for all calls of a tool.

    Args:
        span_name: of the span of a call.
        attributes: of that span.
        labels: of the metrics of a call.
    """

    span_name: str
    attributes: Mapping[str, Any]
    labels: Labels


class Open(NamedTuple):
    """A span that has not ended.

    Args:
        span: the span.
        context: has it as the current one.
        at: when it started, in seconds since the epoch.
        labels: of the metric of how long it took.
        is_step: it is of a call that a recipe made, and not the model.
    """

    span: Span
    context: Context
    at: float
    labels: Labels
    is_step: bool = False


class RunReport:
    """How one run stands in what it reports; `treadle.telemetry.telling` keeps it up to date.

    Args:
        telemetry: what it reports to.
        around: the context of the call that the run is; None of a run that is none.
        prefix: what the keys of the run's calls begin with, since they are seen from the outermost run.

    Attributes:
        started: the run's first event; None before that, and after its end.
        agent, chat, tools: the spans that are open, those of calls by their ids.
        children: the runs within calls, by the ids of the calls.
        labels: what every metric of the run has; ``model_labels`` those of its requests.
        request: what the span of each request starts with.
        tried_at: when the latest try of a request began, in seconds since the epoch.
        tool_facts: what is the same for all calls of a tool, by its name; None is any that nobody
            but the model knows.
        first_chunk: seconds from that to the first piece of the answer; None where none has come.
        model_calls, tool_calls: how many there were since the run started or was gone on with.
    """

    __slots__ = (
        "agent",
        "around",
        "chat",
        "children",
        "first_chunk",
        "labels",
        "model_calls",
        "model_labels",
        "prefix",
        "request",
        "started",
        "telemetry",
        "tool_calls",
        "tool_facts",
        "tools",
        "tried_at",
    )

    def __init__(
        self, telemetry: Telemetry, around: Context | None = None, prefix: str = ""
    ) -> None:
        self.telemetry = telemetry
        self.around = around
        self.prefix = prefix
        self.started: RunStarted | None = None
        self.agent: Open | None = None
        self.chat: Open | None = None
        self.tools: dict[str, Open] = {}
        self.children: dict[str, RunReport] = {}
        self.labels: Labels = {}
        self.model_labels: Labels = {}
        self.request: dict[str, Any] = {}
        self.tool_facts: dict[str | None, ToolFacts] = {}
        self.tried_at = 0.0
        self.first_chunk: float | None = None
        self.model_calls = self.tool_calls = 0

    def child_of(self, call_id: str) -> RunReport:
        """The report of the run that a call is made of; its spans are within that of the call."""
        child = self.children.get(call_id)
        if child is None:
            place = self.tools.get(call_id, self.agent)
            around = self.around if place is None else place.context
            prefix = f"{self.prefix}{call_id}/"
            child = self.children[call_id] = RunReport(self.telemetry, around, prefix)
        return child

    def context_for(self, label: str, key: str) -> Context | None:
        """The context in which a call of this run is made; None is that which there is."""
        if label in labels.OF_THE_LOOP:
            return None
        place = self.agent
        if label == labels.EXECUTE_TOOL:
            place = self.tools.get(key.removeprefix(self.prefix), place)
        elif label in labels.OF_THE_MODEL:
            place = self.chat or place
        return None if place is None else place.context

    def open(
        self,
        name: str,
        kind: SpanKind,
        facts: Mapping[str, Any],
        at: float,
        labels: Labels,
        *,
        within: Open | None = None,
    ) -> Open:
        """Start a span in that of the run, or in another one.

        Args:
            name: its name.
            kind: its kind.
            facts: its attributes.
            at: seconds since the epoch.
            labels: of the metric of how long it takes.
            within: the span that it is a part of; None is that of the run.
        """
        place = within or self.agent
        around = self.around if place is None else place.context
        started = spans.nanoseconds(at)
        span = self.telemetry.tracer.start_span(
            name, around, kind, attributes=facts, start_time=started
        )
        context = trace.set_span_in_context(span, around)
        return Open(span, context, at, labels, within is not None)

    def note(self, name: str, facts: Mapping[str, Any], at: float | None = None) -> None:
        """Add an event to the span of the run, at some time in seconds since the epoch; None is now."""
        if self.agent is not None:
            spans.add_event(self.agent.span, name, facts, at)

    def start(self, event: RunStarted) -> None:
        """Begin: the span of the run, and what all its metrics have."""
        self.abandon()  # a call that is tried again is another run, and the first may not have told its end
        self.model_calls = self.tool_calls = 0
        self.started, state = event, event.state
        span = self.telemetry.tracer.start_span(
            f"{names.INVOKE_AGENT} {spans.clean(event.agent_name)}".strip(),
            context=self.around,
            kind=SpanKind.INTERNAL,
            attributes=spans.attributes_of_run(event),
            links=spans.link_to(None if state is None else state.traceparent),
            start_time=spans.nanoseconds(event.at),
        )
        context = trace.set_span_in_context(span, self.around)
        self.agent = Open(span, context, event.at, self.labels)
        if state is not None:
            state.traceparent = spans.traceparent_of(span) or state.traceparent
        self.request = spans.attributes_of_requests(event)
        meters = self.telemetry.instruments
        if meters is not None:
            if event.agent_name:
                self.labels = {names.AGENT_NAME: meters.agent_names(event.agent_name)}
            self.model_labels = dict(self.labels)
            for key in (names.PROVIDER_NAME, names.REQUEST_MODEL):
                if key in self.request:
                    self.model_labels[key] = meters.model_names(self.request[key])
            meters.active.add(1, self.labels, self.agent.context)

    def end(self, at: float, facts: Mapping[str, Any], *, is_good: bool) -> None:
        """End what is open, tell that the run is complete, and record what it came to.

        Args:
            at: seconds since the epoch.
            facts: its iterations, its calls, and why it ended.
            is_good: whether it ended as it should.
        """
        agent, started = self.agent, self.started
        if agent is None or started is None:
            return
        for child in self.children.values():
            child.abandon()
        self.children.clear()
        ended, reason = spans.nanoseconds(at), facts[names.STOP_REASON]
        self._end_what_is_left(at, reason)
        self.agent = self.started = None
        agent.span.set_attributes(facts)
        agent.span.add_event(names.COMPLETE, facts, ended)
        if not is_good:
            spans.fail(agent.span, reason)
        try:
            # A record may be all that somebody takes: it says whose it is.
            whose = {names.RUN_ID: spans.clean(started.run_id)}
            if started.agent_name:
                whose[names.AGENT_NAME] = spans.clean(started.agent_name)
            self.telemetry.log_completion(agent.context, {**whose, **facts}, ended)
            self._measure(agent.context, facts, max(0.0, at - agent.at), is_good=is_good)
        finally:
            agent.span.end(ended)

    def _end_what_is_left(self, at: float, reason: str) -> None:
        """End the spans that a cancellation left open, and measure them: it is what hangs that is cancelled."""
        meters, failed = self.telemetry.instruments, {names.ERROR_TYPE: reason}
        chat, tools = self.chat, list(self.tools.values())
        self.chat = None
        self.tools.clear()
        self.tool_calls += sum(not tool.is_step for tool in tools)
        for left in (chat, *tools):
            if left is None:
                continue
            if meters is not None:
                meter = meters.operation if left is chat else meters.tool
                meter.record(max(0.0, at - left.at), {**left.labels, **failed}, left.context)
            spans.fail(left.span, reason)
            left.span.end(spans.nanoseconds(at))

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

    def abandon(self) -> None:
        """End what is open where no event told the end: the steps of the run were closed in midway."""
        facts = {
            names.TOTAL_ITERATIONS: self.model_calls,
            names.TOOL_CALLS_COUNT: self.tool_calls,
            names.STOP_REASON: names.ABANDONED,
        }
        self.end(time.time(), facts, is_good=False)
