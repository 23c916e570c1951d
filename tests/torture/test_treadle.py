"""treadle passes every scenario of the torture suite, and the worker reports verdicts."""

import json
import sys
from pathlib import Path

import adapters.plain_loop
import adapters.treadle
import pytest
from tests.programs import run_program
from torture_suite import SCENARIOS, run_scenario


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_treadle_passes(scenario):
    verdict = run_scenario(adapters.treadle.Adapter(), scenario)

    assert verdict.not_applicable is None
    assert verdict.passed, str(verdict)


def test_there_are_136_scenarios():
    assert len(SCENARIOS) == 136


CELLS_OF_THE_PLAIN_LOOP = {
    "arguments-in-prose": "+++-+",
    "field-of-the-wrong-type": "+++-X",
    "ids-missing": "++XX-",
    "two-calls-in-turn-for-ever": "++++-",
    "tool-raises-cancelled": "X++-X",
    "tool-returns-megabytes": "+X++-",
    "cancelled-while-a-tool-runs": "++X+-",
    "stream-breaks-in-text": "n/a",
}
"""One failure in each column."""


@pytest.mark.parametrize(("name", "cells"), CELLS_OF_THE_PLAIN_LOOP.items())
def test_a_plain_loop_fails_where_it_lacks_something(name, cells):
    assert run_scenario(adapters.plain_loop.Adapter(), SCENARIOS[name]).cells == cells


def test_a_worker_reports_its_verdicts_and_exits_after_a_run_that_did_not_end():
    worker = Path(adapters.__file__).parents[1] / "worker.py"
    names = ["reply-blank", "tool-raises-cancelled", "tool-raises"]

    done = run_program([sys.executable, worker, "plain_loop", *names], check=True)

    first, *rest = map(json.loads, done.stdout.splitlines())
    assert first == {
        "kind": "hello", "name": "plain loop", "version": "1.0", "scenarios": names
    }  # fmt: skip
    assert [(one["kind"], one.get("scenario")) for one in rest[::2]] == [
        ("begin", "reply-blank"),
        ("begin", "tool-raises-cancelled"),
    ]
    blank, cancelled = (one["verdict"] for one in rest[1::2])
    assert not blank["problems"]["ended"]
    assert cancelled["problems"]["ended"] == ["it let CancelledError through"]
