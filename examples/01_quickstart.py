"""The whole loop: a prompt, a model, a tool.

The model here is a scripted function, so that this runs without a key or a network. Any callable that
takes OpenAI's chat messages can replace it; see ``03_any_callable.py``.
"""

import asyncio
from typing import Any

from treadle import Err, Loop, Ok, Paused, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def model(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
    """Call the tool first, then answer with its result."""
    last = messages[-1]
    if last["role"] == "tool":
        return f"The sum is {last['content']}."
    function = {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    call = {"id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


async def main() -> None:
    """Run to an answer and print it, then the history."""
    result = await Loop.run(
        "What is 2 + 3?", model, tools=[add]
    )  # without asyncio: Loop.run_sync(...)
    match result:
        case Ok(response):
            print(response.content)
            print(f"{result.iterations} iterations, {result.tool_calls_count} tool call")
        case Err(reason):
            print("no answer:", reason)
        case Paused(pending):
            print("a person has to decide:", pending)
    for message in result.messages:
        print(message["role"], "|", message["content"])


asyncio.run(main())
