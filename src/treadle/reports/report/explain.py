"""Sentences that explain why a run ended and what its guards did."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.messages import JSONDict
from treadle.recording.model import Guard, Iteration, Run

HEADLINES: Mapping[str, str] = {
    "answered": "Answered",
    "output": "Ended with an output",
    "finished": "Answered at a limit",
    "max_iterations_reached": "Stopped: no iterations left",
    "budget_exhausted": "Stopped: a budget is exhausted",
    "limit_not_measurable": "Stopped: a limit cannot be measured",
    "deadline_exceeded": "Stopped: the deadline was exceeded",
    "circuit_broken": "Stopped: a tool kept failing",
    "loop_detected": "Stopped: the model repeated itself",
    "compaction_stalled": "Stopped: the history kept growing without new results",
    "output_missing": "No valid output",
    "stopped_by_stage": "Stopped by a stage",
    "llm_error": "Failed: the model call failed",
    "empty_response": "Failed: the model returned empty responses",
    "response_incomplete": "Failed: the response was cut off or filtered",
    "pipeline_failed": "Failed: a stage failed",
    "invalid_input": "Not started: the messages are invalid",
    "cancelled": "Cancelled",
    "paused": "Waiting for approval",
}
"""How a run ended, by its stop reason."""

_NOT_RUN: Mapping[str, str] = {
    "no_new_evidence": "The same call was answered before, and nothing new has been learned since.",
    "recalled": "Its result was compacted away, and still holds.",
    "duplicate_in_batch": "The response has the same call twice; it ran once.",
    "parallel_cap": "The response has more calls than may run in parallel.",
    "deferred": "Other calls had to run first, and the model has to see their results.",
    "over_budget": "The budget of tool calls is exhausted.",
    "max_uses": "The tool has reached its maximum number of uses.",
    "breaker_open": "The circuit breaker of the tool is open.",
    "removed": "A custom stage removed it.",
    "answered": "A custom stage answered it.",
    "denied": "A person did not approve it.",
    "invalid": "It is invalid.",
    "not_planned": "It was not planned.",
    "response_replaced": "A custom stage replaced the response.",
    "ended_run": "Another call ended the run.",
    "cancelled": "It was stopped before it was done.",
    "locked": "Its locks could not be taken.",
    "not_allowed": "It was not allowed to run.",
}
"""Why a call did not run, by the reason in the plan."""


_GUARDS: Mapping[str, str] = {
    "nudged": "The result has a note: the same call was made {detail} times.",
    "breaker": "The circuit breaker of {tool} changed from {detail}.",
    "compacted": "The history is {detail}.",
    "not compacted": "The history is too long, and stays as it is: {detail}",
    "repaired": "The history was repaired {detail}",
}
"""What a guard did, by its kind."""


def headline(run: Run) -> str:
    """How a run ended, in a few words."""
    if not run.stop_reason:
        return "Did not end"
    return HEADLINES.get(run.stop_reason, f"Ended: {run.stop_reason}")


def why(run: Run) -> str:
    """Why a run ended, as a sentence; empty if the headline says everything."""
    if run.status == "paused":
        return "; ".join(map(_waiting, run.pending))
    if run.stop_reason == "":
        return _last_state(run)
    reason = run.reason or run.limit
    return f"{reason[:1].upper()}{reason[1:]}"


def _waiting(call: JSONDict) -> str:
    question = call.get("question")
    return f"{call.get('name')} waits for approval{f': {question}' if question else ''}"


def _last_state(run: Run) -> str:
    """What the run was doing when its recording ended."""
    if not run.iterations:
        return "The recording ends before the first model call."
    last = run.iterations[-1]
    return f"The recording ends in iteration {last.number}, {_activity(last)}."


def _activity(iteration: Iteration) -> str:
    running = [call.name for call in iteration.calls if call.status == "running"]
    if running:
        return f"while {', '.join(running)} was running"
    if iteration.response is None and not iteration.failure:
        return "during the model call"
    return "after the model call" if iteration.ended_at is None else "at its end"


def explain_guard(guard: Guard) -> str:
    """What a guard did and why, as a sentence."""
    known = _GUARDS.get(guard.kind)
    if known is None:
        return explain_not_run(guard.detail)
    return known.format(tool=guard.tool, detail=guard.detail)


def explain_not_run(reason: str) -> str:
    """Why a call did not run, as a sentence. An unknown reason is returned unchanged."""
    return _NOT_RUN.get(reason, reason)
