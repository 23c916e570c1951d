"""The samples of treadle's metrics for a recorded run, each with its time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from treadle.reports.dashboards import expressions as metrics
from treadle.reports.recording.model import Call, Guard, Iteration, Run
from treadle.reports.sources.store import Sample, labels_of
from treadle.telemetry import names

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
_FAILED = frozenset({"timeout", "cancelled"})
_WAITING = "waiting"
"""The status of a call that waits for approval."""
_NOT_RUN = {
    "suppressed": metrics.SUPPRESSED,
    "deferred": metrics.DEFERRED,
    "refused": metrics.REFUSED,
}
"""The metric of each guard that prevents a call."""
_ENDED = "treadle_stop_reason"


def with_children(run: Run, until: float | None = None) -> Iterator[tuple[Run, float | None]]:
    """A run and all its subagents, each with the end of its parent in seconds since the epoch."""
    yield run, until
    for child in run.children:
        yield from with_children(child, until if run.ended_at is None else run.ended_at)


def samples_of(run: Run, until: float | None = None) -> Iterator[Sample]:
    """All samples of a run, without its subagents.

    Args:
        run: a recorded run. If it did not end, it is active from its start.
        until: the end of its parent, at which it has ended as well.
    """
    labels = {"gen_ai_agent_name": run.agent_name}
    parts = list(_parts(run, until))
    yield from _of_parts(run, parts, labels)
    over = parts[-1] if parts and parts[-1].end is not None else None
    for iteration in run.iterations:
        yield from _of_model(run, iteration, labels, over)
        for call in iteration.calls:
            yield from _of_call(call, labels, over)
        for guard in iteration.guards:
            yield from _of_guard(run, iteration, guard, labels)


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


def _of_parts(run: Run, parts: Iterable[_Part], agent: Mapping[str, str]) -> Iterator[Sample]:
    alone = labels_of(agent)
    for part in parts:
        yield Sample(metrics.ACTIVE, alone, part.start, 1)
        if part.end is None:
            continue
        yield Sample(metrics.ACTIVE, alone, part.end, -1)
        all_labels = labels_of({**agent, _ENDED: part.reason})
        model_calls = [one.number for one in run.iterations if part.has(one.started_at)]
        made = [one for one in run.calls if part.has(one.started_at) and _counts(one)]
        # At a pause, the iterations so far.
        iterations = (
            max(model_calls, default=0) if part.reason == "paused" else run.total_iterations
        )
        yield Sample(metrics.ITERATIONS, all_labels, part.end, iterations)
        yield Sample(metrics.RUN, all_labels, part.end, part.end - part.start)
        yield Sample(metrics.MODEL_CALLS, alone, part.end, len(model_calls))
        yield Sample(metrics.TOOL_CALLS, alone, part.end, len(made))


def _counts(call: Call) -> bool:
    """Whether the model made the call and it ran."""
    return call.started_at is not None and call.status != _WAITING and call.within is None


def _of_model(
    run: Run, iteration: Iteration, agent: Mapping[str, str], over: _Part | None
) -> Iterator[Sample]:
    asked = {
        **agent,
        "gen_ai_request_model": run.model,
        "gen_ai_provider_name": run.provider,
    }
    for retry in iteration.retries:
        if retry.at is not None:
            labels = labels_of({**asked, "error_type": retry.error_type})
            yield Sample(metrics.RETRIES, labels, retry.at, 1)
    if iteration.answered_at is not None and iteration.model_seconds is not None:
        yield from _of_answer(iteration, asked, iteration.answered_at, iteration.model_seconds)
    elif iteration.started_at is not None:
        error, at = iteration.failure.partition(":")[0], iteration.ended_at
        if not error and over is not None:
            error, at = over.reason, over.end  # it was interrupted
        if error and at is not None:
            labels = labels_of({**asked, "error_type": error})
            yield Sample(metrics.MODEL, labels, at, at - iteration.started_at)


def _of_answer(
    iteration: Iteration, asked: Mapping[str, str], at: float, took: float
) -> Iterator[Sample]:
    answered = {**asked, "gen_ai_response_model": (iteration.response or {}).get("model")}
    labels = labels_of(answered)
    yield Sample(metrics.MODEL, labels, at, took)
    first, tried = iteration.first_chunk_at, _tried_at(iteration)
    if first is not None and tried is not None:
        yield Sample(metrics.FIRST_CHUNK, labels, at, max(0.0, first - tried))
    usage = iteration.usage
    if usage is None:
        return
    for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
        all_labels = labels_of({**answered, "gen_ai_token_type": kind})
        yield Sample(metrics.TOKENS, all_labels, at, count)
    if usage.cost is not None:
        yield Sample(metrics.COST, labels, at, usage.cost)


def _tried_at(iteration: Iteration) -> float | None:
    """The start of the attempt that succeeded."""
    for retry in reversed(iteration.retries):
        return None if retry.at is None else retry.at + retry.delay
    return iteration.started_at


def _of_call(call: Call, agent: Mapping[str, str], over: _Part | None) -> Iterator[Sample]:
    if call.started_at is None or call.status == _WAITING:
        return
    labels = {**agent, "gen_ai_tool_name": call.name}
    if call.ended_at is not None and call.duration is not None:
        error = call.status if call.status in _FAILED else "tool_error"
        all_labels = labels_of({**labels, "error_type": error if call.is_error else ""})
        yield Sample(metrics.TOOL, all_labels, call.ended_at, call.duration)
    elif over is not None and over.end is not None:  # it was interrupted
        all_labels = labels_of({**labels, "error_type": over.reason})
        yield Sample(metrics.TOOL, all_labels, over.end, over.end - call.started_at)


def _of_guard(
    run: Run, iteration: Iteration, guard: Guard, agent: Mapping[str, str]
) -> Iterator[Sample]:
    # Guards have no time of their own. They act between the response and the end of the iteration.
    at = next(
        (one for one in (iteration.ended_at, iteration.answered_at, run.last_at) if one), None
    )
    if at is None:
        return
    labels = {**agent, "gen_ai_tool_name": guard.tool}
    if guard.kind in _NOT_RUN:
        all_labels = labels_of({**labels, "treadle_reason": guard.detail})
        yield Sample(_NOT_RUN[guard.kind], all_labels, at, 1)
    elif guard.kind == "breaker":
        state = guard.detail.rpartition(" ")[2]
        all_labels = labels_of({**labels, "treadle_circuit_breaker_state": state})
        yield Sample(metrics.BREAKER, all_labels, at, 1)
