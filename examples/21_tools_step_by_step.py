"""Offer tools step by step: the model can book a flight only after it has searched for one.

``with_request(tools=...)`` offers some of the tools in one request. ``with_tools(add=..., remove=...)``
changes the tools from now on, also to tools that the loop did not start with.
"""

from treadle import Context, Loop, default_stages, tool
from treadle.testing import ScriptedLLM, call, calls


@tool
def search(to: str) -> str:
    """Search for flights."""
    return f"flight 12 to {to}, 90 euros"


@tool
def book(flight: int) -> str:
    """Book a flight."""
    return f"flight {flight} is booked"


@tool
def cancel(flight: int) -> str:
    """Cancel a booking."""
    return f"flight {flight} is cancelled"


def search_before_booking(ctx: Context) -> Context:
    """Offer ``search`` alone until one of its calls has succeeded."""
    if "found" in ctx.memo:
        return ctx
    return ctx.with_request(tools=["search"])


def note_progress(ctx: Context) -> Context:
    """Remember that a search succeeded; after a booking, offer its cancellation."""
    for made in ctx.tool_calls:
        if ctx.tool_results[made.id].is_error:
            continue
        if made.name == "search":
            ctx = ctx.remember("found", True)
        elif made.name == "book":
            ctx = ctx.with_tools(add=[cancel], remove=["book"])
    return ctx


loop = Loop(tools=[search, book], stages=[search_before_booking, *default_stages(), note_progress])
model = ScriptedLLM(
    calls(call("book", flight=7)),  # not offered yet: answered, and does not run
    calls(call("search", to="Oslo")),
    calls(call("book", flight=12)),
    "You are on flight 12.",
)
result = loop.run_sync("Book a flight to Oslo.", model)
for number, sent in enumerate(model.sent, 1):
    print(f"request {number} offers", [offer["function"]["name"] for offer in sent.opts["tools"]])
for message in result.messages:
    if message["role"] == "tool":
        print(" ", message["content"])
