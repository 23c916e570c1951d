"""Subagents: a researcher is a tool of an editor, and both draw on the editor's limits."""

from typing import Any

from treadle import IterationStarted, Limits, Loop, SubagentEvent, ToolStarted, tool
from treadle.testing import ScriptedLLM, call, calls


@tool
def search(words: str) -> str:
    """Search the library."""
    return f"two books on {words}"


def researching(messages: list[dict[str, Any]]) -> Any:
    """Search for the task, then report what was found."""
    last = messages[-1]
    if last["role"] == "tool":
        return f"There are {last['content']}."
    return calls(call("search", words=last["content"]))


def show(event: Any, margin: str = "  ") -> None:
    """Print events; those of a subagent arrive as `SubagentEvent`."""
    match event:
        case SubagentEvent(event=inner):
            show(inner, margin + "    ")
        case IterationStarted(iteration=number):
            print(f"{margin}model call {number}")
        case ToolStarted(call=made):
            print(f"{margin}{made.name} {made.arguments}")
        case _:
            pass


researcher = Loop(tools=[search], name="researcher", max_iterations=5)
research = researcher.as_tool("research", "Research a topic.", researching)
editor = Loop(tools=[research], name="editor", on_event=show)
question = "Write about water."

for most in (7, 4):  # the model calls of both
    print(f"max_requests={most}")
    tasks = [calls(call("research", task=task)) for task in ("rivers", "lakes")]
    editing = ScriptedLLM(*tasks, "Here is an article on water.")
    limits = Limits(max_requests=most, on_limit="finish")
    result = editor.run_sync(question, editing, limits=limits)
    print(f"{result.stop_reason}, after the results:")
    for message in result.messages:
        if message["role"] == "tool":
            print(" ", message["content"])
