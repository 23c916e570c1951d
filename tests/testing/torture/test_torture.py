"""treadle goes through every scenario of the torture suite and keeps all that a loop should keep."""

import pytest

from treadle.testing.torture import SCENARIOS, TreadleLoop, run_scenario

KNOWN = {
    "polling-that-nobody-announced-is-no-loop": (
        "the same call in a row is a duplicate, by contract, unless its tool says that it is volatile"
    ),
}
"""What treadle does not pass, and why; each is strict, so that it is seen when it passes."""


def cases():
    for name, scenario in SCENARIOS.items():
        marks = [pytest.mark.xfail(strict=True, reason=KNOWN[name])] if name in KNOWN else []
        yield pytest.param(scenario, id=name, marks=marks)


@pytest.mark.parametrize("scenario", list(cases()))
def test_treadle_passes(scenario):
    verdict = run_scenario(TreadleLoop(), scenario)

    assert verdict.not_applicable is None
    assert verdict.passed, str(verdict)


def test_there_are_enough_scenarios():
    assert len(SCENARIOS) >= 60
