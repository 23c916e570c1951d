"""AgentDojo's 97 user tasks through `treadle.Loop`; run.py makes the environment that this needs.

A scripted model replays the ground truth of each task, and AgentDojo's own utility check says whether the
task is done. So nothing is measured but the loop: whether it runs every call that a right solution needs,
in an order that is safe, and delivers the answer. The same model goes through a plain while loop in the
same run; what that one passes is all that can be passed.

Each run of treadle's loop is recorded, and replayed from the recording without the model and without the tools:
the result and the events have to be the same.

In the mode ``single`` the model makes one call an answer. In the mode ``batch`` it makes all calls of a task
in one answer, and makes those again that were put off.

The exit code is 1 where a task fails that the plain loop passes, where a call of a ground truth did not run
and something is lost by that, where calls ran in an order that is not safe, where a tool changes the
environment without being marked so, and where a replay differs. A call that is the same as one before it is not
lost where it would have brought the same again, and changed nothing: the plain loop tells, which runs it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from typing import Any

from agentdojo.task_suite.load_suites import get_suites
from loops import PlainLoop, Record, ReplayElement, TreadleLoop
from verdict import Counts, count, not_run, problems

from treadle import Limits

VERSION = "v1.2.2"
MODES = ("single", "batch")
COLUMNS = ("tasks", "passed", "calls", "asked", "ran")
GUARDED = ("suppressed", "deferred", "failed", "iterations")


@dataclasses.dataclass
class Outcome:
    """What came out for one suite in one mode.

    Args:
        mode: single or batch.
        suite: its name.
        plain: the counts of the plain loop.
        treadle: the counts of treadle's.
        raised: the tasks that took more iterations than the default limit, with their number.
        not_run: the calls that did not run, by task.
        problems: what is wrong, by task.
    """

    mode: str
    suite: str
    plain: Counts = dataclasses.field(default_factory=Counts)
    treadle: Counts = dataclasses.field(default_factory=Counts)
    raised: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    not_run: dict[str, list[str]] = dataclasses.field(default_factory=dict[str, list[str]])
    problems: dict[str, list[str]] = dataclasses.field(default_factory=dict[str, list[str]])

    def add(self, name: str, plain: tuple[Record, bool], treadle: tuple[Record, bool]) -> None:
        """Add a task: its name, and for each loop what happened and whether it passed."""
        (before, plain_passed), (record, passed) = plain, treadle
        self.plain += count(before, passed=plain_passed)
        self.treadle += count(record, passed=passed)
        if record.iterations > Limits().max_iterations:
            self.raised[name] = record.iterations
        if lost := not_run(record, before):
            self.not_run[name] = list(map(str, lost))
        if wrong := problems(record, before, passed=passed, plain_passed=plain_passed):
            self.problems[name] = wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=MODES, help="only this mode")
    parser.add_argument("--suite", choices=list(get_suites(VERSION)), help="only this suite")
    parser.add_argument("--json", action="store_true", help="print JSON, not Markdown")
    options = parser.parse_args()
    start = time.perf_counter()
    outcomes = [
        evaluate(mode, suite)
        for mode in ([options.mode] if options.mode else MODES)
        for suite in ([options.suite] if options.suite else get_suites(VERSION))
    ]
    if options.json:
        print(json.dumps(outcomes, indent=2, default=vars))
    else:
        print(report(outcomes))
        runs = sum(outcome.treadle.tasks for outcome in outcomes)
        print(f"\nEach of the {runs} runs was replayed from its recording.")
        print(f"AgentDojo {VERSION}, {time.perf_counter() - start:.0f} s")
    return int(any(outcome.problems for outcome in outcomes))


def evaluate(mode: str, suite_name: str) -> Outcome:
    """Put all user tasks of a suite through both loops."""
    suite = get_suites(VERSION)[suite_name]
    outcome = Outcome(mode, suite_name)
    for name, task in suite.user_tasks.items():
        runs = [
            attempt(suite, task, element(task, batch=mode == "batch"))
            for element in (PlainLoop, TreadleLoop)
        ]
        outcome.add(name, *runs)
    return outcome


def attempt(suite: Any, task: Any, element: ReplayElement) -> tuple[Record, bool]:
    """Put one task through one loop. Returns what happened, and whether it passed."""
    utility, _ = suite.run_task_with_pipeline(element, task, None, {})
    return element.record, bool(utility) and element.record.answered


def report(outcomes: list[Outcome]) -> str:
    """Write the tables, and what there is to say beside them."""
    parts: list[str] = []
    for mode in MODES:
        of_mode = [outcome for outcome in outcomes if outcome.mode == mode]
        if of_mode:
            parts.append(f"{table(mode, of_mode)}\n\n{remarks(of_mode)}")
    return "\n\n".join(parts)


def table(mode: str, outcomes: list[Outcome]) -> str:
    """The counts of one mode: a line for each suite and loop, and their sums."""
    names = (*COLUMNS, *GUARDED)
    lines = [
        f"| {mode}: suite | loop | {' | '.join(names)} |",
        f"|---|---|{'---:|' * len(names)}",
    ]
    rows = [(outcome.suite, outcome.plain, outcome.treadle) for outcome in outcomes]
    sums = [sum((row[place] for row in rows), Counts()) for place in (1, 2)]
    for suite, *counts in [*rows, ("total", *sums)]:
        for loop, made in zip(("plain", "treadle"), counts, strict=True):
            cells = " | ".join(str(getattr(made, name)) for name in names)
            lines.append(f"| {suite} | {loop} | {cells} |")
    return "\n".join(lines)


def remarks(outcomes: list[Outcome]) -> str:
    """The tasks that needed more than the default limits, the calls that did not run, the problems."""
    raised = [f"{o.suite} {name} ({n})" for o in outcomes for name, n in o.raised.items()]
    default = Limits().max_iterations
    lines = [f"Tasks that took more than the default of {default} iterations: {_listed(raised)}."]
    for title, field in (("Calls that did not run", "not_run"), ("Problems", "problems")):
        found_lines = [
            f"- {outcome.suite} {name}: {line}"
            for outcome in outcomes
            for name, found in getattr(outcome, field).items()
            for line in found
        ]
        lines.append(f"{title}: {len(found_lines)}.")
        lines.extend(found_lines)
    return "\n".join(lines)


def _listed(names: list[str]) -> str:
    return f"{len(names)}, {', '.join(names)}" if names else "0"


if __name__ == "__main__":
    sys.exit(main())
