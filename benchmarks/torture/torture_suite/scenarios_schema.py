"""Arguments that are JSON, and not what the tool's schema says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torture_suite.log import ToolRun
from torture_suite.protocol import Fault, Scenario
from torture_suite.script import call, calls, says
from torture_suite.toolbox import WEATHER, of_object, ran_with
from torture_suite.tools import ToolSpec


async def _sum(run: ToolRun) -> str:
    return f"{sum(run.arguments['numbers'])} ({run.mark})"


SUM = ToolSpec(
    "add_up",
    _sum,
    "Add numbers up.",
    of_object(("numbers",), numbers={"type": "array", "items": {"type": "integer"}}),
)


async def _configure(run: ToolRun) -> str:
    return f"configured ({run.mark})"


CONFIGURE = ToolSpec(
    "configure",
    _configure,
    "Configure something.",
    of_object(
        ("name", "config", "type"),
        name={"type": "string"},
        config={"type": "string"},
        type={"type": "string"},
    ),
)
GIVEN = {"name": "server", "config": "fast", "type": "small"}


def _violation(
    name: str,
    complaint: str,
    source: str,
    arguments: Mapping[str, Any],
    *words: str,
    repaired: Mapping[str, Any] | None = None,
) -> Scenario:
    """A call that violates the schema. The error must contain all of the words; then the model corrects it."""
    mended = {} if repaired is None else {"get_weather": repaired}
    return Scenario(
        name=name,
        complaint=complaint,
        source=source,
        script=(
            calls(call("get_weather", arguments)),
            calls(call("get_weather", {"city": "Bern"})),
            says("done"),
        ),
        tools=(WEATHER,),
        faults=tuple(Fault((word,), 0, mended) for word in words),
        at_most={"get_weather": 1},
    )


SCENARIOS = (
    _violation(
        "field-missing",
        "A call without a required field raises TypeError and ends the run.",
        "montycloud/moya#22",
        {},
        "city",
    ),
    _violation(
        "field-null",
        "A required field that is null goes to the tool as None.",
        "required fields that are null",
        {"city": None},
        "city",
    ),
    _violation(
        "field-of-the-wrong-type",
        "Arguments are not validated, and the tool crashes with a cryptic error.",
        "coder/agentapi#231",
        {"city": "Bern", "days": "three"},
        "days",
    ),
    _violation(
        "field-a-number-in-quotes",
        "A number in quotes fails validation, and the run is cut short over a quoting detail.",
        "arcprize/ARC-AGI-3-Agents#98",
        {"city": "Bern", "days": "3"},
        "days",
        repaired={"city": "Bern", "days": 3},
    ),
    _violation(
        "field-a-fraction-for-a-whole-number",
        "1.5 for a whole number is rounded without a word.",
        "silent rounding of numbers",
        {"city": "Bern", "days": 1.5},
        "days",
    ),
    _violation(
        "field-not-in-the-enum",
        "A value outside the enum reaches the tool.",
        "enum violations",
        {"city": "Bern", "unit": "kelvin"},
        "unit",
    ),
    _violation(
        "field-unexpected",
        "A made-up parameter raises: got an unexpected keyword argument.",
        "google/adk-python#1014",
        {"city": "Bern", "mood": "happy"},
        "mood",
        repaired={"city": "Bern"},
    ),
    _violation(
        "fields-wrong-together",
        "Only the first violation is reported, so that the model needs a request for each.",
        "one violation at a time",
        {"city": 5, "days": "three"},
        "city",
        "days",
    ),
    Scenario(
        name="field-wrong-deep-inside",
        complaint="The error for an element of a list does not say which field it is in.",
        source="errors without a path",
        script=(
            calls(call("add_up", {"numbers": [1, "two", 3]})),
            calls(call("add_up", {"numbers": [1, 2, 3]})),
            says("done"),
        ),
        tools=(SUM,),
        faults=(Fault(("numbers",)),),
        at_most={"add_up": 1},
    ),
    Scenario(
        name="field-with-a-reserved-name",
        complaint="A parameter named config is replaced by the framework's own.",
        source="langchain-ai/langchain#40476",
        script=(calls(call("configure", GIVEN)), says("done")),
        tools=(CONFIGURE,),
        runs={"configure": 1},
        answer="done",
        checks={"lost": ran_with("configure", **GIVEN)},
    ),
)
