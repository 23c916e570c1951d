"""Trim the view: the model sees the question and the last messages, and the history keeps all of them.

A call and its result stay together: if a cut separated them, the request would be repaired, and the repair
reported as `HistoryRepaired` with the name of the stage.
"""

from treadle import Context, Loop, default_stages, stage, tool
from treadle.testing import ScriptedLLM, call, calls, check_history


@stage
def keep_recent(ctx: Context, *, exchanges: int = 2) -> Context:
    """Send the first message and the last exchanges.

    Args:
        ctx: the context.
        exchanges: how many assistant messages to keep, each with its results.
    """
    first, *rest = ctx.request.messages
    starts = [place for place, message in enumerate(rest) if message["role"] == "assistant"]
    if len(starts) <= exchanges:
        return ctx
    return ctx.with_request(messages=[first, *rest[starts[-exchanges] :]])


@tool
def read(page: int) -> str:
    """Read a page of the report."""
    return f"the text of page {page}"


model = ScriptedLLM(*(calls(call("read", page=page)) for page in range(1, 6)), "It is long.")
loop = Loop(tools=[read], stages=[keep_recent(exchanges=2), *default_stages()])
result = loop.run_sync("Summarize the report.", model)

for number, sent in enumerate(model.sent, 1):
    check_history(sent.messages)
    print(f"request {number}: {len(sent.messages)} messages")
print("history:", len(result.messages), "messages")
print("last request:")
for message in model.sent[-1].messages:
    shown = message["content"] or [made["function"]["arguments"] for made in message["tool_calls"]]
    print(" ", message["role"], "|", shown)
