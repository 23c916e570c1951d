"""Plain words for why a run ended, and for what held it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from treadle.reports.record.model import Guard, Iteration, Run

HEADLINES: Mapping[str, str] = {
    "answered": "Answered",
    "output": "Ended with an output",
    "finished": "Answered at a limit",
    "max_iterations_reached": "Stopped: out of iterations",
    "budget_exhausted": "Stopped: a budget is spent",
    "deadline_exceeded": "Stopped: out of time",
    "circuit_broken": "Stopped: a tool kept failing",
    "loop_detected": "Stopped: going in circles",
    "llm_error": "Failed: the model could not be asked",
    "empty_response": "Failed: the model said nothing",
    "pipeline_failed": "Failed: a stage raised",
    "invalid_input": "Not begun: the messages are malformed",
    "cancelled": "Cancelled",
    "paused": "Waiting for approval",
}
"""How a run ended, by its stop reason."""

_HELD: Mapping[str, str] = {
    "no_new_evidence": "It was answered before, and nothing new has been learned since.",
    "duplicate_in_batch": "It was made twice in one answer, and ran once.",
    "parallel_cap": "More calls were made than may run at the same time.",
    "deferred": "Others have to run, and be seen, before it.",
    "over_budget": "The budget of tool calls is spent.",
    "max_uses": "The tool was used as often as it may be.",
    "breaker_open": "The tool is out of order: its circuit breaker is open.",
}
"""Why a call did not run, by the reason in the plan."""


def headline(run: Run) -> str:
    """How a run ended, in a few words."""
    if not run.stop_reason:
        return "Did not end"
    known = HEADLINES.get(run.stop_reason)
    return known if known is not None else f"Ended: {run.stop_reason}"


def why(run: Run) -> str:
    """Why a run ended as it did, in a sentence; empty where the headline says it all."""
    if run.status == "paused":
        return "; ".join(_waiting(run))
    if run.stop_reason == "":
        return _under_way(run)
    told = run.reason or run.limit
    return f"{told[:1].upper()}{told[1:]}"


def _waiting(run: Run) -> Iterator[str]:
    for call in run.pending:
        question = call.get("question")
        yield f"{call.get('name')} waits for a person{f': {question}' if question else ''}"


def _under_way(run: Run) -> str:
    """What a run was doing where its record stops."""
    if not run.iterations:
        return "The record stops before the first model call."
    last = run.iterations[-1]
    return f"The record stops in iteration {last.number}, {_doing(last)}."


def _doing(iteration: Iteration) -> str:
    running = [call.name for call in iteration.calls if call.status == "running"]
    if running:
        return f"while {', '.join(running)} ran"
    if iteration.response is None and not iteration.failure:
        return "while the model was asked"
    return "after the model's answer" if iteration.ended_at is None else "at its end"


def of_guard(guard: Guard) -> str:
    """What a guard did, and why, in a sentence."""
    if guard.kind == "nudged":
        return f"The result carries a note: the same call was made {guard.detail} times."
    if guard.kind == "breaker":
        return f"The circuit breaker of {guard.tool} went from {guard.detail}."
    return held(guard.detail)


def held(reason: str) -> str:
    """Why a call did not run, in a sentence; what is no reason of a plan is told as it is."""
    return _HELD.get(reason, reason)
