"""OTLP of the real exporters for chaotic runs: everything arrives and is valid."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from treadle import Loop, Paused, Telemetry, __version__, approve
from treadle.telemetry import names
from treadle.testing.chaos import ChaosLLM, ChaosTools

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_INFO
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from .receiver import receiving

QUESTION = [{"role": "user", "content": "Go."}]
RUNS = 24
INTEGERS = {
    names.INPUT_TOKENS,
    names.OUTPUT_TOKENS,
    names.CACHED_TOKENS,
    names.REASONING_TOKENS,
    names.ITERATION,
    names.TOTAL_ITERATIONS,
    names.TOOL_CALLS_COUNT,
}
NUMBERS = {names.TIME_TO_FIRST_CHUNK}
BOOLEANS = {names.RESUMED, names.REQUEST_OPTIONS["stream"]}
LISTS = {names.FINISH_REASONS}
KINDS = {
    names.INVOKE_AGENT: Span.SPAN_KIND_INTERNAL,
    names.CHAT: Span.SPAN_KIND_CLIENT,
    names.EXECUTE_TOOL: Span.SPAN_KIND_INTERNAL,
}


@dataclass
class Sent:
    """The received data of all runs.

    Args:
        receiver: what arrived.
        ended: the ids of the spans that ended here.
        results: of the runs.
    """

    receiver: Any
    ended: list[bytes]
    results: list[Any]

    @property
    def spans(self):
        return [span for scope in self.receiver.scopes_of("traces") for span in scope.spans]

    @property
    def records(self):
        return [log for scope in self.receiver.scopes_of("logs") for log in scope.log_records]

    @property
    def metrics(self):
        """The last that was reported of each metric; they are cumulative."""
        reported = [
            metric for scope in self.receiver.scopes_of("metrics") for metric in scope.metrics
        ]
        return {metric.name: metric for metric in reported}

    def of(self, operation):
        return [
            span for span in self.spans if attributes_of(span)[names.OPERATION_NAME] == operation
        ]


def value_of(any_value):
    """A value in Python's type."""
    kind = any_value.WhichOneof("value")
    assert kind is not None
    value = getattr(any_value, kind)
    return tuple(value_of(one) for one in value.values) if kind == "array_value" else value


def attributes_of(reported):
    """The attributes of an object, checked to be unique."""
    found = {pair.key: value_of(pair.value) for pair in reported.attributes}
    assert len(found) == len(reported.attributes)
    return found


def points_of(metric):
    return getattr(metric, metric.WhichOneof("data")).data_points


def go(seed, options):
    """One chaotic run with a chaotic subagent, to its end; all approvals are given."""
    theirs = ChaosTools(seed + 1_000)
    child = Loop(tools=theirs, name="kid", max_iterations=3, max_retries=0)
    asked = child.as_tool("ask", "Asks.", ChaosLLM(seed, theirs, longest=200, most_calls=10))
    tools = [*ChaosTools(seed, approvals=True), asked]
    model = ChaosLLM(seed, longest=200, most_calls=10)
    loop = Loop(tools=tools, name="chaos", max_retries=1, retry_delay=0, max_seconds=20, **options)
    result = loop.run_sync(QUESTION, model)
    while isinstance(result, Paused):
        result = loop.resume_sync(
            result.state, {call.id: approve for call in result.pending}, model
        )
    return result


@pytest.fixture(scope="module")
def sent():
    """All runs, exported by the SDK to a receiver."""
    with receiving() as receiver:
        kept = InMemorySpanExporter()
        tracers = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(kept))
        spans = OTLPSpanExporter(f"{receiver.address}/v1/traces")
        tracers.add_span_processor(BatchSpanProcessor(spans))
        metrics = OTLPMetricExporter(f"{receiver.address}/v1/metrics")
        meters = MeterProvider([PeriodicExportingMetricReader(metrics)], shutdown_on_exit=False)
        loggers = LoggerProvider(shutdown_on_exit=False)
        logs = OTLPLogExporter(f"{receiver.address}/v1/logs")
        loggers.add_log_record_processor(BatchLogRecordProcessor(logs))
        options = {
            "telemetry": Telemetry(
                tracer_provider=tracers,
                meter_provider=meters,
                logger_provider=loggers,
                capture_content=True,
            )
        }
        results = []
        for seed in range(RUNS):
            results.append(go(seed, options))
            assert tracers.force_flush()  # a batch that is full would drop what comes
        for provider in (tracers, meters, loggers):
            provider.shutdown()
        ended = [span.context.span_id.to_bytes(8) for span in kept.get_finished_spans()]
        yield Sent(receiver, ended, results)


def test_the_runs_cover_every_kind_of_span_and_failure(sent):
    """Otherwise the tests below would prove nothing."""
    reasons = {attributes_of(span)[names.STOP_REASON] for span in sent.of(names.INVOKE_AGENT)}
    assert len(reasons) > 4
    assert len(sent.of(names.EXECUTE_TOOL)) > 100
    assert any(span.links for span in sent.spans)
    assert any(names.ERROR_TYPE in attributes_of(span) for span in sent.of(names.CHAT))


def test_everything_has_resource_and_scope(sent):
    receiver = sent.receiver
    for scopes in (
        receiver.scopes_of("traces"),
        receiver.scopes_of("metrics"),
        receiver.scopes_of("logs"),
    ):
        assert scopes
        for reported in scopes:
            assert (reported.scope.name, reported.scope.version) == ("treadle", __version__)
            assert reported.schema_url == names.SCHEMA_URL


