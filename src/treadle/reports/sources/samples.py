"""The samples of treadle's metrics for a recorded run, each with its time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from treadle.recording.model import Call, Guard, Iteration, Run
from treadle.reports.dashboards import expressions as metrics
from treadle.telemetry import names

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of labels, sorted by name, without empty values."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An increase of a counter, a change of a gauge, or a value of a histogram, in seconds since the epoch.

    The metric has its name in Prometheus, without ``_bucket``, ``_sum`` and ``_count`` of a histogram.
    """

    metric: str
    labels: Labels
    at: float
    value: float


def labels_of(given: Mapping[str, str | None]) -> Labels:
    """Labels in canonical form."""
    return tuple(sorted((name, value) for name, value in given.items() if value))


BOUNDS: Mapping[str, tuple[float, ...]] = {
    metrics.RUN: names.AGENT_SECONDS_BUCKETS,
    metrics.ITERATIONS: names.ITERATIONS_BUCKETS,
    metrics.MODEL: names.SECONDS_BUCKETS,
    metrics.FIRST_CHUNK: names.FIRST_CHUNK_BUCKETS,
    metrics.TOKENS: names.TOKENS_BUCKETS,
    metrics.MODEL_CALLS: names.COUNT_BUCKETS,
    metrics.TOOL_CALLS: names.COUNT_BUCKETS,
    metrics.TOOL: names.SECONDS_BUCKETS,
}
"""The buckets of each histogram, by its name in Prometheus."""
_WAITING = "waiting"
"""The status of a call that waits for approval."""


def with_children(run: Run, until: float | None = None) -> Iterator[tuple[Run, float | None]]:
    """A run and all its subagents, each with the time until which it ran at most, in seconds since the epoch.

    A subagent has ended when its call is tried again, when the call ends, and when the run of the call ends.
    """
    yield run, until
    end = until if run.ended_at is None else run.ended_at
    for call in run.calls:
        call_end = end if call.ended_at is None else call.ended_at
        for child, later in itertools.zip_longest(call.runs, call.runs[1:]):
            tried_again = None if later is None else later.started_at
            yield from with_children(child, call_end if tried_again is None else tried_again)


def samples_of(run: Run, until: float | None = None) -> Iterator[Sample]:
    """All samples of a run, without its subagents. If it did not end, it is active until a time."""
    parts = list(_parts(run, until))
    over = parts[-1] if parts and parts[-1].end is not None else None
    made = [one for part in parts for one in _of_part(run, part)]
    made += [one for iteration in run.iterations for one in _of_iteration(run, iteration, over)]
    for metric, at, value, labels in made:
        all_labels = labels_of({"gen_ai_agent_name": run.agent_name, **labels})
        yield Sample(metric, all_labels, at, value)


_Made: TypeAlias = tuple[str, float, float, Mapping[str, str | None]]
"""A sample as its metric, its time, its value, and its labels except the agent's name."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a run: from its start or a resumption, to a pause or its end."""

    start: float
    end: float | None
    reason: str

    def has(self, at: float | None) -> bool:
        return at is not None and self.start <= at and (self.end is None or at <= self.end)


def _parts(run: Run, until: float | None) -> Iterator[_Part]:
    if run.started_at is None:
        return
    start = run.started_at
    for paused, resumed in run.pauses:
        yield _Part(start, paused, "paused")
        start = resumed
    if run.ended_at is None and until is not None:
        yield _Part(start, until, names.ABANDONED)
    else:
        yield _Part(start, run.ended_at, run.stop_reason)


