"""Workers and servers that are killed: what happens twice, what is lost, and what the model is told of it.

`make bench-kills` does the same a hundred times.
"""

import asyncio
import random
import sys
from pathlib import Path

import pytest
from temporalio.client import Client

from .servers import TemporalServer

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import kills_temporal as killing
from kills import POINTS, Report, World, effects_of

SECONDS = 150
"""How long a test waits for its runs."""


class Trial:
    """Runs on a server of their own, and what was found of them."""

    def __init__(self, folder, client, server):
        self.folder = folder
        self.client = client
        self.server = server
        self.world = World(folder)
        self.report = Report()

    def workers(self, count=1):
        return killing.workers(self.server.address, self.folder, count)

    def worker(self):
        return killing.Worker(self.server.address, self.folder)

    async def started(self, names, steps=2):
        """A task that waits for the runs, and compares them with what has happened."""
        runs = await killing.start(self.client, self.folder, names, steps)
        return asyncio.create_task(killing.check(self.client, self.world, runs, steps, self.report))

    async def until(self, is_so):
        """Wait until what has happened meets a condition."""
        while not is_so(self.world.seen()):
            await asyncio.sleep(0.02)


@pytest.fixture
def trial(tmp_path):
    """Runs an async function that takes a `Trial`; returns what was found."""

    def run(body):
        async def tried():
            with TemporalServer(tmp_path) as server:
                client = await Client.connect(server.address)
                made = Trial(tmp_path, client, server)
                async with asyncio.timeout(SECONDS):
                    await body(made)
                return made.report

        report = asyncio.run(tried())
        assert report.problems == []
        return report

    return run


def test_a_worker_dies_before_and_after_each_effect(trial):
    async def body(trial):
        points = [(effect, point) for effect in effects_of("r", 1) for point in POINTS]
        names = [f"r{number}" for number in range(len(points))]
        for name, (effect, point) in zip(names, points, strict=True):
            trial.world.plan(effect._replace(run=name), point)
        async with trial.workers(2) as workers:
            await (await trial.started(names, 1))
        assert sum(worker.is_dead for worker in workers) >= 4

    report = trial(body)
    assert report.effects == 8 * 4
    assert report.unknown >= 1  # that of the run whose worker died after it had paid
    assert report.again >= 1


def test_workers_die_at_random_times(trial):
    kills = 5

    async def body(trial):
        chance = random.Random(5)
        async with trial.workers(2) as workers:
            checking = await trial.started([f"r{number}" for number in range(4)], 3)
            for effects in sorted(chance.sample(range(1, 35), kills)):  # of 40
                await trial.until(lambda seen, effects=effects: len(seen) >= effects)
                await asyncio.sleep(chance.uniform(0, 0.02))
                await killing.kill_one(workers, chance)
            assert not checking.done()
            await checking
        assert len(workers) == kills + 2

    assert trial(body).effects == 4 * 10


def test_another_worker_goes_on_with_the_runs_of_a_killed_one(trial):
    async def body(trial):
        with trial.worker() as one, trial.worker() as other:
            await asyncio.gather(one.ready(), other.ready())
            checking = await trial.started(["r0", "r1", "r2"])
            await trial.until(lambda seen: len(seen) >= 6)
            one.kill()
            assert not checking.done()
            await checking
            assert not other.is_dead

    assert trial(body).effects == 3 * 7


def test_runs_go_on_when_their_server_was_killed_and_started_again(trial):
    async def body(trial):
        with trial.worker() as worker:
            await worker.ready()
            checking = await trial.started(["r0", "r1"])
            await trial.until(lambda seen: len(seen) >= 4)
            assert not checking.done()
            trial.server.kill()
            trial.server.start()
            await checking
            assert not worker.is_dead

    assert trial(body).effects == 2 * 7
