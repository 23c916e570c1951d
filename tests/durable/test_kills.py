"""Processes of runs with a journal that are killed: what happens twice, what is lost, what the model is told.

`make bench-kills` kills 200.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import kills_journal as killing
from kills import POINTS, Effect, Report, World, effects_of

STEPS = 2
"""The iterations of a run with calls: one that may run twice, and one that must not."""


def end(folder: Path, name: str) -> int:
    """Drive a run in processes that are not killed at a certain time; return how many were killed at an effect."""
    kills = 0
    while killing.is_killed(killing.start(folder, [name], STEPS), None):
        kills += 1
    return kills


def found(folder: Path, name: str) -> Report:
    """What was found of a run that has ended: no problems."""
    report = Report()
    killing.check(folder, [name], STEPS, report)
    assert report.problems == []
    return report


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("effect", effects_of("run", STEPS), ids=str)
def test_a_process_that_is_killed_at_an_effect(tmp_path: Path, effect: Effect, point: str):
    World(tmp_path).plan(effect, point)
    assert end(tmp_path, "run") == 1
    report = found(tmp_path, "run")
    assert report.unknown >= (effect.kind == "pay")
    seen = World(tmp_path).seen()
    if point == "after" and effect.kind != "pay":
        assert len(seen[effect].happened) == 2
    elif point == "before":
        assert len(seen[effect].happened) == (effect.kind != "pay") if effect in seen else True


@pytest.mark.parametrize("seed", range(8))
def test_processes_that_are_killed_at_random_times(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    for _ in range(4):
        process = killing.start(tmp_path, ["run"], STEPS)
        killing.is_killed(process, chance.uniform(0, 0.15))
    assert end(tmp_path, "run") == 0
    found(tmp_path, "run")


def test_what_a_trial_would_find(tmp_path: Path):
    """An effect that happens twice although it must not, and one that happens again after it was recorded."""
    assert end(tmp_path, "run") == 0
    log = tmp_path / "effects"
    again = "begin run-1-pay {0}\nend run-1-pay {0}\nbegin run-0-note {0}\nend run-0-note {0}\n"
    log.write_text(log.read_text() + again.format(9e9))
    report = Report()
    killing.check(tmp_path, ["run"], STEPS, report)
    text = "\n".join(report.problems)
    assert "run-1-pay: it is not idempotent, and began 2 times" in text
    assert "run-0-note: it began again after its outcome was recorded" in text
