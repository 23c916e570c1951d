"""The whole loop: a question, a model, a tool.

The model here is a function with a script, so that this runs without a key or a network. Anything
that takes OpenAI's chat messages can stand in its place; see ``03_any_callable.py``.
"""

import asyncio
from typing import Any

from treadle import Err, Loop, Ok, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def model(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
    """Ask for the tool first, and answer with its result."""
    last = messages[-1]
    if last["role"] == "tool":
        return f"The sum is {last['content']}."
    function = {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    call = {"id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


async def main() -> None:
    """Run to an answer and look at what came of it."""
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    result = await Loop.run(messages, model, tools=[add])  # in plain code: Loop.run_sync(...)
    match result:
        case Ok(response):
            print(response.content)
            print(f"{result.iterations} iterations, {result.tool_calls_count} tool call")
        case Err(reason):
            print("no answer:", reason)
    for message in result.messages:
        print(message["role"], "|", message["content"])


asyncio.run(main())
