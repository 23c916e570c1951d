"""Limits: how much a run may use, and a last answer once a limit is reached."""

import dataclasses
from typing import Any

from treadle import Err, Limits, Loop, Ok, Response, ToolContext, Usage, tool
from treadle.testing import call, calls


@tool
def look(room: str, context: ToolContext) -> str:
    """Search a room."""
    return f"nothing in {room}; remaining: {context.remaining}"


def model(messages: list[dict[str, Any]]) -> Any:
    """Search one room after another, until the request asks for the final answer."""
    if "final answer" in messages[-1]["content"]:
        message = {"role": "assistant", "content": "It is in none of the rooms that I searched."}
    else:
        message = calls(call("look", room=f"room {len(messages) // 2 + 1}"))
    usage = {"prompt_tokens": 1_000, "completion_tokens": 50}
    return {"choices": [{"message": message}], "usage": usage}


def cost_of(response: Response) -> float:
    """Return the cost in US dollars: 2 per million input tokens, 10 per million output tokens."""
    usage = response.usage or Usage()
    return usage.input_tokens * 2e-6 + usage.output_tokens * 10e-6


loop = Loop(tools=[look])
question = "Where is the key?"

for name, limits in (
    ("max_iterations=2", Limits(max_iterations=2, cost_of=cost_of)),
    ("max_cost=0.006", Limits(max_cost=0.006, cost_of=cost_of)),
):
    for ending in (limits, dataclasses.replace(limits, on_limit="finish")):
        result = loop.run_sync(question, model, limits=ending)
        print(f"{name}, {ending.on_limit}: {result.stop_reason}, ${result.usage.cost:.4f}")
        if isinstance(result, Ok | Err):
            print("  limit: ", result.limit if isinstance(result, Ok) else result.reason)
        print("  last:  ", result.messages[-1]["content"])
