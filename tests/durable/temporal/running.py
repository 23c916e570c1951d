"""Running loops on a real Temporal server, with workers in this process."""

import asyncio
import contextlib
import uuid

from temporalio.client import Client

from treadle.durable.temporal import make_worker, start_on_temporal
from treadle.testing import ScriptedLLM

SECONDS = 60
"""How long a test waits for a run."""


def run(server, work, *args):
    """Run an async function that takes a client of a server."""

    async def connected():
        client = await Client.connect(server.address)
        async with asyncio.timeout(SECONDS):
            return await work(client, *args)

    return asyncio.run(connected())


@contextlib.asynccontextmanager
async def serving(client, loops, **options):
    """A worker of loops; the block gets the name of its task queue."""
    queue = options.pop("task_queue", None) or uuid.uuid4().hex
    async with make_worker(client, loops, task_queue=queue, **options):
        yield queue


async def started(client, loop, queue, messages="Hello.", **options):
    """Start a run of a loop."""
    return await start_on_temporal(client, loop, messages, task_queue=queue, **options)


async def result_of(client, loop, messages="Hello.", **options):
    """The result of a run of a loop, with a worker of its own."""
    async with serving(client, loop) as queue:
        running = await started(client, loop, queue, messages, **options)
        return await running.result()


async def until(running, is_so):
    """The state of a run, as soon as it meets a condition."""
    while True:
        state = await running.state()
        if is_so(state):
            return state
        await asyncio.sleep(0.02)


async def until_so(is_so):
    """Wait until something in this process is so."""
    while not is_so():
        await asyncio.sleep(0.01)


def llm(*responses):
    """A model that gives these responses."""
    return ScriptedLLM(*responses)
