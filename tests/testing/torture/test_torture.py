"""treadle goes through every scenario of the torture suite and keeps all that a loop should keep."""

import pytest

from treadle.testing.torture import SCENARIOS, TreadleLoop, run_scenario


@pytest.mark.parametrize("scenario", list(SCENARIOS.values()), ids=list(SCENARIOS))
def test_treadle_passes(scenario):
    verdict = run_scenario(TreadleLoop(), scenario)

    assert verdict.not_applicable is None
    assert verdict.passed, str(verdict)


def test_there_are_enough_scenarios():
    assert len(SCENARIOS) >= 60
