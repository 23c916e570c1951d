"""The replay of a run from the outcomes of its effects, and a check that no thread is left."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from tests.redis_server import redis_server, redis_url
from tests.ways import ObservedRun, Way
from tests.whole.recorder import Recorder, replay
from tests.whole.test_replay import no_world

from treadle import Loop

__all__ = ["redis_server", "redis_url"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Nothing that a test began is still running; the threads of event loops and of their pools may stay."""
    before = set(threading.enumerate())
    yield
    left = [one for one in set(threading.enumerate()) - before if one.name == "treadle-worker"]
    for one in left:
        one.join(2)
    assert not [one for one in left if one.is_alive()]


def replayed(messages: Any, model: Any, options: dict[str, Any], log: Any) -> ObservedRun:
    """Run again from a recording; the model is not called, and no time passes."""
    again = ObservedRun()
    kept = pickle.loads(pickle.dumps(log))  # noqa: S301 - what was written here
    with no_world():
        steps = Loop.steps(
            messages, model, **options, state=again.state, on_event=again.events.append
        )
        again.result = replay(steps, kept, again.events.append)
    return again


def check_replay(driven: Way, messages: Any, model: Any, options: Any) -> ObservedRun:
    """Run with a recorder, and check that a replay of the effects alone gives the same.

    Args:
        driven: how to run.
        messages: what the run starts from.
        model: the model.
        options: returns the options, with middleware made anew.
    """
    recorder = Recorder()
    observed = driven.run(messages, model, **options(), middleware=[recorder])
    sent = len(model.sent)
    again = replayed(messages, model, options(), recorder.log)
    assert len(model.sent) == sent
    assert again.result == observed.result
    assert list(map(repr, again.events)) == list(map(repr, observed.events))
    return observed
