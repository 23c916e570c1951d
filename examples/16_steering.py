"""Steering: a user message is added while a run is in progress; the next request includes it."""

import asyncio
from typing import Any

from treadle import Loop, RunHandle, tool
from treadle.testing import call, calls

counting = asyncio.Event()
steered = asyncio.Event()


@tool
async def count(start: int) -> str:
    """Count three numbers."""
    counting.set()
    await steered.wait()  # a slow tool
    return f"{start}, {start + 1}, {start + 2}"


def model(messages: list[dict[str, Any]]) -> Any:
    """Count until a second user message arrives."""
    if messages[-1]["role"] == "user" and len(messages) > 1:
        return "I stopped at three."
    return calls(call("count", start=len(messages)))


async def main() -> None:
    """Start a run, and add a message while its tool is running."""
    handle = RunHandle()
    question = "Count to a million."
    run = asyncio.create_task(Loop.run(question, model, tools=[count], handle=handle))
    await counting.wait()
    print("in time:", handle.steer("Three is enough."))
    steered.set()
    result = await run
    print("too late:", handle.steer("Go on!"))
    for message in result.messages:
        print(" ", message["role"], "|", message["content"])


asyncio.run(main())
