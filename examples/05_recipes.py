"""Recipes: one call of the model expands to several calls, and their results are combined.

A resolver runs the calls of tools that have no function. A resolver with ``dispatch_recipe(name)`` can
return a recipe: serial steps, then parallel steps, whose arguments may depend on earlier results.
"""

from collections.abc import Mapping
from typing import Any

from treadle import Loop, Recipe, RecipeStep, ToolCall, ToolResult
from treadle.testing import call, calls

TRIP_REPORT = {
    "name": "trip_report",
    "description": "Report on a place: weather and tides.",
    "input_schema": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
    },
}


def location(results: Mapping[str, ToolResult]) -> dict[str, Any]:
    """Take the arguments of the parallel steps from the result of the serial one."""
    return {"at": results["locate"].content}


class Travel:
    """Runs the tools, and has a recipe for trip reports."""

    def available_tools(self) -> list[str]:
        """The names that `resolve` accepts in addition to the tools that the model is offered."""
        return ["locate", "weather", "tides"]

    def resolve(self, made: ToolCall) -> str:
        """Run one call."""
        if made.name == "locate":
            return "38.7 N, 9.1 W"
        if made.name == "tides":
            raise ConnectionError("the tide gauge is offline")
        assert made.input is not None  # it is valid
        return f"sunny at {made.input['at']}"

    def dispatch_recipe(self, name: str) -> Any:
        """Return a function from the arguments of a call to its recipe; None runs the call directly."""
        return self.trip_report if name == "trip_report" else None

    def trip_report(self, arguments: Mapping[str, Any]) -> Recipe:
        """Locate the place first, then get weather and tides at the same time. Steps fail independently."""
        first = RecipeStep("locate", {"name": arguments["place"]})
        return Recipe(
            serial=[first],
            parallel=[RecipeStep("weather", location), RecipeStep("tides", location)],
        )


def model(messages: list[dict[str, Any]]) -> Any:
    """Ask for the report, then pass it on."""
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    return calls(call("trip_report", place="Lisbon"))


result = Loop.run_sync("How is Lisbon?", model, tools=[TRIP_REPORT], resolve_tool=Travel())
print(result.unwrap().content)
print(f"\n{result.tool_calls_count} call of the model, with these steps in the run state:")
for node in result.run.nodes[0].tool_calls[0].tool_calls:
    print(f"  {node.name}: {node.status}")
