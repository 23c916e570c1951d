"""Observers of stages."""

import pytest

from treadle.effects import Bounded, Signal, Sleep, Stopped
from treadle.pipeline import Pipeline, StageError, goto, goto_point
from treadle.pipeline.streams import StreamPipeline, composer


def double(item):
    return item * 2


def steps(item):
    yield Sleep(0.005)
    return item + 1


async def async_stage(item):
    return item + 1


def fails(item):
    raise ValueError(item)


def summary(events):
    return [(event.kind, event.stage, event.item) for event in events]


def test_observers_see_the_start_and_the_stop_of_every_stage(runner):
    events = []
    pipeline = Pipeline(double, steps, async_stage, on_stage=[events.append])
    assert runner.run(pipeline, 1) == 4
    assert summary(events) == [
        ("start", "double", 1),
        ("stop", "double", 2),
        ("start", "steps", 2),
        ("stop", "steps", 3),
        ("start", "async_stage", 3),
        ("stop", "async_stage", 4),
    ]
    started, stopped = events[2:4]
    assert started.duration is None
    assert 0.005 <= stopped.duration < 1
    assert stopped.at == pytest.approx(started.at + stopped.duration)
    assert stopped.error is None


def test_observers_see_the_exception_of_a_stage(runner):
    events = []
    with pytest.raises(StageError) as caught:
        runner.run(Pipeline(fails, double, on_stage=[events.append]), 1)
    assert summary(events) == [("start", "fails", 1), ("exception", "fails", 1)]
    assert events[1].error is caught.value.cause
    assert events[1].duration >= 0


def test_a_cancellation_is_observed_as_an_exception(runner):
    events, stop = [], Signal()

    def slow(item):
        stop.set()
        yield Sleep(30)

    def bounded():
        try:
            yield Bounded(Pipeline(slow, on_stage=[events.append]).steps(1), until=stop)
        except Stopped:
            return "ended"

    assert runner.drive(bounded()) == "ended"
    assert summary(events) == [("start", "slow", 1), ("exception", "slow", 1)]
    assert not isinstance(events[1].error, Exception)


def test_an_abandoned_stage_emits_no_more_events():
    events = []

    def slow(item):
        yield Sleep(30)

    steps_of_one = Pipeline(slow, on_stage=[events.append]).steps(1)
    for outcome in (None, 0.0):
        steps_of_one.send(outcome)
    steps_of_one.close()
    assert summary(events) == [("start", "slow", 1)]


def test_an_observer_that_raises_is_logged_and_changes_nothing(runner, caplog):
    events = []

    def raises(event):
        raise RuntimeError(event.kind)

    pipeline = Pipeline(double, on_stage=[raises, events.append])
    assert runner.run(pipeline, 1) == 2
    assert len(events) == 2
    assert [record.name for record in caplog.records] == ["treadle.pipeline"] * 2


def test_only_stages_are_observed_each_time_an_item_enters(runner):
    events = []
    pipeline = StreamPipeline(
        goto_point("again"),
        composer(lambda item, memo: ([item], memo)),
        double,
        goto("again", lambda item: item < 4),
        on_stage=[events.append],
    )
    assert runner.run(pipeline, 1) == 4
    assert summary(events) == [
        ("start", "double", 1),
        ("stop", "double", 2),
        ("start", "double", 2),
        ("stop", "double", 4),
    ]


def test_a_stream_is_observed_item_by_item(runner):
    events = []
    pipeline = StreamPipeline(double, on_stage=[events.append])
    assert runner.stream(pipeline, range(3)) == [0, 2, 4]
    assert summary(events)[:2] == [("start", "double", 0), ("stop", "double", 0)]
    assert len(events) == 6


def test_without_observers_no_effect_is_yielded_for_them():
    with pytest.raises(StopIteration):
        Pipeline(double).steps(1).send(None)
