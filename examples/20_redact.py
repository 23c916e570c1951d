"""Redact: the model never sees a card number, and the history keeps what the user and the tools wrote.

A stage before ``ask_model`` changes the request, which is the view that the model gets. It runs in each
iteration, so results of tools are redacted as well.
"""

import re
from collections.abc import Mapping
from typing import Any

from treadle import Context, Loop, default_stages, tool
from treadle.testing import ScriptedLLM, call, calls

CARD = re.compile(r"\b(?:\d{4} ){3}(\d{4})\b")


def redact(ctx: Context) -> Context:
    """Replace card numbers in the request by their last four digits."""
    return ctx.with_request(messages=[without_cards(message) for message in ctx.request.messages])


def without_cards(message: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a message. Messages are read-only: editing one in place raises an error."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": CARD.sub(r"[card *\1]", content)}
    return {**message}


@tool
def last_payment(name: str) -> str:
    """Look up the last payment of a customer."""
    return f"{name} paid 20 euros with 4000 1234 5678 9010"


model = ScriptedLLM(calls(call("last_payment", name="Ada")), "It was paid with the card *9010.")
loop = Loop(tools=[last_payment], stages=[redact, *default_stages()])
result = loop.run_sync("My card is 4000 1234 5678 1111. Was I charged?", model)

print("the model saw:")
for message in model.sent[-1].messages:
    print(" ", message["role"], "|", message["content"])
print("the history has:")
for message in result.messages:
    print(" ", message["role"], "|", message["content"])
