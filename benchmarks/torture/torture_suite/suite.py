"""Run a loop through the scenarios, one by one; a loop that hangs or raises cannot stop the suite."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable

from torture_suite.evidence import Evidence
from torture_suite.judge import judge
from torture_suite.log import Log
from torture_suite.model import Model
from torture_suite.protocol import Adapter, NotApplicable, Outcome, Scenario
from torture_suite.table import Row, Table, Verdict

GRACE = 3.0
"""Seconds that a loop has to end after its cancellation."""


def run_suite(
    adapter: Adapter,
    scenarios: Iterable[Scenario] | None = None,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> Table:
    """Run a loop through scenarios.

    Args:
        adapter: the loop.
        scenarios: which; None is all of them.
        on_verdict: called with each verdict.

    Returns:
        A table of one row; ``+`` puts several into one.
    """
    if scenarios is None:
        from torture_suite.catalogue import SCENARIOS  # noqa: PLC0415 - they import us

        scenarios = SCENARIOS.values()
    verdicts: list[Verdict] = []
    for scenario in scenarios:
        verdict = run_scenario(adapter, scenario)
        verdicts.append(verdict)
        if on_verdict is not None:
            on_verdict(verdict)
    return Table((Row(adapter.name, adapter.version, tuple(verdicts)),))


def run_scenario(adapter: Adapter, scenario: Scenario) -> Verdict:
    """Run a loop through one scenario, in a separate thread with its own event loop.

    A loop that hangs is cancelled when its time is over; if it does not end then, its thread is abandoned.
    """
    lacks = sorted(scenario.needs - adapter.can)
    if lacks:
        return Verdict(scenario.name, not_applicable=f"it has no {', no '.join(lacks)}")
    trial = Trial(adapter, scenario)
    evidence = trial.run()
    if isinstance(evidence, NotApplicable):
        return Verdict(scenario.name, not_applicable=str(evidence) or "not applicable")
    return Verdict(scenario.name, judge(evidence), seconds=evidence.seconds)


class Trial:
    """One run of one scenario, with a time limit.

    Args:
        adapter: the loop.
        scenario: the scenario.
    """

    def __init__(self, adapter: Adapter, scenario: Scenario) -> None:
        self.scenario = scenario
        self.log = Log()
        self.model = Model(scenario, self.log)
        self._adapter = adapter
        self._over = threading.Event()
        self._found: Outcome | BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def run(self) -> Evidence | NotApplicable:
        """Run it and return the evidence."""
        thread = threading.Thread(target=self._in_thread, name=self.scenario.name, daemon=True)
        started = time.monotonic()
        thread.start()
        self._over.wait(self.scenario.seconds)
        found, seconds = self._found, time.monotonic() - started
        self.log.released.set()
        if not self._over.is_set() and self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        thread.join(GRACE)
        if isinstance(found, NotApplicable):
            return found
        if isinstance(found, Exception):  # the adapter's own business, but an end none the less
            found = Outcome.of_error(found)
        outcome, escaped = (found, None) if isinstance(found, Outcome) else (None, found)
        return Evidence(self.scenario, self.model, self.log, outcome, seconds, escaped)

    def _in_thread(self) -> None:
        try:
            asyncio.run(self._watched())
        except BaseException as error:  # noqa: BLE001 - what a loop lets through is the finding
            if not self._over.is_set():
                self._found = error
        finally:
            self._over.set()

    async def _watched(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        tools = [spec.made(self.log) for spec in self.scenario.tools]
        try:
            self._found = await self._adapter.run(self.scenario, self.model, tools)
        except Exception as error:  # noqa: BLE001 - as above
            self._found = error
        self._over.set()
