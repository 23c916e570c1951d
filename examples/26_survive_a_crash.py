"""A run that survives the end of its process: what was done is not done again."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from treadle import Loop, tool
from treadle.durable import SQLiteJournal
from treadle.testing import call, calls


@tool(idempotent=True)
def look_up(order: str) -> float:
    """Look up what an order costs."""
    print(f"  looking up order {order}", flush=True)
    return 12.5


@tool
def charge(order: str, amount: float) -> str:
    """Charge the customer of an order."""
    print(f"  charging {amount} for order {order}", flush=True)
    if "--crash" in sys.argv:
        os._exit(1)  # no cleanup, as when the machine loses its power
    return "charged"


@tool(idempotent=True)
def find_charges(order: str) -> str:
    """Find the charges of an order."""
    return f"order {order}: one charge of 12.5"


def model(messages: list[dict[str, Any]]) -> object:
    """Stand for a model, which sees nothing but the messages."""
    said = messages[-1]["content"]
    if messages[-1]["role"] == "user":
        return calls(call("look_up", order="17"))
    if said == "12.5":
        return calls(call("charge", order="17", amount=12.5))
    if said.startswith("Unknown:"):
        print(f"  the model reads: {said}")
        return calls(call("find_charges", order="17"))
    return "Order 17 is paid."


def run(path: str) -> None:
    """Run the loop, or continue the run if it exists."""
    loop = Loop(tools=[look_up, charge, find_charges])
    result = loop.run_sync("Pay order 17.", model, journal=SQLiteJournal(path), run_id="order-17")
    print(" ", result.unwrap().content)


if __name__ == "__main__":
    if "--crash" in sys.argv:
        run(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        journal = str(Path(folder) / "runs.db")
        print("a process:", flush=True)
        command = [sys.executable, __file__, journal, "--crash"]
        ended = subprocess.run(command, check=False)  # noqa: S603 - this file
        print(f"it ended with status {ended.returncode}. Another process:", flush=True)
        run(journal)
        print("once more, the result is there at once:")
        run(journal)
