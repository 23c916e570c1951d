"""Stream a run: its text as the model writes it, and its tools as they start and finish.

`Loop.stream` is the same run as `Loop.run`, with its events. Leaving the ``async with`` early cancels it.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from treadle import Loop, tool
from treadle.events import IterationStarted, RunFinished, TextDelta, ToolFinished, ToolStarted
from treadle.testing import call, calls


@tool
async def weather(city: str) -> str:
    """Get the weather of a city."""
    await asyncio.sleep(len(city) / 100)  # a request that takes a while
    return f"{city}: 21 degrees, sunny"


async def pieces(text: str) -> AsyncIterator[str]:
    """Stream a text word by word, as a model would."""
    for word in re.findall(r"\S+\s*", text):
        yield word


def model(messages: list[dict[str, Any]]) -> Any:
    """Call the tool for two cities at once, then stream the answer."""
    if messages[-1]["role"] == "tool":
        return pieces("It is sunny in both.")
    return calls(call("weather", city="Porto"), call("weather", city="Lisbon"))


async def main() -> None:
    """Print events as they arrive."""
    async with Loop.stream("Weather in Porto and Lisbon?", model, tools=[weather]) as events:
        async for event in events:
            match event:
                case IterationStarted(iteration=number):
                    print(f"iteration {number}")
                case TextDelta(text=text):
                    print(f"  text: {text!r}")
                case ToolStarted(call=made):
                    print(f"  started:  {made.name} {made.arguments}")
                case ToolFinished(result=returned):
                    print(f"  finished: {returned.content}")
                case RunFinished(stop_reason=why):
                    print(f"finished: {why}")
                case _:
                    pass
    print("result:", events.result.unwrap().content)


asyncio.run(main())
