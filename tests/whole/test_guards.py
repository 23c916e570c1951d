"""The guards hold at any interleaving: budgets, locks, duplicates; and nothing waits for ever."""

from __future__ import annotations

import dataclasses
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ways import ASYNCIO, SYNC, TRIO, Way

from treadle import Paused, RunHandle, RunState, approve, deny, edit
from treadle.effects import Call, Effect, Emit, Parallel, Steps, drive, drive_sync, map_effects
from treadle.loop.start import start_run
from treadle.stages import _attempts as calling
from treadle.testing import check_history

from .guarding import KEYS, Play, Plot, large_plot, locking_plot, plots, racing_plot
from .scripts import HELLO
from .shuffled import Shuffled, pause

seeds = st.integers(0, 2**32)


@pytest.fixture(autouse=True, scope="module")
def quick_retries():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calling, "RETRY_DELAY", 0.0)
        yield


def decisions(paused: Paused, seed: object) -> dict[str, Any]:
    """What a person says of the calls that wait; of some nothing yet."""
    die = random.Random(f"{seed} {paused.iterations} {len(paused.pending)}")
    kinds = [approve, approve, deny("no"), edit({"n": 1})]
    some = [call for call in paused.pending if die.random() < 0.8] or paused.pending[:1]
    return {call.id: die.choice(kinds) for call in some}


def whole(play: Play, root: str, seed: object) -> Steps[Any]:
    """A run of a play with all its pauses, each time as if in another process."""
    loop, model = play.loop(root), play.model(root, play.plot.batches)
    state: Any = RunState("agent", root)
    given: Any = list(HELLO)
    while True:
        handle = play.handles[root] = RunHandle()
        options = {"handle": handle, "state": state}
        result = yield from reported(*start_run(loop.with_options(**options), given, model))
        check_history(result.messages)
        if not isinstance(result, Paused):
            return result
        state = None
        given = loop.resumption(result, decisions(result, seed))


def reported(steps: Steps[Any], emit: Any) -> Steps[Any]:
    """The steps of a run that report its events themselves: several runs may have one driver."""

    def see(effect: Effect) -> Effect:
        return Call(emit, effect.event) if isinstance(effect, Emit) else effect

    return map_effects(steps, see)


def two(play: Play, seed: object) -> Steps[Any]:
    """Two runs at once, which share their locks and nothing else."""
    results = yield Parallel([whole(play, root, seed) for root in ("one", "two")])
    return dict(zip(("one", "two"), results, strict=True))


def play_one(plot: Plot, seed: int) -> None:
    with Play(plot, pause) as play:
        result = Shuffled(seed).drive(whole(play, "one", seed))
    play.check("one", result)


def play_two(plot: Plot, seed: int) -> None:
    with Play(plot, pause) as play:
        results = Shuffled(seed).drive(two(play, seed))
    play.check_all(results)


def play_in_haste(plot: Plot, seed: int) -> None:
    timed = dataclasses.replace(plot, options={**plot.options, "max_seconds": 60})
    with Play(timed, pause) as play:
        results = Shuffled(seed, haste=0.03).drive(two(play, seed))
    play.check_all(results)
    for key in KEYS:
        assert play.locks.enter(key).is_set  # its holder has given it back


@given(plots, seeds)
@settings(max_examples=150)
def test_the_guards_hold_in_any_order_of_the_effects(plot: Plot, seed: int):
    """A random order of the steps; no limit is exceeded, no call overlaps, and none runs in vain."""
    play_one(plot, seed)


@given(plots, seeds)
@settings(max_examples=60)
def test_the_guards_hold_for_runs_that_share_their_locks(plot: Plot, seed: int):
    """Two runs, with children that hold keys around their own calls: no overlap, and no deadlock."""
    play_two(plot, seed)


@given(plots, seeds)
@settings(max_examples=60)
def test_the_guards_hold_where_a_time_limit_strikes_at_any_moment(plot: Plot, seed: int):
    """The run ends there, every call is answered, every lock is given back."""
    play_in_haste(plot, seed)


@pytest.mark.parametrize("play", [play_one, play_two, play_in_haste])
@pytest.mark.parametrize("block", range(4))
def test_the_guards_hold_in_large_runs(play: Any, block: int):
    """Of some hundred calls each, with children of children, retries, approvals, cancellations, steering."""
    for seed in range(block * 15, block * 15 + 15):
        try:
            play(large_plot(seed), seed)
        except BaseException as error:
            error.add_note(f"large_plot({seed})")
            raise


@pytest.mark.parametrize("play", [play_two, play_in_haste])
def test_a_key_has_one_holder_and_no_call_waits_for_ever(play: Any):
    """Calls that take two keys in either order, and children that hold one around calls that want some."""
    for seed in range(12):
        play(locking_plot(seed), seed)


def test_children_that_run_side_by_side_share_the_last_of_a_budget():
    """Each reads the remaining budget and takes it at once, so that no two take the same."""
    for seed in range(120):
        play_one(racing_plot(seed), seed)


@pytest.mark.parametrize("way", [ASYNCIO, TRIO, SYNC], ids=repr)
@given(plots, seeds)
@settings(max_examples=40)
def test_the_guards_hold_under_every_driver(way: Way, plot: Plot, seed: int):
    """In their own order; without a loop in threads, where a cancelled call continues for a while."""
    with Play(plot, gives_up=way.is_sync) as play:
        steps = two(play, seed)
        results = drive_sync(steps) if way.is_sync else way.call(drive, steps)
    play.check_all(results)


@pytest.mark.parametrize("seed", range(10))
def test_the_guards_hold_for_runs_in_several_threads(seed: int):
    """Each run has its own thread, and all share one table of locks."""
    with Play(large_plot(seed), gives_up=True) as play, ThreadPoolExecutor(3) as pool:
        roots = ["one", "two", "three"]
        results = pool.map(lambda root: drive_sync(whole(play, root, seed)), roots)
        play.check_all(dict(zip(roots, results, strict=True)))
