"""Microseconds per iteration with and without a journal, and on Temporal; ratios from one run.

Run it with ``make bench-journal``. The model answers from memory and the tool returns at once; what is measured is
the loop with its journal. A journal waits for the disk and, on an event loop, for a thread, so there is the time
of the clock beside that of the processor. On Temporal, the server, a worker and the caller are on this machine.
Each request to the model and each call of a tool is an activity, which counts as a write. The processor time is
that of the worker. All cases take turns, so that other load affects all of them alike; the median of the rounds
counts. The last line is what the disk takes to store 4 kB, without SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import itertools
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from iterations import add, model_of
from temporalio.client import Client

from treadle import Loop, Tool, tool
from treadle.durable import EncryptedPayloads, SQLiteJournal
from treadle.durable.driven_run import DrivenRun
from treadle.durable.temporal import make_worker, run_on_temporal
from treadle.messages import JSONDict
from treadle.recording.log import Entry

sys.path.append(str(Path(__file__).parents[1]))
from tests.durable.temporal.servers import TemporalServer

LENGTH = 100
"""The iterations of a run."""
CALLS = 4
"""The calls of an iteration, in the rows with several."""


@tool(name="add")
def add_sync(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def sync_model(iterations: int, calls: int) -> Callable[..., Any]:
    """The same model for a run without an event loop."""
    send = model_of(iterations, calls)

    def answer(messages: list[dict[str, Any]], **opts: Any) -> Any:
        try:
            send(messages, **opts).__await__().send(None)
        except StopIteration as stop:
            return stop.value
        raise AssertionError("the model waits for nothing")

    return answer


class Counting(SQLiteJournal):
    """A journal that counts its writes.

    Attributes:
        writes: how many there were.
    """

    writes = 0

    def open(self, run_id: str, start: JSONDict | None) -> DrivenRun:
        """Open a run, and count what it writes."""
        opened = super().open(run_id, start)
        add_entries = opened.add

        def count(entries: Sequence[Entry], taken: Sequence[int] = ()) -> None:
            self.writes += 1
            add_entries(entries, taken)

        opened.add = count  # type: ignore[method-assign]
        return opened


class Case:
    """One row of the table.

    Args:
        name: what the row is called.
        journal: the journal; None for a run without.
        one: the tool that the model calls.
        calls: the calls of an iteration.
        is_sync: run without an event loop.
    """

    def __init__(
        self, name: str, journal: Counting | None, one: Tool, calls: int, *, is_sync: bool
    ) -> None:
        self.name = name
        self.writes = 0.0
        self._journal = journal
        self._tool = one
        self._calls = calls
        self._is_sync = is_sync
        self._times: list[tuple[float, float]] = []

    def take_turn(self) -> None:
        """Measure a run once more."""
        options: Any = {}
        if self._journal is not None:
            self._journal.writes = 0
            options = {"journal": self._journal, "run_id": f"{self.name} {len(self._times)}"}
        made = sync_model if self._is_sync else model_of
        loop = Loop(
            llm_send_fn=made(LENGTH, self._calls),
            tools=[self._tool],
            max_iterations=LENGTH,
            **options,
        )
        gc.collect()
        started, cpu = time.perf_counter(), time.process_time()
        result = loop.run_sync("go") if self._is_sync else asyncio.run(loop.run("go"))
        result.unwrap()
        self.note(started, cpu)
        if self._journal is not None:
            self.writes = self._journal.writes / LENGTH

    def note(self, started: float, cpu: float) -> None:
        """Note what a run has taken since the clock and the processor showed these times."""
        self._times.append((time.perf_counter() - started, time.process_time() - cpu))

    @property
    def times(self) -> tuple[float, float]:
        """Microseconds of an iteration: those of the clock, and those of the processor."""
        elapsed, cpu = map(statistics.median, zip(*self._times, strict=True))
        return elapsed / LENGTH * 1e6, cpu / LENGTH * 1e6

    def row(self, plain: Case) -> str:
        """The row, in Markdown, beside a run without a journal."""
        cells = [self.name]
        for mine, its in zip(self.times, plain.times, strict=True):
            each = f"{(mine - its) / self.writes:,.0f}" if self.writes else ""
            cells += [f"{mine:,.0f}", f"{mine / its:.1f}", each]
        return f"| {' | '.join(cells)} | {f'{self.writes:.1f}' if self.writes else ''} |"


class OnTemporal(Case):
    """The row of a run as a workflow.

    Args:
        name: what the row is called.
        server: the server.
    """

    def __init__(self, name: str, server: TemporalServer) -> None:
        super().__init__(name, None, add, 1, is_sync=False)
        self.writes = 2.0  # activities
        self._server = server

    def take_turn(self) -> None:
        """Measure a run once more."""
        gc.collect()
        asyncio.run(self._run())

    async def _run(self) -> None:
        client = await Client.connect(self._server.address)
        model = model_of(LENGTH, 1)
        loop = Loop(name="bench", llm_send_fn=model, tools=[add], max_iterations=LENGTH)
        async with make_worker(client, loop):
            started, cpu = time.perf_counter(), time.process_time()
            result = await run_on_temporal(client, loop, "go", run_id=uuid.uuid4().hex)
            result.unwrap()
            self.note(started, cpu)


def sync_time(folder: Path, number: int) -> float:
    """Microseconds to append 4 kB to a file and have the disk store it."""
    times: list[float] = []
    with (folder / "plain").open("ab", buffering=0) as file:
        for _ in range(number):
            started = time.perf_counter()
            file.write(bytes(4_096))
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def main(rounds: int, folder: Path) -> None:
    """Print the table."""
    from cryptography.fernet import Fernet  # noqa: PLC0415 - an extra

    codec = EncryptedPayloads(Fernet.generate_key())
    quick = Counting(folder / "quick.db", fsync=False)
    encrypted = Counting(folder / "encrypted.db", fsync=False, codec=codec)
    safe = Counting(folder / "safe.db")
    kinds = (("no journal", None), ("`fsync=False`", quick), ("default", safe))
    idempotent = dataclasses.replace(add, idempotent=True)
    one = [Case(name, journal, add, 1, is_sync=False) for name, journal in kinds]
    one.append(Case("default, idempotent tool", safe, idempotent, 1, is_sync=False))
    one.append(Case("`fsync=False`, encrypted", encrypted, add, 1, is_sync=False))
    several = [
        Case(f"{name}, {CALLS} calls at once", journal, add, CALLS, is_sync=False)
        for name, journal in kinds
    ]
    sync = [
        Case(f"{name}, `run_sync`", journal, add_sync, 1, is_sync=True) for name, journal in kinds
    ]
    server = TemporalServer(folder)
    server.start()
    one.append(OnTemporal("Temporal", server))
    groups = (one, several, sync)
    try:
        for _ in range(rounds):
            for case in itertools.chain(*groups):
                case.take_turn()
    finally:
        server.stop()
    print(
        "| run | µs/iteration | ratio | µs/write | CPU µs/iteration | ratio | µs/write | writes |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for group in groups:
        for case in group:
            print(case.row(group[0]))
    print(f"\nThe disk stores 4 kB in {sync_time(folder, 200):,.0f} µs.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each case is measured")
    parser.add_argument("--folder", help="on the disk to measure; default: that of temporary files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as made:
        main(given.rounds, Path(made))
