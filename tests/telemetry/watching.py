"""Providers in memory: the started and ended spans, metrics and log records of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from treadle import Telemetry
from treadle.telemetry import names

from .exits import DRIVERS, go

__all__ = ["DRIVERS", "Watch", "go"]


class Ledger(SpanProcessor):
    """Stores started and ended spans, in order."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.started.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)


class Watch:
    """Providers of all three kinds for a run, and what was reported to them.

    Args:
        sampler: decides which spans are recorded.
    """

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self.ledger = Ledger()
        self.tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(self.ledger)
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.records = InMemoryLogRecordExporter()
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.records))

    @property
    def options(self) -> dict[str, Any]:
        """The options of a loop that uses these providers."""
        return self.reporting()

    def reporting(self, **changes: Any) -> dict[str, Any]:
        """The options of a loop that uses these providers, with other fields of its telemetry."""
        return {"telemetry": Telemetry(**{**self.providers, **changes})}

    @property
    def providers(self) -> dict[str, Any]:
        """The providers, by the names of the fields of `Telemetry`."""
        return {
            "tracer_provider": self.tracers,
            "meter_provider": self.meters,
            "logger_provider": self.loggers,
        }

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended."""
        return self.ledger.ended

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def kind(self, operation: str) -> list[ReadableSpan]:
        """The spans of one kind, such as ``chat``."""
        return [s for s in self.spans if s.attributes[names.OPERATION_NAME] == operation]

    def metrics(self) -> Iterator[Any]:
        data = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                yield from scope.metrics

    def points(self, name: str) -> list[Any]:
        """The data points of one metric."""
        return [p for m in self.metrics() if m.name == name for p in m.data.data_points]

    def total(self, name: str, labels: Mapping[str, Any] = MappingProxyType({})) -> float:
        """The sum of the data points of one metric with some labels."""
        return sum(
            point.sum if hasattr(point, "sum") else point.value
            for point in self.points(name)
            if labels.items() <= dict(point.attributes).items()
        )

    def logs(self) -> list[Any]:
        return [data.log_record for data in self.records.get_finished_logs()]

    def everything(self) -> str:
        """Everything that was reported, as one text."""
        found = [span.to_json() for span in self.spans]
        found += [metric.to_json() for metric in self.metrics()]
        found += [data.to_json() for data in self.records.get_finished_logs()]
        return "\n".join(found)

    def names_around(self, span: ReadableSpan) -> tuple[str, ...]:
        """The name of a span and those of its ancestors, the innermost first."""
        by_id = {each.context.span_id: each for each in self.ledger.started}
        path = [span.name]
        while span.parent is not None:
            span = by_id[span.parent.span_id]
            path.append(span.name)
        return tuple(path)

    def check_whole(self, runs: int | None = None) -> None:
        """Assert that all spans ended with the right parent, and that each run has one completion event.

        Args:
            runs: the number of runs that are not subagents; None is any.
        """
        started, ended = self.ledger.started, self.ledger.ended
        assert Counter(s.context.span_id for s in started) == Counter(
            s.context.span_id for s in ended
        )
        assert all(span.end_time >= span.start_time for span in ended)
        by_id = {span.context.span_id: span for span in ended}
        assert len(by_id) == len(ended)
        for span in ended:
            around = None if span.parent is None else by_id[span.parent.span_id]
            assert around is None or around.context.trace_id == span.context.trace_id
            self._check_place(span, around)
        agents = self.kind(names.INVOKE_AGENT)
        assert runs is None or sum(agent.parent is None for agent in agents) == runs
        self._check_completion(agents)
        assert all(point.value == 0 for point in self.points(names.ACTIVE_RUNS))

    @staticmethod
    def _check_place(span: ReadableSpan, around: ReadableSpan | None) -> None:
        operation = span.attributes[names.OPERATION_NAME]
        outer = None if around is None else around.attributes[names.OPERATION_NAME]
        if operation == names.INVOKE_AGENT:
            # The call of a subagent that another process takes up has started in the earlier one.
            is_taken_up = outer == names.INVOKE_AGENT and span.attributes.get(names.RESUMED)
            assert outer in {None, names.EXECUTE_TOOL} or is_taken_up, span.name
        elif operation == names.CHAT:
            assert outer == names.INVOKE_AGENT, span.name
        else:
            call_id = span.attributes[names.TOOL_CALL_ID]
            if outer == names.EXECUTE_TOOL:  # a step of a recipe
                assert call_id.startswith(f"{around.attributes[names.TOOL_CALL_ID]}/")
            else:
                assert outer == names.INVOKE_AGENT, span.name
        if outer == names.EXECUTE_TOOL and operation == names.INVOKE_AGENT:
            call_id = around.attributes[names.TOOL_CALL_ID]
            assert span.attributes[names.RUN_ID].endswith(f"/{call_id}")

    def _check_completion(self, agents: list[ReadableSpan]) -> None:
        for agent in agents:
            (found,) = [event for event in agent.events if event.name == names.COMPLETE]
            assert found.attributes.items() <= agent.attributes.items()
        of_spans = Counter(
            (agent.context.span_id, agent.attributes[names.STOP_REASON]) for agent in agents
        )
        assert of_spans == Counter(
            (record.span_id, record.attributes[names.STOP_REASON]) for record in self.logs()
        )
