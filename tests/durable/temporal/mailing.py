"""A worker whose stage sends a mail that must not be sent twice, and which dies once it is sent.

``python mailing.py <address> <queue> <folder>``; the second worker of the same folder lives.
"""

import asyncio
import os
import sys
from pathlib import Path

from temporalio.client import Client

from treadle import Loop
from treadle.durable.temporal import run_worker
from treadle.effects import Call, Mode
from treadle.errors import OutcomeUnknownError


def loop_in(folder):
    """The loop, whose mails are lines of a file."""
    mails = Path(folder) / "mails"

    def send(text):
        is_first = not mails.exists()
        with mails.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        if is_first:
            os._exit(1)
        return "sent"

    def notify(ctx):
        told = []
        for text in ("first", "second"):
            try:
                told.append((yield Call(send, text, mode=Mode.THREAD, key=text, once=True)))
            except OutcomeUnknownError:
                told.append("unknown")
        return ctx.with_request(messages=[{"role": "user", "content": ", ".join(told)}])

    def repeat(messages):
        return messages[-1]["content"]

    return Loop(llm_send_fn=repeat, name="mailing", stages=[notify, ...])


async def work(address, queue, folder):
    """Run the worker until it dies or is killed."""
    client = await Client.connect(address)
    await run_worker(client, loop_in(folder), task_queue=queue)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
