"""Tools and a loop that are served, on stdin and stdout."""

import sys
import time
from pathlib import Path

import anyio

from treadle import Err, Loop, Retry, ToolContext, tool
from treadle.mcp import as_mcp_server, serve_stdio
from treadle.testing import call, calls


def noted(path, line):
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


def tools_of(path):
    """The tools; one notes into a file."""

    @tool(annotations={"readOnlyHint": True})
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        print("adding")  # noqa: T201 - it must not reach the client
        return a + b

    @tool
    def fail() -> None:
        """Raise."""
        raise ValueError("no luck")

    @tool
    def refuse() -> Err:
        """Return an error."""
        return Err("not today")

    @tool
    def again() -> None:
        """Ask to try again."""
        raise Retry("use another word")

    @tool(timeout=0.2)
    async def slow() -> None:
        """Take too long."""
        await anyio.sleep(60)

    @tool
    async def hang() -> None:
        """Never end."""
        noted(path, "called hang")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            noted(path, "cancelled hang")
            raise

    @tool
    async def steps(context: ToolContext[str]) -> str:
        """Report progress."""
        context.report("one", 0.25)
        context.report("two")
        context.report("three", 0.75)
        return f"{context.deps} {context.tool_name}"

    @tool
    def picture() -> list:
        """Draw."""
        url = "data:image/png;base64,iVBORw0KGgo="
        return ["Look:", {"type": "image_url", "image_url": {"url": url}}]

    @tool(requires_approval=True)
    def wipe() -> None:
        """Remove everything."""

    @tool(lock="one")
    def locked() -> str:
        """Never overlap."""
        noted(path, "in")
        time.sleep(0.1)
        noted(path, "out")
        return "done"

    return [add, fail, refuse, again, slow, hang, steps, picture, wipe, locked]


def agent_of(path):
    """A loop that adds."""

    def model(messages, _opts=None):
        if messages[-1]["role"] == "tool":
            return f"It is {messages[-1]['content']}."
        return calls(call("add", "c1", a=1, b=len(messages[-1]["content"])))

    return Loop(name="adder", tools=tools_of(path)[:1], llm_send_fn=model)


def make(path):
    return as_mcp_server([*tools_of(path), agent_of(path)], name="mine", deps="deps")


if __name__ == "__main__":
    serve_stdio(make(sys.argv[1]))
