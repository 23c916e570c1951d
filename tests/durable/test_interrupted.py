"""A run that is interrupted at any write goes on as if it had not been."""

from __future__ import annotations

import pytest
from tests.ways import ASYNCIO, SYNC, TRIO, Way
from tests.whole.guard_scripts import SCRIPTS
from tests.whole.scripts import Script, played
from tests.whole.test_same_everywhere import alike, recorded

from treadle.testing import check_history

from .interrupting import Durable


def check_same(one: Durable, result, expected: Durable, wanted) -> None:
    assert alike(result) == alike(wanted)
    assert result.messages == wanted.messages
    assert recorded(result.run) == recorded(wanted.run)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
@pytest.mark.parametrize("way", [SYNC, ASYNCIO, TRIO], ids=repr)
def test_idempotent(script: Script, way: Way):
    whole = Durable.of(way, script, is_repeatable=True)
    wanted = whole.run()
    assert wanted.stop_reason == script.ends
    for at in range(1, whole.journal.writes + 1):
        for is_stored in (True, False):
            one = Durable.of(way, script, is_repeatable=True)
            one.journal.interrupt(at, is_stored=is_stored)
            result = one.run()
            check_same(one, result, whole, wanted)
            assert len(one.processes) == len(whole.processes) + 1


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
@pytest.mark.parametrize("way", [SYNC, ASYNCIO, TRIO], ids=repr)
def test_once(script: Script, way: Way):
    whole = Durable.of(way, script, is_repeatable=False)
    wanted = whole.run()
    for at in range(1, whole.journal.writes + 1):
        for is_stored in (True, False):
            one = Durable.of(way, script, is_repeatable=False)
            one.journal.interrupt(at, is_stored=is_stored)
            result = one.run()
            if script.ends != "invalid_input":
                check_history(result.messages)
            assert all(one.world.ran[place] <= 1 for place in one.world.once)
            assert one.told == one.unknown
            if not one.unknown:
                check_same(one, result, whole, wanted)
