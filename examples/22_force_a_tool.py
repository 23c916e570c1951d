"""Force a tool first: the first request makes the model search, and the later ones leave it free."""

from treadle import Context, Loop, default_stages, tool
from treadle.testing import ScriptedLLM, call, calls


@tool
def search(words: str) -> str:
    """Search the handbook."""
    return f"Section 4 has {words}: 25 days a year."


@tool
def ask_a_colleague(question: str) -> str:
    """Ask a person. It takes a day."""
    return f"I do not know the answer to {question!r}."


def search_first(ctx: Context) -> Context:
    """Send ``tool_choice`` with the first request only."""
    if ctx.iteration == 1:
        return ctx.with_request(tools=["search"], tool_choice="required")
    return ctx


loop = Loop(tools=[search, ask_a_colleague], stages=[search_first, *default_stages()])
model = ScriptedLLM(calls(call("search", words="vacation")), "You have 25 days.")
result = loop.run_sync("How many days of vacation do I have?", model)

for number, sent in enumerate(model.sent, 1):
    offered = [offer["function"]["name"] for offer in sent.opts["tools"]]
    print(f"request {number}: tools={offered} tool_choice={sent.opts.get('tool_choice')}")
print(result.unwrap().content)
