"""Kills the processes of runs with an `SQLiteJournal`: see `kills.py` for what is checked.

``make bench-kills`` kills 200 processes, each of which drives some runs at once: half of them at an effect, before
or after it has happened, the others at random times. The same seed chooses the same effects.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from kills import POINTS, Effect, Recorded, Report, World, effects_of, loop_of, question

from treadle import Result, labels
from treadle.durable import SQLiteJournal
from treadle.errors import OutcomeUnknownError
from treadle.recording.log import RESUMED, STARTED

RUNS = 4
"""The runs that a process drives at once."""
STEPS = 3
"""The iterations of a run with calls."""
LONGEST = 0.4
"""The most seconds that a process lives after it has begun to drive its runs, if it is killed at a random time."""

PROCESSES = multiprocessing.get_context("forkserver")


def journal_in(folder: Path) -> SQLiteJournal:
    """The journal of all processes."""
    return SQLiteJournal(folder / "journal.db")


# The process that is killed


async def drive(folder: Path, names: list[str], steps: int) -> list[Result]:
    """Drive runs at once, from where they are."""
    loop = loop_of(World(folder)).with_options(journal=journal_in(folder))
    runs = [loop.run(question(name, steps), run_id=name) for name in names]
    return await asyncio.gather(*runs)


def work(folder: Path, names: list[str], steps: int, ready: Connection) -> None:
    """Drive runs in a process that may be killed."""
    ready.send(None)
    asyncio.run(drive(folder, names, steps))


def start(folder: Path, names: list[str], steps: int) -> BaseProcess:
    """Start a process that drives runs, and wait until it begins. It is forked off one that has all imports."""
    PROCESSES.set_forkserver_preload(["kills_journal"])
    ready, ours = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=work, args=(folder, names, steps, ours))
    process.start()
    ours.close()
    ready.recv()
    ready.close()
    return process


def is_killed(process: BaseProcess, seconds: float | None) -> bool:
    """Kill a process after some seconds; None leaves that to the effect that was planned.

    Returns:
        Whether it was killed; it may have ended before.
    """
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in {0, -signal.SIGKILL}, f"it ended with {process.exitcode}"
    return process.exitcode != 0


# What was recorded


def recorded_of(journal: SQLiteJournal, name: str) -> Mapping[Effect, Recorded]:
    """What the log of a run has of its effects.

    A request, or a call of an idempotent tool, may start in each process up to the one that recorded its outcome.
    """
    recorded: dict[Effect, Recorded] = {}
    processes, started = 1, 0
    for entry in journal.entries(name):
        processes += entry.kind == RESUMED
        if entry.label not in {labels.CHAT, labels.EXECUTE_TOOL}:
            continue
        is_chat = entry.label == labels.CHAT
        effect = Effect(name, int(entry.key) - 1, "chat") if is_chat else Effect.named(entry.key)
        started += entry.kind == STARTED
        if entry.kind == STARTED:
            recorded[effect] = Recorded(1, None)
        elif not isinstance(entry.error, OutcomeUnknownError):
            assert effect not in recorded or recorded[effect].at is None, (
                f"{effect} has two outcomes"
            )
            starts = recorded[effect].starts if effect in recorded else processes
            recorded[effect] = Recorded(starts, entry.at)
    return recorded


def check(folder: Path, names: list[str], steps: int, report: Report) -> None:
    """Compare the results of runs that have ended with what has happened."""
    seen, journal = World(folder).seen(), journal_in(folder)
    for name, result in zip(names, asyncio.run(drive(folder, names, steps)), strict=True):
        report.add(name, steps, result, seen, recorded_of(journal, name))
    assert World(folder).seen() == seen, "a run that has ended does nothing"


# The trial


def trial(kills: int, chance: random.Random, folder: Path, report: Report) -> int:
    """Kill processes until there were so many; return how many runs there were."""
    killed = batch = 0
    world = World(folder)
    while killed < kills:
        batch += 1
        names = [f"r{batch}x{number}" for number in range(RUNS)]
        while True:
            has_plan = chance.random() < 1 / 2
            if has_plan:
                effect = chance.choice(effects_of(chance.choice(names), STEPS))
                world.plan(effect, chance.choice(POINTS))
            if not is_killed(
                start(folder, names, STEPS), None if has_plan else chance.uniform(0, LONGEST)
            ):
                break
            killed += 1
        check(folder, names, STEPS, report)
    return RUNS * batch


def main() -> int:
    """Read the arguments, and run the trial; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="processes to kill, at least")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    started, report = time.perf_counter(), Report()
    with tempfile.TemporaryDirectory() as folder:
        runs = trial(given.kills, random.Random(given.seed), Path(folder), report)
    for problem in report.problems:
        print(problem)
    print(
        f"at least {given.kills} processes of {runs} runs killed: {report.effects} effects, {report.again} of "
        f"them began more than once, {report.unknown} were told as unknown, {len(report.problems)} problems, "
        f"{time.perf_counter() - started:.0f} s"
    )
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
