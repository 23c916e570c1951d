"""Three ways to stop: the tools alone, the run, and the task that runs it. None of them loses work."""

import asyncio
from typing import Any

from treadle import Loop, RunHandle, tool
from treadle.testing import call, calls, check_history

QUESTION = [{"role": "user", "content": "Fetch it."}]
fetching = asyncio.Event()


@tool
async def fetch(url: str) -> str:
    """Fetch a page that never comes."""
    fetching.set()
    await asyncio.sleep(60)
    return url


def model(messages: list[dict[str, Any]]) -> Any:
    """Fetch, then answer with what the fetching brought."""
    if messages[-1]["role"] == "tool":
        return f"I was told: {messages[-1]['content']}"
    return calls(call("fetch", "call_1", url="https://example.com"))


async def start(handle: RunHandle) -> asyncio.Task[Any]:
    """Start a run, and wait until its tool is under way."""
    fetching.clear()
    task = asyncio.create_task(Loop.run(QUESTION, model, tools=[fetch], handle=handle))
    await fetching.wait()
    return task


async def main() -> None:
    """Stop three runs in the middle of a tool."""
    handle = RunHandle()
    task = await start(handle)
    print("in flight:", [made.name for made in handle.in_flight])
    handle.cancel_all()  # the tools stop; the model goes on, and is told
    print("cancel_all:", (await task).unwrap().content)

    handle = RunHandle()
    task = await start(handle)
    handle.cancel()  # the run ends, with a result
    result = await task
    print("cancel:", result.stop_reason, "|", result.messages[-1]["content"])

    handle = RunHandle()
    task = await start(handle)
    task.cancel()  # cancellation stays cancellation; the handle has what was done
    try:
        await task
    except asyncio.CancelledError:
        print("task.cancel:", handle.result.stop_reason, "|", handle.state.status)
        check_history(handle.messages)
        for message in handle.messages:
            print(" ", message["role"], "|", message["content"])


asyncio.run(main())
