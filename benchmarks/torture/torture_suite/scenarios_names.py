"""Calls of tools that do not exist, or not under that name."""

from __future__ import annotations

from typing import Any

from torture_suite.protocol import Fault, Scenario
from torture_suite.script import call, calls, says
from torture_suite.toolbox import PING, WEATHER, reported_briefly

BERN = {"city": "Bern"}


def _named(
    name: str,
    complaint: str,
    source: str,
    written: str,
    words: tuple[str, ...] | None,
    *,
    is_clear: bool = False,
    **more: Any,
) -> Scenario:
    """A call with a name that no tool has; once this is reported, the model uses the right name."""
    repaired = {"get_weather": BERN} if is_clear else {}
    return Scenario(
        name=name,
        complaint=complaint,
        source=source,
        script=(calls(call(written, BERN)), calls(call("get_weather", BERN)), says("done")),
        tools=(WEATHER, PING),
        faults=(Fault(words, 0, repaired),),
        **more,
    )


SCENARIOS = (
    _named(
        "name-unknown",
        "The model calls a tool that does not exist, and the whole run is aborted.",
        "openai/openai-agents-python#3459",
        "search_web",
        ("search_web", "get_weather"),
    ),
    _named(
        "name-unknown-and-tools-not-listed",
        "The error for an unknown name does not say which tools there are, so it is tried again.",
        "livekit/agents#6085",
        "search_web",
        ("get_weather",),
    ),
    _named(
        "name-nearly-right",
        "The model misremembers a tool's name, and the program crashes.",
        "aliasrobotics/cai#405",
        "get_wether",
        ("get_weather",),
        is_clear=True,
    ),
    _named(
        "name-in-other-case",
        "The name in other case is unknown, and the turn ends with an empty answer.",
        "odysseus-dev/odysseus#5202",
        "Get_Weather",
        ("get_weather",),
        is_clear=True,
    ),
    _named(
        "name-with-a-prefix",
        "The model puts functions. in front, as it has seen in training, and the tool is not found.",
        "run-llama/llama_index#12483",
        "functions.get_weather",
        ("get_weather", "functions"),
        is_clear=True,
    ),
    _named(
        "name-empty",
        "A call with an empty name makes the workflow fail.",
        "run-llama/llama_index#19789",
        "",
        None,
    ),
    _named(
        "name-with-characters-that-names-cannot-have",
        "A made-up name with spaces stays in the history, and the provider refuses every later request.",
        "mcp-use/mcp-use#90",
        "get the weather!",
        None,
        is_strict=True,
    ),
    _named(
        "name-of-a-hundred-thousand-characters",
        "The model repeats itself inside a tool's name, and the error repeats it once more.",
        "names without end",
        "get_weather_" * 8_000,
        None,
        checks={"reported": reported_briefly()},
    ),
    Scenario(
        name="name-unknown-beside-a-good-call",
        complaint="One unknown name in a batch loses the work of all the others.",
        source="openai/openai-agents-python#2957",
        script=(
            calls(call("get_weather", BERN), call("search_web", {"query": "weather"})),
            says("done"),
        ),
        tools=(WEATHER,),
        faults=(Fault(("search_web", "get_weather")),),
        runs={"get_weather": 1},
        answer="done",
    ),
)
