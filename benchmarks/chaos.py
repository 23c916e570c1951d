"""Many runs with misbehaving models and tools, under any options. Does each one end as it must?

``python benchmarks/chaos.py --seeds 10000`` prints how they ended and what was wrong. A seed is the same run
each time, as far as threads and clocks allow: ``--start 1234 --seeds 1`` repeats one.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import re
import signal
import sys
import time
import warnings
from collections import Counter
from typing import Any

from chaos_checks import described
from chaos_trial import Trial, Verdict

from treadle.testing import ChaosLLM, ChaosTools

HUNG = 30.0
"""Seconds after which a run is considered hung."""
SHOWN = 20
"""Seeds with violations that are shown in full."""
KIND = 110
"""Violations that start with the same characters count as the same kind."""


class HungError(BaseException):
    """A run does not end."""


def verdict_of(seed: int) -> Verdict:
    """Try one seed in this process. Warnings and unraisable errors are violations as well."""
    noticed: list[str] = []
    sys.unraisablehook = lambda what: noticed.append(f"outside the run: {what.exc_value!r:.200}")
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: noticed.append(f"outside the run: {record.getMessage():.200}")  # type: ignore[method-assign]
    logging.getLogger("asyncio").addHandler(handler)
    logging.getLogger("treadle").addHandler(logging.NullHandler())
    logging.getLogger("treadle").propagate = False

    def hung(_signal: int, _frame: Any) -> None:
        raise HungError

    signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, HUNG)
    trial = Trial(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            verdict = trial.run()
            if seed % 20 == 0:
                gc.collect()  # finds what was not closed
    except HungError as error:
        verdict = Verdict(seed, trial.story, "hung", violations=[f"hung: {described(error)}"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        logging.getLogger("asyncio").removeHandler(handler)
    verdict.violations += noticed
    return verdict


def report(verdicts: list[Verdict], seconds: float) -> None:
    """Print a summary as Markdown."""
    bad = [verdict for verdict in verdicts if verdict.violations]
    longest = max(verdicts, key=lambda verdict: verdict.iterations)
    missing = {*ChaosLLM.BEHAVIOURS, *ChaosTools.BEHAVIOURS}.difference(
        *(verdict.behaviours for verdict in verdicts)
    )
    print("| stop reason | runs |\n|---|---:|")
    for reason, count in Counter(verdict.stop_reason for verdict in verdicts).most_common():
        print(f"| `{reason}` | {count:,} |")
    print(f"\n{len(verdicts):,} seeds in {seconds:.0f} s.", end=" ")
    print(f"Most iterations: {longest.iterations} (seed {longest.seed}).", end=" ")
    print(f"Pauses: {sum(verdict.pauses for verdict in verdicts):,}.", end=" ")
    print(f"Behaviours that did not occur: {', '.join(sorted(missing)) or 'none'}.")
    print(f"\nViolations: {sum(len(verdict.violations) for verdict in bad)} in {len(bad)} seeds.")
    seeds_of: dict[str, list[int]] = {}
    for verdict in bad:
        for violation in verdict.violations:
            seeds_of.setdefault(re.sub(r"\d+", "N", violation)[:KIND], []).append(verdict.seed)
    if bad:
        print("\n| violation | how often | seeds |\n|---|---:|---|")
    for kind, seeds in sorted(seeds_of.items(), key=lambda pair: -len(pair[1])):
        print(f"| {kind} | {len(seeds):,} | {', '.join(map(str, seeds[:5]))} |")
    for verdict in bad[:SHOWN]:
        print(f"\n- seed {verdict.seed}: {verdict.story}")
        for violation in verdict.violations[:5]:
            print(f"  - {violation}")


def main(arguments: list[str] | None = None) -> int:
    """Run, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="number of seeds")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    given = parser.parse_args(arguments)
    seeds = range(given.start, given.start + given.seeds)
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        verdicts = list(pool.imap(verdict_of, seeds, chunksize=10))
    report(verdicts, time.monotonic() - started)
    return int(any(verdict.violations for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
