"""Approvals across processes: one writes a paused run to a file, another resumes it with decisions."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from treadle import Loop, Paused, approve, deny, edit, tool
from treadle.testing import call, calls

SMALL = 100  # dollars


@tool(requires_approval=lambda arguments: arguments["amount"] > SMALL)
def pay(name: str, amount: int) -> str:
    """Send money to a person."""
    return f"paid {amount} to {name}"


def model(messages: list[dict[str, Any]]) -> Any:
    """Pay all bills at once, then report it."""
    if messages[-1]["role"] == "tool":
        return "All is settled."
    bills = {"Ada": 50, "Bob": 500, "Cy": 900, "Dee": 1000}
    return calls(*(call("pay", name, name=name, amount=bill) for name, bill in bills.items()))


loop = Loop(tools=[pay])
if len(sys.argv) == 1:  # the first process
    paused = loop.run_sync("Pay the bills.", model)
    assert isinstance(paused, Paused)
    print(f"paused, {paused.tool_calls_count} call ran")
    for waiting in paused.pending:
        print(f"  {waiting.call_id} waits: {waiting.name} {waiting.arguments}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "paused.json"
        paused.save(file)
        subprocess.run([sys.executable, __file__, file], check=True)  # noqa: S603 - this file
        print("files left:", len(list(Path(folder).iterdir())))
else:  # the second
    answers = {
        "Bob": approve,
        "Cy": deny("paid last week"),
        "Dee": edit({"name": "Dee", "amount": 10}),
    }
    saved = Paused.load(sys.argv[1])
    decisions = {waiting.id: answers[waiting.arguments["name"]] for waiting in saved.pending}
    result = loop.resume_sync(sys.argv[1], decisions, model)
    print(f"{result.stop_reason}, {result.tool_calls_count} calls ran in all")
    for message in result.messages[2:]:
        print(" ", message["role"], "|", message["content"].replace("\n", " "), flush=True)
