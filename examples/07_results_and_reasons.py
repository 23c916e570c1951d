"""Results: `Ok` with the answer, `Err` with a reason, or `Paused` (see ``10_approvals.py``)."""

import asyncio
from typing import Any

from treadle import Err, Loop, Ok, Paused, RunHandle, tool
from treadle.stages import loop_decision
from treadle.testing import call, calls

QUESTION = "Is it done?"
handle = RunHandle()


@tool
def look(place: str) -> str:
    """Look somewhere; ``x`` always fails with the same error."""
    if place == "x":
        raise ValueError("no such place")
    return f"nothing in {place}"


@tool
async def wait() -> None:
    """Wait for longer than the run may take."""
    await asyncio.sleep(60)


@tool
def stop() -> None:
    """End the run from within, through its handle."""
    handle.cancel()


def says(answer: Any) -> Any:
    """Make a model that always returns the same answer, or raises the same error."""

    def model(messages: list[dict[str, Any]]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer(messages) if callable(answer) else answer

    return model


def look_on(messages: list[dict[str, Any]]) -> Any:
    """Look in another room in each iteration."""
    return calls(call("look", place=f"room {len(messages)}"))


new_place = says(look_on)
RUNS: list[tuple[Any, dict[str, Any]]] = [
    (says("Yes."), {}),
    (new_place, {"max_iterations": 2}),
    (new_place, {"max_tool_calls": 1}),
    (says(calls(call("wait"))), {"max_seconds": 0.5}),
    (says(calls(call("look", place="x"))), {}),
    (says(calls(call("look", place="the hall"))), {}),
    (says(ConnectionError("connection refused")), {"max_retries": 0}),
    (says(""), {"stages": [loop_decision(max_blank_stops=1), ...]}),
    (says("Yes."), {"stages": [len]}),
    (says(42), {}),
    (says(calls(call("stop"))), {"handle": handle}),
]
for model, options in RUNS:
    match Loop.run_sync(QUESTION, model, tools=[look, wait, stop], **options):
        case Ok(response):
            print(f"Ok: {response.content}")
        case Err(reason, messages):
            print(f"{type(reason).__name__}: {reason} [{len(messages)} messages]")
        case Paused(pending):
            print(f"Paused: {pending}")
invalid = Loop.run_sync([{"role": "user"}], says("Yes."))
print(repr(invalid.reason) if isinstance(invalid, Err) else "")

# The messages of an Err are valid: another run continues from them.
stopped = Loop.run_sync(QUESTION, new_place, tools=[look], max_iterations=2)
finished = Loop.run_sync(stopped.messages, says("It is done."))
print(f"{stopped.stop_reason}, then {finished.stop_reason}: {finished.unwrap().content}")
