#!/usr/bin/env python3
"""Measure what `import treadle` takes beyond the start of the interpreter, and which imports take most of it.

``python scripts/import_time.py``: the medians of 15 runs each, taken in turn, so that a busy moment strikes both.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import Counter

RUNS = 15
SHOWN = 12


def seconds(code: str) -> float:
    """The wall-clock time of an interpreter that runs some code."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started


def own_times() -> Counter[str]:
    """Microseconds that each module takes, without the modules that it imports."""
    command = [sys.executable, "-X", "importtime", "-c", "import treadle"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    rows = [line.removeprefix("import time:").split("|") for line in report.splitlines()]
    return Counter({name.strip(): int(own) for own, _, name in rows if own.strip().isdigit()})


def main() -> None:
    """Print the difference of the medians, and the most expensive modules."""
    pairs = [(seconds("pass"), seconds("import treadle")) for _ in range(RUNS)]
    bare, full = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"interpreter {bare:.3f} s, import treadle {full:.3f} s: {full - bare:.3f} s more")
    for name, own in own_times().most_common(SHOWN):
        print(f"{own / 1000:7.1f} ms  {name}")


if __name__ == "__main__":
    main()
