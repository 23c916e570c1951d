"""Models that never finish, limits, and progress that must not be taken for a loop."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from torture_suite.log import ToolRun
from torture_suite.protocol import (
    MAX_ITERATIONS,
    MAX_SECONDS,
    MAX_TOOL_CALLS,
    Scenario,
)
from torture_suite.script import Request, always, call, calls, says
from torture_suite.toolbox import FAIL, PING, WEATHER, of_object
from torture_suite.tools import ToolSpec

BERN = {"city": "Bern"}


def _another(request: Request, count: int = 1) -> dict[str, Any]:
    """Calls that were not made before."""
    cities = (f"City{request.index}.{number}." for number in range(count))
    return calls(*(call("get_weather", {"city": city}) for city in cities))


def _in_turn(request: Request) -> dict[str, Any]:
    return calls(call("ping") if request.index % 2 else call("get_weather", BERN))


async def _wait(_: ToolRun) -> str:
    await asyncio.sleep(60)
    return "late"


WAIT = ToolSpec("wait", _wait, "Wait for a minute.", of_object())


async def _status(run: ToolRun) -> str:
    share = 25 * len(run.log.of("job_status"))
    return f"{share}% done ({run.mark})"


STATUS = ToolSpec("job_status", _status, "Return the progress of the job.", of_object())
POLLED = dataclasses.replace(STATUS, is_volatile=True)


async def _read(run: ToolRun) -> str:
    writes = sum(write.succeeded for write in run.log.of("write_file"))
    return f"version {writes} ({run.mark})"


async def _write(run: ToolRun) -> str:
    return f"written ({run.mark})"


PATH = of_object(("path",), path={"type": "string"})
READ = ToolSpec("read_file", _read, "Read a file.", PATH)
WRITE = ToolSpec("write_file", _write, "Write a file.", PATH)
NOTES = {"path": "notes.txt"}

SCENARIOS = (
    Scenario(
        name="same-call-for-ever",
        complaint="The model makes the same call again and again, and nothing stops it: 220 times.",
        source="earendil-works/pi#9637",
        script=always(calls(call("get_weather", BERN))),
        tools=(WEATHER,),
        runs={"get_weather": 1},
    ),
    Scenario(
        name="two-calls-in-turn-for-ever",
        complaint="The model goes back and forth between two calls, which no detector sees.",
        source="felinics/Memoh#1032",
        script=_in_turn,
        tools=(WEATHER, PING),
        runs={"get_weather": 1, "ping": 1},
    ),
    Scenario(
        name="failing-call-for-ever",
        complaint="A tool fails with the same error each time, and the model keeps trying.",
        source="HKUDS/nanobot#5169",
        script=always(calls(call("save"))),
        tools=(FAIL,),
    ),
    Scenario(
        name="new-call-for-ever",
        complaint="The agent always finds something more to look up.",
        source="openai/openai-agents-js#512",
        script=_another,
        tools=(WEATHER,),
        runs={"get_weather": 3},
    ),
    Scenario(
        name="unknown-name-for-ever",
        complaint="The model insists on a tool that does not exist.",
        source="livekit/agents#6085",
        script=always(calls(call("search_web", {"query": "weather"}))),
        tools=(WEATHER,),
    ),
    Scenario(
        name="malformed-for-ever",
        complaint="Malformed arguments are answered with an error without limit, and use tokens without limit.",
        source="HKUDS/nanobot#5169",
        script=always(calls(call("get_weather", '{"city": "Be'))),
        tools=(WEATHER,),
        at_most={"get_weather": 0},
    ),
    Scenario(
        name="blank-for-ever",
        complaint="Empty answers are retried until the turns run out.",
        source="models that say nothing",
        script=always(says("")),
        tools=(WEATHER,),
    ),
    Scenario(
        name="iteration-limit",
        complaint="At the limit of iterations all that was found out is gone.",
        source="openai/openai-agents-python#719",
        script=_another,
        tools=(WEATHER,),
        needs=frozenset({MAX_ITERATIONS}),
        max_iterations=4,
        most_model_calls=6,
        runs={"get_weather": 3},
    ),
    Scenario(
        name="tool-call-limit",
        complaint="Only requests are limited, not the tool calls that one of them makes.",
        source="pydantic/pydantic-ai#2593",
        script=lambda request: _another(request, 3),
        tools=(WEATHER,),
        needs=frozenset({MAX_TOOL_CALLS}),
        max_tool_calls=5,
        runs={"get_weather": 3},
    ),
    Scenario(
        name="tool-call-limit-within-a-batch",
        complaint="All calls of a batch start before the limit is looked at.",
        source="pydantic/pydantic-ai#2978",
        script=(lambda request: _another(request, 8), says("done")),
        tools=(WEATHER,),
        needs=frozenset({MAX_TOOL_CALLS}),
        max_tool_calls=5,
    ),
    Scenario(
        name="time-limit",
        complaint="A run past its deadline is killed, and what was done is lost with it.",
        source="Illospace/illospace#505",
        script=(calls(call("get_weather", BERN)), calls(call("wait")), says("done")),
        tools=(WEATHER, WAIT),
        needs=frozenset({MAX_SECONDS}),
        max_seconds=0.5,
        runs={"get_weather": 1},
    ),
    Scenario(
        name="polling-is-no-loop",
        complaint="Asking for the status of a job four times is taken for a loop and aborted.",
        source="macanderson/stella#359",
        script=(*(calls(call("job_status")) for _ in range(4)), says("done")),
        tools=(POLLED,),
        runs={"job_status": 4},
        answer="done",
    ),
    Scenario(
        name="undeclared-polling-is-no-loop",
        complaint="Each answer of a tool differs, and the detector looks at its arguments alone.",
        source="QwenLM/qwen-code#9492",
        script=(*(calls(call("job_status")) for _ in range(4)), says("done")),
        tools=(STATUS,),
        runs={"job_status": 4},
        answer="done",
    ),
    Scenario(
        name="reading-again-after-a-write-is-no-loop",
        complaint="A file is not read again after it was written, because it was read before.",
        source="openclaw/openclaw#77491",
        script=(
            calls(call("read_file", NOTES)),
            calls(call("write_file", NOTES)),
            calls(call("read_file", NOTES)),
            says("done"),
        ),
        tools=(READ, WRITE),
        runs={"read_file": 2, "write_file": 1},
        answer="done",
    ),
)
