"""Every scripted run is replayed from its recording, in a file: the same result, events and history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.ways import ObservedRun, Way

from treadle import Loop
from treadle.recording import Recorder
from treadle.testing import diff, replay

from .guard_scripts import SCRIPTS
from .scripts import Script, played
from .test_replay import lifeless, no_world, same


def recorded(way: Way, script: Script, path: Path) -> ObservedRun:
    """What was observed of a script that was recorded in a file."""
    events: list[Any] = []
    with Recorder(path) as recorder:
        observed = played(way, script, on_event=[recorder, events.append])
    observed.events = events
    return observed


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_recording_is_replayed_without_the_world(script: Script, way: Way, tmp_path: Path):
    observed = recorded(way, script, tmp_path / "run.jsonl")
    again = ObservedRun()
    loop = Loop(name="agent", **lifeless(script.build()[1]))
    with no_world():
        again.result = replay(tmp_path / "run.jsonl", loop, on_event=again.events.append)
    again.state = again.result.run
    same(observed, again)
    assert [event.seq for event in again.events] == [event.seq for event in observed.events]
    assert diff(tmp_path / "run.jsonl", again.result) is None
