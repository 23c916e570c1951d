"""Any callable is a model: the same run with five of them, and nothing to subclass.

The signature of a callable decides, once per run, how it is called. What it returns becomes a response.
"""

import json
from typing import Any

from treadle import Chunk, Loop, tool

Messages = list[dict[str, Any]]


@tool
def upper(text: str) -> str:
    """Put a text in capitals."""
    return text.upper()


def script(messages: Messages) -> Any:
    """The script of all of them: a call first, then its result."""
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    function = {"name": "upper", "arguments": json.dumps({"text": "hello"})}
    return {
        "role": "assistant",
        "tool_calls": [{"function": function}],
    }  # without an id: it gets one


def plain(messages: Messages) -> Any:
    """A sync function."""
    return script(messages)


async def asynchronous(messages: Messages) -> Any:
    """An async function."""
    return script(messages)


def with_opts(messages: Messages, opts: dict[str, Any]) -> Any:
    """A function that takes the options of the request as a dict; ``**opts`` works too."""
    offered = [offer["function"]["name"] for offer in opts["tools"]]
    print(f"  (called with temperature={opts['temperature']} and tools={offered})")
    return script(messages)


def completing(messages: Messages) -> Any:
    """A function that returns a chat completion, as OpenAI's API does."""
    said = script(messages)
    message = {"role": "assistant", "content": said} if isinstance(said, str) else said
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


def in_pieces(messages: Messages) -> Any:
    """A function that streams its text, and returns a call in one piece."""
    said = script(messages)
    if isinstance(said, str):
        return iter([Chunk(said[:2]), Chunk(said[2:])])
    return completing(messages)


# The client of OpenAI's SDK, sync or async, works too:
# functools.partial(OpenAI(max_retries=0).chat.completions.create, model="gpt-5-mini").

for model in (plain, asynchronous, with_opts, completing, in_pieces):
    llm_opts = {"temperature": 0} if model is with_opts else {}
    result = Loop.run_sync("hi", model, tools=[upper], llm_opts=llm_opts)
    print(f"{model.__name__}: {result.unwrap().content}, {result.iterations} iterations")
