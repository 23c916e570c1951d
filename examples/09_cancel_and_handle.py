"""Three ways to cancel: the running tools, the run, and the task that runs it. None of them loses work."""

import asyncio
from typing import Any

from treadle import Loop, RunHandle, tool
from treadle.testing import call, calls, check_history

QUESTION = "Fetch it."
fetching = asyncio.Event()


@tool
async def fetch(url: str) -> str:
    """Fetch a page from a server that never responds."""
    fetching.set()
    await asyncio.sleep(60)
    return url


def model(messages: list[dict[str, Any]]) -> Any:
    """Fetch, then answer with the result."""
    if messages[-1]["role"] == "tool":
        return f"The tool returned: {messages[-1]['content']}"
    return calls(call("fetch", "call_1", url="https://example.com"))


async def start(handle: RunHandle) -> asyncio.Task[Any]:
    """Start a run, and wait until its tool is running."""
    fetching.clear()
    task = asyncio.create_task(Loop.run(QUESTION, model, tools=[fetch], handle=handle))
    await fetching.wait()
    return task


async def main() -> None:
    """Cancel three runs while a tool is running."""
    handle = RunHandle()
    task = await start(handle)
    print("in flight:", [made.name for made in handle.in_flight])
    handle.cancel_all()  # the tools are cancelled; the run continues
    print("cancel_all:", (await task).unwrap().content)

    handle = RunHandle()
    task = await start(handle)
    handle.cancel()  # the run ends, with a result
    result = await task
    print("cancel:", result.stop_reason, "|", result.messages[-1]["content"])

    handle = RunHandle()
    task = await start(handle)
    task.cancel()  # the task raises CancelledError; the handle has the history
    try:
        await task
    except asyncio.CancelledError:
        assert handle.result is not None
        assert handle.state is not None
        print("task.cancel:", handle.result.stop_reason, "|", handle.state.status)
        check_history(handle.messages)
        for message in handle.messages:
            print(" ", message["role"], "|", message["content"])


asyncio.run(main())
