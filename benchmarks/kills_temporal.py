"""Kills the workers of runs on Temporal, and the server: see `kills.py` for what is checked.

``make bench-kills`` kills 100 workers: half of them at an effect, before or after it has happened, and the others
at random times. It kills the server several times meanwhile. The same seed chooses the same effects.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar

from kills import POINTS, Effect, Recorded, Report, World, effects_of, loop_of, question
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError

from treadle.durable.temporal import (
    SQLiteBlobStore,
    TemporalRun,
    policies,
    run_worker,
    start_on_temporal,
)

sys.path.append(str(Path(__file__).parents[1]))
from tests.durable.temporal.servers import TemporalServer

T = TypeVar("T")

QUEUE = "killed"
STEPS = 3
"""The iterations of a run with calls."""
LOST_SECONDS = 3.0
"""The time without a heartbeat after which a worker is lost, so that the trial is short."""
TASK_SECONDS = 2.0
"""The same for the worker that has the workflow."""


# The worker


def store_in(folder: Path) -> SQLiteBlobStore:
    """The store of all workers and callers."""
    return SQLiteBlobStore(folder / "store.db")


async def work(address: str, folder: Path) -> None:
    """Run the worker until it is killed."""
    policies.LOST_SECONDS, policies.HEARTBEAT_SECONDS = LOST_SECONDS, LOST_SECONDS / 6
    client = await Client.connect(address)
    print("ready", flush=True)
    await run_worker(
        client,
        loop_of(World(folder)),
        task_queue=QUEUE,
        store=store_in(folder),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )


class Worker:
    """A process with a worker, which is killed with the block."""

    def __init__(self, address: str, folder: Path) -> None:
        command = [sys.executable, __file__, "--work", address, str(folder)]
        self._log = (folder / "workers.log").open("ab")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    async def ready(self) -> None:
        """Wait until it has connected."""
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line == b"ready\n", f"the worker said {line!r}"

    async def end(self) -> None:
        """Wait until it was killed."""
        while not self.is_dead:  # noqa: ASYNC110 - nothing tells when another process ends
            await asyncio.sleep(0.02)

    @property
    def is_dead(self) -> bool:
        """Whether it was killed."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


# The runs


async def start(
    client: Client, folder: Path, names: list[str], steps: int
) -> dict[str, TemporalRun]:
    """Start runs with so many iterations that have calls."""
    return {
        name: await start_on_temporal(
            client,
            "killed",
            question(name, steps),
            run_id=name,
            task_queue=QUEUE,
            store=store_in(folder),
            task_timeout=timedelta(seconds=TASK_SECONDS),
        )
        for name in names
    }


async def recorded_of(client: Client, name: str) -> Mapping[Effect, Recorded]:
    """What the history of a run has of its effects."""
    found: dict[int, Effect] = {}
    recorded: dict[Effect, Recorded] = {}
    async for event in client.get_workflow_handle(name).fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            given = json.loads(
                event.activity_task_scheduled_event_attributes.input.payloads[0].data
            )
            effect = (
                Effect.named(given["call"]["id"])
                if "call" in given
                else Effect(name, given["iteration"] - 1, "chat")
            )
            assert effect not in recorded, f"{effect} is twice in the history"
            found[event.event_id] = effect
            recorded[effect] = Recorded(0, None)
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = event.activity_task_started_event_attributes
            recorded[found[started.scheduled_event_id]] = Recorded(started.attempt, None)
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            effect = found[completed.scheduled_event_id]
            at = event.event_time.ToNanoseconds() / 1e9
            recorded[effect] = Recorded(recorded[effect].starts, at)
    return recorded


async def check(
    client: Client, world: World, runs: Mapping[str, TemporalRun], steps: int, report: Report
) -> None:
    """Wait for the results of runs, and compare them with what has happened."""
    results = {name: await run.result() for name, run in runs.items()}
    seen = world.seen()
    for name, result in results.items():
        recorded = await persistently(lambda name=name: recorded_of(client, name))
        report.add(name, steps, result, seen, recorded)


async def persistently(ask: Callable[[], Awaitable[T]]) -> T:
    """What the server answers, asked again as long as it does not answer."""
    while True:
        try:
            return await ask()
        except RPCError:
            await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def workers(address: str, folder: Path, count: int = 1) -> AsyncGenerator[list[Worker]]:
    """Some workers; each that dies is replaced at once. The list has all that have been started."""
    started: list[Worker] = []

    async def replace() -> None:
        while True:
            worker = Worker(address, folder)
            started.append(worker)
            await worker.end()

    tasks = [asyncio.create_task(replace()) for _ in range(count)]
    try:
        yield started
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for worker in started:
            worker.kill()


async def kill_one(started: list[Worker], chance: random.Random) -> None:
    """Kill one of the workers that live, as soon as there is one."""
    while not (living := [worker for worker in started if not worker.is_dead]):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    chance.choice(living).kill()


async def trial(
    kills: int, servers: int, count: int, chance: random.Random, folder: Path
) -> Report:
    """Kill workers and the server while runs are on their way; print how it goes.

    Args:
        kills: the number of workers.
        servers: how often the server is killed.
        count: the runs that are on their way at the same time; in half of them, a worker dies at an effect.
        chance: chooses the effects and the times.
        folder: for all files.
    """
    world, report = World(folder), Report()
    with TemporalServer(folder) as server:
        client = await Client.connect(server.address)
        async with workers(server.address, folder, 2) as started:
            batch = restarts = 0
            while sum(worker.is_dead for worker in started) < kills:
                batch += 1
                names = [f"r{batch}x{number}" for number in range(count)]
                for name in names[: len(names) // 2]:
                    world.plan(chance.choice(effects_of(name, STEPS)), chance.choice(POINTS))
                runs = await start(client, folder, names, STEPS)
                checking = asyncio.create_task(check(client, world, runs, STEPS, report))
                while not checking.done():
                    await asyncio.wait([checking], timeout=chance.uniform(2, 6))
                    if not checking.done():
                        await kill_one(started, chance)
                    if restarts < servers and chance.random() < 1 / 5:
                        restarts += 1
                        server.kill()
                        server.start()
                await checking
                dead = sum(worker.is_dead for worker in started)
                print(
                    f"{len(names) * batch} runs: {dead} workers and {restarts} servers killed, "
                    f"{len(report.problems)} problems",
                    flush=True,
                )
    return report


def main() -> int:
    """Read the arguments, and run the trial; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="workers to kill, at least")
    parser.add_argument("--servers", type=int, default=5, help="times to kill the server, at most")
    parser.add_argument("--runs", type=int, default=40, help="runs at the same time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        asyncio.run(work(given.work[0], Path(given.work[1])))
        return 0
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        chance = random.Random(given.seed)
        report = asyncio.run(trial(given.kills, given.servers, given.runs, chance, Path(folder)))
    for problem in report.problems:
        print(problem)
    print(
        f"{report.effects} effects, {report.again} of them began more than once, {report.unknown} were told as "
        f"unknown, {len(report.problems)} problems, {time.perf_counter() - started:.0f} s"
    )
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
