"""Dispatch recipes: one call of the model that expands to several, and a result composed of theirs.

A resolver runs the calls of tools that have no function. One with ``dispatch_recipe(name)`` may answer
a call with a recipe: serial steps, then parallel ones, whose arguments may depend on earlier results.
"""

from collections.abc import Mapping
from typing import Any

from treadle import Loop, Recipe, Step, ToolCall, ToolResult
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


def there(results: Mapping[str, ToolResult]) -> dict[str, Any]:
    """Take the arguments of the parallel steps from the result of the serial one."""
    return {"at": results["locate"].content}


class Travel:
    """Runs the tools, and knows how to cook a trip report."""

    def available_tools(self) -> list[str]:
        """The names that `resolve` answers to, beside the tools that the model is offered."""
        return ["locate", "weather", "tides"]

    def resolve(self, made: ToolCall) -> str:
        """Run one call."""
        if made.name == "locate":
            return "38.7 N, 9.1 W"
        if made.name == "tides":
            raise ConnectionError("the tide gauge is offline")
        return f"sunny at {made.input['at']}"

    def dispatch_recipe(self, name: str) -> Any:
        """A function from the arguments of a call to its recipe; None to run the call directly."""
        return self.trip_report if name == "trip_report" else None

    def trip_report(self, arguments: Mapping[str, Any]) -> Recipe:
        """Find the place first, then look at weather and tides at once. A failed step stays alone."""
        first = Step("locate", {"name": arguments["place"]})
        return Recipe(serial=[first], parallel=[Step("weather", there), Step("tides", there)])


def model(messages: list[dict[str, Any]]) -> Any:
    """Ask for the report, then pass it on."""
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    return calls(call("trip_report", place="Lisbon"))


messages = [{"role": "user", "content": "How is Lisbon?"}]
result = Loop.run_sync(messages, model, tools=[TRIP_REPORT], resolve_tool=Travel())
print(result.unwrap().content)
print(f"\n{result.tool_calls_count} call of the model, and below it in the record:")
for node in result.run.nodes[0].tool_calls[0].tool_calls:
    print(f"  {node.name}: {node.status}")
