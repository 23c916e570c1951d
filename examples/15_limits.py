"""Limits: what a run may take and cost, and the last answer that it is asked for when that is spent."""

from typing import Any

from treadle import Loop, Response, ToolContext, tool
from treadle.testing import call, calls


@tool
def look(room: str, context: ToolContext) -> str:
    """Look into a room."""
    return f"nothing in {room}; {context.remaining} are left"


def model(messages: list[dict[str, Any]]) -> Any:
    """Look into room after room, until it is told that this has to do."""
    if "final answer" in messages[-1]["content"]:
        message = {"role": "assistant", "content": "It is in none of the rooms I saw."}
    else:
        message = calls(call("look", room=f"room {len(messages) // 2 + 1}"))
    usage = {"prompt_tokens": 1_000, "completion_tokens": 50}
    return {"choices": [{"message": message}], "usage": usage}


def price(response: Response) -> float:
    """US dollars: two for a million tokens that it reads, ten for a million that it writes."""
    usage = response.usage
    return usage.input_tokens * 2e-6 + usage.output_tokens * 10e-6


loop = Loop(tools=[look], cost_of=price)
question = [{"role": "user", "content": "Where is the key?"}]

for options in ({"max_iterations": 2}, {"max_cost": 0.006}):
    for on_limit in ("stop", "finish"):
        result = loop.run_sync(question, model, on_limit=on_limit, **options)
        print(f"{options}, {on_limit}: {result.stop_reason}, ${result.usage.cost:.4f}")
        print("  limit: ", result.reason if on_limit == "stop" else result.limit)
        print("  last:  ", result.messages[-1]["content"])
