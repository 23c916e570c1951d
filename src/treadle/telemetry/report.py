"""How one run stands in what it reports: its open spans, its labels, and the runs within its calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind

from treadle.telemetry import names, spans
from treadle.telemetry.instruments import Labels
from treadle.types import RunStarted

if TYPE_CHECKING:
    from treadle.telemetry.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Open:
    """A span that has not ended.

    Args:
        span: the span.
        context: has it as the current one.
        is_step: it is of a call that a recipe made, and not the model.
    """

    span: Span
    context: Context
    is_step: bool = False


class RunReport:
    """How one run stands in what it reports; `treadle.telemetry.telling` keeps it up to date.

    Args:
        telemetry: what it reports to.
        around: the context of the call that the run is; None of a run that is none.

    Attributes:
        started: the run's first event; None before that, and after its end.
        agent, chat, tools: the spans that are open, those of calls by their ids.
        children: the runs within calls, by the ids of the calls.
        labels: what every metric of the run has; ``model_labels`` those of its requests.
        request: what the span of each request starts with.
        asked_at: when the latest request began, in seconds since the epoch; ``tried_at`` its latest try.
        first_chunk: seconds from that to the first piece of the answer; None where none has come.
        model_calls, tool_calls: how many there were since the run started or was gone on with.
    """

    __slots__ = (
        "agent",
        "around",
        "asked_at",
        "chat",
        "children",
        "descriptions",
        "first_chunk",
        "labels",
        "model_calls",
        "model_labels",
        "request",
        "started",
        "telemetry",
        "tool_calls",
        "tools",
        "tried_at",
    )

    def __init__(self, telemetry: Telemetry, around: Context | None = None) -> None:
        self.telemetry = telemetry
        self.around = around
        self.started: RunStarted | None = None
        self.agent: Open | None = None
        self.chat: Open | None = None
        self.tools: dict[str, Open] = {}
        self.children: dict[str, RunReport] = {}
        self.labels: Labels = {}
        self.model_labels: Labels = {}
        self.request: dict[str, Any] = {}
        self.descriptions: dict[str, str] = {}
        self.asked_at = self.tried_at = 0.0
        self.first_chunk: float | None = None
        self.model_calls = self.tool_calls = 0

    def child_of(self, call_id: str) -> RunReport:
        """The report of the run that a call is made of; its spans are within that of the call."""
        child = self.children.get(call_id)
        if child is None:
            place = self.tools.get(call_id, self.agent)
            around = self.around if place is None else place.context
            child = self.children[call_id] = RunReport(self.telemetry, around)
        return child

    def context_for(self, label: str, key: str) -> Context | None:
        """The context in which a call is made; the calls of a child have its id before their own key."""
        call_id, _, rest = key.partition("/")
        if rest and call_id in self.children:
            return self.children[call_id].context_for(label, rest)
        place: Open | None = None
        if label == "execute_tool":
            place = self.tools.get(key)
        elif label in _OF_THE_MODEL:
            place = self.chat or self.agent
        return None if place is None else place.context

    def open(
        self,
        name: str,
        kind: SpanKind,
        facts: Mapping[str, Any],
        at: float,
        within: Open | None = None,
    ) -> Open:
        """Start a span in that of the run, or in another one.

        Args:
            name: its name.
            kind: its kind.
            facts: its attributes.
            at: seconds since the epoch.
            within: the span that it is a part of; None is that of the run.
        """
        place = within or self.agent
        around = self.around if place is None else place.context
        started = spans.nanoseconds(at)
        span = self.telemetry.tracer.start_span(
            name, around, kind, attributes=facts, start_time=started
        )
        return Open(span, trace.set_span_in_context(span, around), within is not None)

    def note(self, name: str, facts: Mapping[str, Any], at: float | None = None) -> None:
        """Add an event to the span of the run, at some time in seconds since the epoch; None is now."""
        if self.agent is not None:
            spans.add_event(self.agent.span, name, facts, at)

    def start(self, event: RunStarted) -> None:
        """Begin: the span of the run, and what all its metrics have."""
        self.started, state = event, event.state
        span = self.telemetry.tracer.start_span(
            f"{names.INVOKE_AGENT} {spans.clean(event.agent_name)}".strip(),
            context=self.around,
            kind=SpanKind.INTERNAL,
            attributes=spans.attributes_of_run(event),
            links=spans.link_to(None if state is None else state.traceparent),
            start_time=spans.nanoseconds(event.at),
        )
        self.agent = Open(span, trace.set_span_in_context(span, self.around))
        if state is not None:
            state.traceparent = spans.traceparent_of(span) or state.traceparent
        self.request = spans.attributes_of_requests(event)
        meters = self.telemetry.instruments
        if event.agent_name:
            self.labels = {names.AGENT_NAME: meters.agent_names(event.agent_name)}
        self.model_labels = {names.OPERATION_NAME: names.CHAT, **self.labels}
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
        for left in (self.chat, *self.tools.values()):  # what a cancellation left open
            if left is not None:
                spans.fail(left.span, reason)
                left.span.end(ended)
        self.chat = self.agent = self.started = None
        self.tools.clear()
        agent.span.set_attributes(facts)
        agent.span.add_event(names.COMPLETE, facts, ended)
        if not is_good:
            spans.fail(agent.span, reason)
        self.telemetry.log_completion(agent.context, facts, ended)
        self._measure(agent.context, facts, max(0.0, at - started.at), is_good=is_good)
        agent.span.end(ended)

    def _measure(
        self, context: Context, facts: Mapping[str, Any], duration: float, *, is_good: bool
    ) -> None:
        meters, reason = self.telemetry.instruments, facts[names.STOP_REASON]
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


_OF_THE_MODEL = frozenset({"chat", "chunk", "close"})
