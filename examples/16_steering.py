"""Steering: somebody says something while the run goes on, and the model hears it with the next request."""

import asyncio
from typing import Any

from treadle import Loop, RunHandle, tool
from treadle.testing import call, calls

counting = asyncio.Event()
heard = asyncio.Event()


@tool
async def count(start: int) -> str:
    """Count on."""
    counting.set()
    await heard.wait()  # it takes its time
    return f"{start}, {start + 1}, {start + 2}"


def model(messages: list[dict[str, Any]]) -> Any:
    """Count until it is told to stop."""
    if messages[-1]["role"] == "user" and len(messages) > 1:
        return "I stopped at three."
    return calls(call("count", start=len(messages)))


async def main() -> None:
    """Start a run, and say something while its tool is at work."""
    handle = RunHandle()
    question = [{"role": "user", "content": "Count to a million."}]
    run = asyncio.create_task(Loop.run(question, model, tools=[count], handle=handle))
    await counting.wait()
    print("in time:", handle.steer("Three is enough."))
    heard.set()
    result = await run
    print("too late:", handle.steer("Go on!"))
    for message in result.messages:
        print(" ", message["role"], "|", message["content"])


asyncio.run(main())
