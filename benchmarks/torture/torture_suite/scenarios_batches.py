"""Several calls at once: their ids, their number, their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from torture_suite.evidence import Evidence, whole_text
from torture_suite.log import ToolRun
from torture_suite.protocol import Fault, Scenario
from torture_suite.scenarios_arguments import NO_JSON
from torture_suite.script import NO_ID, call, calls, says
from torture_suite.toolbox import FAIL, PING, WEATHER, answers_fit
from torture_suite.tools import ToolSpec

BERN, BASEL = {"city": "Bern"}, {"city": "Basel"}


async def _unequal(run: ToolRun) -> str:
    await asyncio.sleep(0.2 if run.arguments["city"] == "Bern" else 0.01)
    return f"Sunny in {run.arguments['city']} ({run.mark})."


async def _slow(run: ToolRun) -> str:
    await asyncio.sleep(0.02)
    return f"Sunny in {run.arguments['city']} ({run.mark})."


UNEQUAL = ToolSpec("get_weather", _unequal, WEATHER.description, WEATHER.parameters)
SLOW = ToolSpec("get_weather", _slow, WEATHER.description, WEATHER.parameters)


def _says_text_too(evidence: Evidence) -> Iterator[str]:
    if len(evidence.asked) > 1 and "Let me look" not in whole_text(evidence.asked[1].messages):
        yield "the text next to the call is not in the next request"


def _many(count: int) -> dict[str, object]:
    return calls(*(call("get_weather", {"city": f"City{number}."}) for number in range(count)))


SCENARIOS = (
    Scenario(
        name="ids-twice-in-a-batch",
        complaint="Two calls with the same id: only the last one runs, and the first is forgotten.",
        source="huggingface/smolagents#2768",
        script=(
            calls(call("get_weather", BERN, id="same"), call("get_weather", BASEL, id="same")),
            says("done"),
        ),
        tools=(WEATHER,),
        may_stop=True,
        runs={"get_weather": 2},
        answer="done",
    ),
    Scenario(
        name="ids-missing",
        complaint="A provider gives no ids, and the agent fails.",
        source="run-llama/llama_index#19789",
        script=(
            calls(call("get_weather", BERN, id=NO_ID), call("get_weather", BASEL, id=NO_ID)),
            says("done"),
        ),
        tools=(WEATHER,),
        runs={"get_weather": 2},
        answer="done",
    ),
    Scenario(
        name="ids-empty",
        complaint="A provider gives empty ids, and no result finds its call.",
        source="microsoft/autogen#5509",
        script=(
            calls(call("get_weather", BERN, id=""), call("get_weather", BASEL, id="")),
            says("done"),
        ),
        tools=(WEATHER,),
        runs={"get_weather": 2},
        answer="done",
    ),
    Scenario(
        name="ids-used-again-later",
        complaint="A server restarts its call ids with each response, and results of the later calls are dropped.",
        source="NousResearch/hermes-agent#70724",
        script=(
            calls(call("get_weather", BERN, id="call_0")),
            calls(call("get_weather", BASEL, id="call_0")),
            says("done"),
        ),
        tools=(WEATHER,),
        runs={"get_weather": 2},
        answer="done",
        checks={"lost": answers_fit},
    ),
    Scenario(
        name="duplicates-in-a-batch",
        complaint="The same call twice in one batch leaves one of the two unanswered.",
        source="langchain-ai/langchain#38708",
        script=(calls(call("get_weather", BERN), call("get_weather", BERN)), says("done")),
        tools=(WEATHER,),
        runs={"get_weather": 1},
        at_most={"get_weather": 2},
        answer="done",
    ),
    Scenario(
        name="good-beside-malformed",
        complaint="One malformed call in a batch fails its siblings, too.",
        source="hud-evals/hud-python#480",
        script=(
            calls(call("get_weather", BERN), call("get_weather", '{"city": "Ba')),
            says("done"),
        ),
        tools=(WEATHER,),
        faults=(Fault(NO_JSON),),
        runs={"get_weather": 1},
        at_most={"get_weather": 1},
        answer="done",
    ),
    Scenario(
        name="failing-beside-slow",
        complaint="One tool raises, and the result of a slower sibling is thrown away.",
        source="openai/openai-agents-python#2584",
        script=(calls(call("get_weather", BERN), call("save")), says("done")),
        tools=(UNEQUAL, FAIL),
        faults=(Fault(),),
        runs={"get_weather": 1},
        answer="done",
    ),
    Scenario(
        name="results-out-of-order",
        complaint="The faster call's result is taken for the slower one's.",
        source="results under the wrong id",
        script=(calls(call("get_weather", BERN), call("get_weather", BASEL)), says("done")),
        tools=(UNEQUAL,),
        runs={"get_weather": 2},
        answer="done",
        checks={"lost": answers_fit},
    ),
    Scenario(
        name="text-beside-calls",
        complaint="A reply with text and calls is split in two, and the provider refuses the history.",
        source="microsoft/agent-framework#694",
        script=(calls(call("get_weather", BERN), text="Let me look."), says("done")),
        tools=(WEATHER,),
        runs={"get_weather": 1},
        answer="done",
        checks={"lost": _says_text_too},
    ),
    Scenario(
        name="fifty-calls",
        complaint="A large batch comes back with every result unavailable.",
        source="NousResearch/hermes-agent#93298",
        script=(_many(50), says("done")),
        tools=(WEATHER,),
        runs={"get_weather": 1},
        answer="done",
    ),
    Scenario(
        name="a-hundred-slow-calls",
        complaint="All calls of a batch start at once, without any bound, and exhaust what they use.",
        source="openai/openai-agents-python#2599",
        script=(_many(100), says("done")),
        tools=(SLOW,),
        runs={"get_weather": 1},
        most_at_once=64,
        answer="done",
    ),
    Scenario(
        name="two-thousand-calls",
        complaint="The model calls tools without end in a single reply, and the loop chokes on it.",
        source="pydantic/pydantic-ai#1105",
        script=(calls(*(call("ping") for _ in range(2_000))), says("done")),
        tools=(PING,),
        runs={"ping": 1},
        answer="done",
        seconds=20,
    ),
)
