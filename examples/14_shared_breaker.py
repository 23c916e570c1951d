"""A circuit breaker shared by several runs: a failing tool is not called until a cool-down has passed."""

from typing import Any

from treadle import BreakerChanged, CircuitBreaker, Loop, tool
from treadle.testing import call, calls


@tool
def search(words: str) -> str:
    """Search the web."""
    if not is_up:
        raise ConnectionError("no route to host")
    return f"pages on {words}"


def model(messages: list[dict[str, Any]]) -> Any:
    """Search once, then answer with the result."""
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    return calls(call("search", words="treadles"))


def show(event: Any) -> None:
    """Print state changes of the breaker."""
    if isinstance(event, BreakerChanged):
        print(f"  breaker of {event.tool}: {event.before} -> {event.after}")


breaker = CircuitBreaker(threshold=2, cool_down=60)
loop = Loop(tools=[search], breaker=breaker, on_event=show)
for number, is_up in enumerate([False, False, False, True, True], 1):
    if is_up:
        breaker.cool_down = 0  # as if a minute had passed
    print(f"run {number}")
    result = loop.run_sync("What is a treadle?", model)
    print(f"  {result.tool_calls_count} calls ran: {result.unwrap().content}")