def _of_part(run: Run, part: _Part) -> Iterator[_Made]:
    yield metrics.ACTIVE, part.start, 1, {}
    if part.end is None:
        return
    yield metrics.ACTIVE, part.end, -1, {}
    model_calls = sum(part.has(one.asked_at) for one in run.iterations)
    tool_calls = [
        one
        for one in run.calls
        if part.has(one.started_at) and one.status != _WAITING and one.within is None
    ]
    # At a pause, the iterations so far.
    begun = (one.number for one in run.iterations if part.has(one.started_at))
    so_far = max(begun, default=0) if part.reason == "paused" else run.total_iterations
    ended = {"treadle_stop_reason": part.reason}
    yield metrics.ITERATIONS, part.end, so_far, ended
    yield metrics.RUN, part.end, part.end - part.start, ended
    yield metrics.MODEL_CALLS, part.end, model_calls, {}
    yield metrics.TOOL_CALLS, part.end, len(tool_calls), {}


def _of_iteration(run: Run, iteration: Iteration, over: _Part | None) -> Iterator[_Made]:
    asked = {"gen_ai_request_model": run.model, "gen_ai_provider_name": run.provider}
    for retry in iteration.retries:
        if retry.at is not None:
            yield metrics.RETRIES, retry.at, 1, {**asked, "error_type": retry.error_type}
    if iteration.answered_at is not None and iteration.model_seconds is not None:
        model = (iteration.response or {}).get("model")
        labels = {**asked, "gen_ai_response_model": model}
        yield from _of_answer(iteration, iteration.answered_at, iteration.model_seconds, labels)
    elif iteration.asked_at is not None:
        error, at = iteration.failure.partition(":")[0], iteration.failed_at
        if not error and over is not None:
            error, at = over.reason, over.end  # it was interrupted
        if error and at is not None:
            yield metrics.MODEL, at, at - iteration.asked_at, {**asked, "error_type": error}
    for call in iteration.calls:
        yield from _of_call(call, over)
    # Guards have no time. They act between the response and the end of the iteration.
    at = iteration.ended_at or iteration.answered_at or run.last_at
    if at:
        for guard in iteration.guards:
            yield from _of_guard(guard, at)


def _of_answer(
    iteration: Iteration, at: float, took: float, labels: Mapping[str, str | None]
) -> Iterator[_Made]:
    yield metrics.MODEL, at, took, labels
    timing = iteration.timing
    first, tried = iteration.first_chunk_at, iteration.asked_at
    if iteration.retries:  # `tried` is the start of the attempt that succeeded
        failed = iteration.retries[-1]
        tried = None if failed.at is None else failed.at + failed.delay
    if timing is not None:  # recordings of earlier versions have none
        first, tried = timing.first_chunk, timing.started
    if first is not None and tried is not None:
        yield metrics.FIRST_CHUNK, at, max(0.0, first - tried), labels
    usage = iteration.usage
    if usage is not None and usage.is_measured:
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            yield metrics.TOKENS, at, count, {**labels, "gen_ai_token_type": kind}
    if usage is not None and usage.cost is not None and not usage.is_estimate:
        yield metrics.COST, at, usage.cost, labels


def _of_call(call: Call, over: _Part | None) -> Iterator[_Made]:
    if call.started_at is None or call.status == _WAITING:
        return
    labels = {"gen_ai_tool_name": call.name}
    if call.ended_at is not None and call.duration is not None:
        error = call.status if call.status in {"timeout", "cancelled"} else "tool_error"
        labels["error_type"] = error if call.is_error else ""
        yield metrics.TOOL, call.ended_at, call.duration, labels
    elif over is not None and over.end is not None:  # it was interrupted
        labels["error_type"] = over.reason
        yield metrics.TOOL, over.end, over.end - call.started_at, labels


def _of_guard(guard: Guard, at: float) -> Iterator[_Made]:
    labels = {"gen_ai_tool_name": guard.tool}
    if guard.kind == "compacted":
        is_summarized = guard.detail.startswith("summarised")
        yield metrics.COMPACTIONS, at, 1, {"treadle_is_summarized": str(is_summarized).lower()}
    elif guard.kind == "not_run":
        yield metrics.NOT_RUN, at, 1, {**labels, "treadle_reason": guard.detail}
    elif guard.kind == "breaker":
        state = guard.detail.rpartition(" ")[2]
        yield metrics.BREAKER, at, 1, {**labels, "treadle_circuit_breaker_state": state}
