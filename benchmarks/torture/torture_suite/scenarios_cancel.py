"""Runs that their caller cancels while a tool runs: what was done must be there, and valid."""

from __future__ import annotations

import asyncio

from torture_suite.log import ToolRun
from torture_suite.protocol import CANCELLATION, Scenario
from torture_suite.script import call, calls, says
from torture_suite.toolbox import WEATHER, of_object
from torture_suite.tools import ToolSpec

NEEDS = frozenset({CANCELLATION})
LOOK = call("get_weather", {"city": "Bern"})


async def _wait(run: ToolRun) -> str:
    # The log is written from threads, too, so that there is no event of the loop to wait for.
    while not all(other.ended for other in run.log.of("get_weather")):  # noqa: ASYNC110 - as said above
        await asyncio.sleep(0.005)
    run.log.cancel.set()
    await asyncio.sleep(60)
    return "late"


def _block(run: ToolRun) -> str:
    run.log.cancel.set()
    run.log.released.wait(30)
    return "late"


async def _insist(run: ToolRun) -> str:
    run.log.cancel.set()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "finished anyway"
    return "late"


WAIT = ToolSpec("wait", _wait, "Wait.", of_object())
BLOCK = ToolSpec("wait", _block, "Wait.", of_object())
INSIST = ToolSpec("wait", _insist, "Wait.", of_object())

SCENARIOS = (
    Scenario(
        name="cancelled-while-a-tool-runs",
        complaint="A cancelled run cannot be continued: its last call has no answer.",
        source="pydantic/pydantic-ai#7145",
        script=(calls(LOOK), calls(call("wait")), says("done")),
        tools=(WEATHER, WAIT),
        needs=NEEDS,
        most_model_calls=2,
        runs={"get_weather": 1},
    ),
    Scenario(
        name="cancelled-beside-a-finished-tool",
        complaint="The result of a tool that finished before its batch was cancelled is discarded.",
        source="pydantic/pydantic-ai#6497",
        script=(calls(LOOK, call("wait")), says("done")),
        tools=(WEATHER, WAIT),
        needs=NEEDS,
        most_model_calls=1,
        runs={"get_weather": 1},
    ),
    Scenario(
        name="cancelled-while-a-tool-blocks",
        complaint="A sync tool that blocks holds up the cancellation.",
        source="amd/gaia#1591",
        script=(calls(LOOK), calls(call("wait")), says("done")),
        tools=(WEATHER, BLOCK),
        needs=NEEDS,
        most_model_calls=2,
        runs={"get_weather": 1},
        seconds=5,
    ),
    Scenario(
        name="cancelled-and-a-tool-ignores-it",
        complaint="A tool swallows the cancellation, and the run goes on as if nothing had happened.",
        source="openclaw/openclaw#117352",
        script=(calls(LOOK), calls(call("wait")), says("done")),
        tools=(WEATHER, INSIST),
        needs=NEEDS,
        most_model_calls=2,
        runs={"get_weather": 1},
    ),
)
