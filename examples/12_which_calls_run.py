"""The plan of an iteration: which calls run together, which are deferred, which are skipped."""

from typing import Any

from treadle import CallNotRun, Loop, ToolStarted, tool
from treadle.testing import ScriptedLLM, call, calls

notes = {"list": "milk"}


@tool
def read(name: str) -> str:
    """Read a note."""
    return notes[name]


@tool(parallel_safe=False)
def write(name: str, text: str) -> str:
    """Replace a note."""
    notes[name] = text
    return "written"


def show(event: Any) -> None:
    """Print the iteration and what happened to a call."""
    match event:
        case ToolStarted(iteration=number, call=made):
            print(f"  {number}: {made.name} runs")
        case CallNotRun(iteration=number, call=made, reason=why):
            print(f"  {number}: {made.name} does not run: {why}")
        case _:
            pass


question = "Put eggs on the list."
read_it, write_it = call("read", name="list"), call("write", name="list", text="milk, eggs")
both = calls(read_it, write_it)
once, changed, duplicates = calls(read_it), calls(write_it), calls(read_it, read_it)

loop = Loop(tools=[read, write], on_event=show)
in_step = loop.with_options(sequential="in_step")

for title, used, script in (
    ("Deferred by default", loop, [both, changed, "Done."]),
    ("Run in the same iteration", in_step, [both, "Done."]),
    ("Repeated after a change", loop, [once, once, once, changed, duplicates, "Done."]),
):
    print(f"{title}:")
    result = used.run_sync(question, ScriptedLLM(*script))
    print(f"  {result.iterations} model calls, {result.tool_calls_count} tool calls")
