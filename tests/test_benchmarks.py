"""The benchmarks run; their measurements are for `make bench` and are not tested."""

import sys
from pathlib import Path

import pytest
from tests.programs import run_program

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("iterations.py --rounds 1 --turns 1", "| a handle |"),
        ("telemetry.py --rounds 1", "| treadle, spans and metrics |"),
        ("chaos.py --seeds 20", "20 seeds in"),
        ("tool_search/evaluate.py", "two fixed tools:"),
        ("journal.py --rounds 1", "| default, idempotent tool |"),
        ("compaction.py --turns 40 --files 60", "| summarising alone |"),
        ("temporal_history.py --iterations 20 --tokens 4000 --whole 5", "| 19 to 20 |"),
        ("kills_temporal.py --kills 1 --servers 0 --runs 4", "were told as unknown, 0 problems"),
    ],
)
def test_it_prints_its_table(program, expected):
    command = [sys.executable, *program.split()]
    done = run_program(command, cwd=BENCHMARKS)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