class TestSpans:
    """Complete, connected, ordered, typed."""

    def test_each_is_sent_once(self, sent):
        assert sorted(span.span_id for span in sent.spans) == sorted(sent.ended)
        assert max(Counter(sent.ended).values()) == 1

    def test_ids_are_valid_and_parents_exist(self, sent):
        by_id = {span.span_id: span for span in sent.spans}
        for span in sent.spans:
            assert (len(span.trace_id), len(span.span_id)) == (16, 8)
            assert any(span.trace_id)
            assert any(span.span_id)
            if span.parent_span_id:
                assert by_id[span.parent_span_id].trace_id == span.trace_id

    def test_only_runs_are_roots_and_only_tool_calls_have_subagents(self, sent):
        by_id = {span.span_id: span for span in sent.spans}
        for span in sent.spans:
            operation = attributes_of(span)[names.OPERATION_NAME]
            around = by_id.get(span.parent_span_id)
            outer = None if around is None else attributes_of(around)[names.OPERATION_NAME]
            expected = {
                names.INVOKE_AGENT: (None, names.EXECUTE_TOOL),
                names.CHAT: (names.INVOKE_AGENT,),
                names.EXECUTE_TOOL: (names.INVOKE_AGENT,),
            }
            assert outer in expected[operation]

    def test_times_are_in_order(self, sent):
        by_id = {span.span_id: span for span in sent.spans}
        for span in sent.spans:
            start, end = span.start_time_unix_nano, span.end_time_unix_nano
            assert 0 < start <= end
            for event in span.events:
                assert start <= event.time_unix_nano <= end
            if span.parent_span_id:
                around = by_id[span.parent_span_id]
                assert around.start_time_unix_nano <= start
                assert end <= around.end_time_unix_nano

    def test_kinds_and_flags(self, sent):
        for span in sent.spans:
            assert span.kind == KINDS[attributes_of(span)[names.OPERATION_NAME]]
            assert span.flags & SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
            assert not span.flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK

    def test_attributes_have_their_types(self, sent):
        for reported in (part for span in sent.spans for part in (span, *span.events)):
            for key, value in attributes_of(reported).items():
                if key in INTEGERS:
                    assert type(value) is int
                    assert value >= 0
                elif key in NUMBERS:
                    assert type(value) is float
                elif key in BOOLEANS:
                    assert type(value) is bool
                elif key in LISTS:
                    assert all(type(one) is str for one in value)
                elif key.startswith(("gen_ai.", "error.")):
                    assert type(value) is str, key
                    assert value or key == names.TOOL_CALL_RESULT, key

    def test_nothing_was_dropped(self, sent):
        for span in sent.spans:
            assert span.dropped_attributes_count == span.dropped_links_count == 0
            assert span.dropped_events_count == 0

    def test_failed_spans_have_an_error_type_and_a_status(self, sent):
        for span in sent.spans:
            kind = attributes_of(span).get(names.ERROR_TYPE)
            assert (span.status.code == Status.STATUS_CODE_ERROR) == (kind is not None)
            assert span.status.message == (kind or "")

    def test_links_lead_from_a_run_to_the_pause_that_it_goes_on_from(self, sent):
        by_id = {span.span_id: span for span in sent.spans}
        for span in sent.spans:
            for link in span.links:
                before = attributes_of(by_id[link.span_id])
                assert before[names.STOP_REASON] == "paused"
                assert before[names.RUN_ID] == attributes_of(span)[names.RUN_ID]
                assert attributes_of(link) == {names.LINK: "continues"}
                assert link.flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class TestMetrics:
    """They agree with the spans."""

    def test_points_are_well_formed(self, sent):
        assert len(sent.metrics) >= 10
        for metric in sent.metrics.values():
            assert metric.unit
            assert metric.description
            for point in points_of(metric):
                assert 0 < point.start_time_unix_nano <= point.time_unix_nano
                assert all(value for value in attributes_of(point).values())
                if metric.WhichOneof("data") == "histogram":
                    assert sum(point.bucket_counts) == point.count
                    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
                    assert math.isfinite(point.sum)
                    assert point.sum >= 0

    def test_no_two_points_have_the_same_labels(self, sent):
        for metric in sent.metrics.values():
            labels = [tuple(sorted(attributes_of(point).items())) for point in points_of(metric)]
            assert len(labels) == len(set(labels))

    @pytest.mark.parametrize(
        ("metric", "operation"),
        [
            (names.OPERATION_DURATION, names.CHAT),
            (names.AGENT_DURATION, names.INVOKE_AGENT),
            (names.ITERATIONS_METRIC, names.INVOKE_AGENT),
        ],
    )
    def test_durations_are_as_many_as_spans(self, sent, metric, operation):
        measured = sum(point.count for point in points_of(sent.metrics[metric]))
        assert measured == len(sent.of(operation))

    def test_no_run_is_active_at_the_end(self, sent):
        assert [point.as_int for point in points_of(sent.metrics[names.ACTIVE_RUNS])] == [0, 0]


def test_each_run_has_one_log_record(sent):
    by_id = {span.span_id: span for span in sent.of(names.INVOKE_AGENT)}
    assert sorted(record.span_id for record in sent.records) == sorted(by_id)
    for record in sent.records:
        span = by_id[record.span_id]
        assert record.trace_id == span.trace_id
        assert record.event_name == record.body.string_value == names.COMPLETE
        assert record.severity_number == SEVERITY_NUMBER_INFO
        assert record.time_unix_nano == span.end_time_unix_nano
        reported = attributes_of(record)
        assert reported.keys() >= {
            names.STOP_REASON,
            names.TOTAL_ITERATIONS,
            names.TOOL_CALLS_COUNT,
        }
        assert reported.items() <= attributes_of(span).items()
