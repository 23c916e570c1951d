"""A run that is interrupted at any write goes on as if it had not been."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from tests.ways import ASYNCIO, SYNC, TRIO, Way
from tests.whole.guard_scripts import SCRIPTS
from tests.whole.scripts import Script, played
from tests.whole.test_same_everywhere import alike, recorded

from treadle.results import Paused
from treadle.testing import check_history

from .interrupting import Durable

RERUN = {"a_stream_that_breaks_off_after_calls_were_answered"}
"""Scripts whose model streams a text that listeners see, which a call with a known outcome does not do."""


def seen(result: Any) -> Any:
    """A result without what is another in each run; each process emits one more event."""
    made = alike(result)
    if isinstance(made, Paused):
        states = [made.state, *made.state["paused_runs"].values()]
        made = dataclasses.replace(made, state=[{**one, "last_seq": 0} for one in states])
    return made


def same(result: Any, expected: Any) -> None:
    """The same result, history and record."""
    assert seen(result) == seen(expected)
    assert result.messages == expected.messages
    assert recorded(result.run) == recorded(expected.run)


def places(way: Way, writes: int, number: int) -> Iterator[tuple[int, bool]]:
    """The writes at which a run is interrupted, and whether they are stored.

    Everything has happened when a write is lost, so that is the harder case: without an event loop, each write
    is. The others are a sample.

    Args:
        way: how the run is performed.
        writes: their number.
        number: that of the script, so that each has another sample.
    """
    for at in range(1, writes + 1):
        if way is SYNC or at % 4 == number % 4:
            yield at, False
        if at % 4 == (number + 1) % 4:
            yield at, True


def interrupted(
    way: Way, script: Script, *, is_repeatable: bool
) -> Iterator[tuple[Durable, Any, Any]]:
    """A script, interrupted at its writes; each with its result, and that of the run that is not interrupted."""
    whole = Durable.of(way, script, is_repeatable=is_repeatable)
    expected = whole.run()
    assert expected.stop_reason == script.ends
    if not is_repeatable and not whole.world.once:
        return
    for at, is_stored in places(way, whole.journal.writes, SCRIPTS.index(script)):
        one = Durable.of(way, script, is_repeatable=is_repeatable)
        one.journal.interrupt(at, is_stored=is_stored)
        result = one.run()
        # In worker threads one write may have the outcomes of several calls.
        assert way is not SYNC or len(one.processes) == len(whole.processes) + 1
        yield one, result, expected


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_journal_changes_nothing(script: Script):
    same(Durable.of(SYNC, script, is_repeatable=False).run(), played(SYNC, script).result)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_an_interrupted_run_goes_on(script: Script):
    """With idempotent tools, as if it had not been interrupted; those of a resolver are not."""
    has_user = "handle_ref" in script.build()[1]
    for way in (SYNC, ASYNCIO, TRIO):
        for one, result, expected in interrupted(way, script, is_repeatable=True):
            assert one.told == one.unknown
            assert not one.unknown or "resolve_tool" in one.options
            if not (one.unknown or has_user or script.name in RERUN):
                same(result, expected)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_no_call_runs_twice(script: Script):
    """What was in flight is told as unknown, and nothing else."""
    has_user = "handle_ref" in script.build()[1]
    for way in (SYNC, ASYNCIO, TRIO):
        for one, result, expected in interrupted(way, script, is_repeatable=False):
            assert all(one.world.ran[place] <= 1 for place in one.world.once)
            assert one.told == one.unknown
            if script.ends != "invalid_input":
                check_history(result.messages)
            if not (one.unknown or has_user or script.name in RERUN):
                same(result, expected)
