"""The stages from the calls of a response to their results, and tools for them."""

from treadle.stages import dispatch_tools, parse_tool_calls, plan_calls, validate_calls
from treadle.tools import Tool, tool

PLANNED = (parse_tool_calls, validate_calls, plan_calls)
STAGES = (*PLANNED, dispatch_tools)
IN_STEP = (*PLANNED[:2], plan_calls(sequential="in_step"), dispatch_tools)


@tool
def double(n: int):
    return n * 2


@tool
def broken(n: int):
    raise ValueError(n)


class Noting:
    """Makes tools that note their calls."""

    def __init__(self):
        self.ran = []

    def tool(self, name, **options):
        return Tool(
            name, fn=lambda n: self.ran.append(f"{name}{n}") or f"{name}{n} done", **options
        )


class Expanding:
    """A resolver that expands ``big`` by a given recipe; it resolves everything else, and ``big``, directly."""

    def __init__(self, recipe):
        self.recipe = recipe
        self.resolved = []

    def resolve(self, call):
        self.resolved.append(call.name)
        return f"direct {call.name}"

    def available_tools(self):
        return ["big", "other"]

    def dispatch_recipe(self, name):
        return (lambda arguments: self.recipe) if name == "big" else None
