"""Parity with ALF, the pipelines that LlmCore is built on: the differences; `tests/pipeline` has the rest."""

import threading
import time

import pytest

from treadle.pipeline.streams import StreamPipeline, composer, replicated


def pairs(n, memo):
    """Keep every other item as the memo, and pair it with the next one."""
    return ([(memo, n)], None) if memo is not None else ([], n)


def test_composer_memory_does_not_leak_from_one_run_to_the_next(runner):
    """Each run begins with the first memo. (In ALF it leaks between plain calls.)"""
    pipeline = StreamPipeline(composer(pairs))
    assert [runner.run_all(pipeline, n) for n in (1, 2)] == [[], []]
    assert runner.stream(pipeline, [3]) == []
    assert runner.stream(pipeline, [4, 5, 6, 7]) == [(4, 5), (6, 7)]


@pytest.mark.parametrize("count", [1, 3])
def test_count_limits_the_items_in_a_stage(runner, count):
    """A stage with a count of three works on three items. (In ALF's sync mode the count is ignored.)"""
    all_here = threading.Barrier(count, timeout=5)
    lock, inside, most = threading.Lock(), [], []

    def work(n):
        with lock:
            inside.append(n)
            most.append(len(inside))
        all_here.wait()
        time.sleep(0.002)
        with lock:
            inside.remove(n)
        return n

    pipeline = StreamPipeline(replicated(work, count))
    assert runner.stream(pipeline, range(6), concurrency=6) == list(range(6))
    assert max(most) == count
