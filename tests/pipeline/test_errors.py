"""Exceptions of stages, and the progress of an item."""

import asyncio
import copy
import pickle

import pytest

from treadle.effects import Call, CallCancelled, Sleep
from treadle.errors import did_you_mean
from treadle.pipeline import Pipeline, Progress, StageError, goto, goto_point, switch, tbd
from treadle.pipeline.streams import StreamPipeline, composer, plug_with


def double(item):
    return item * 2


def fails(item):
    raise ValueError(f"bad {item}")


def fails_in_steps(item):
    yield Call(fails, item)


async def fails_async(item):
    raise ValueError(f"bad {item}")


@pytest.fixture(params=[{}, {"on_stage": [lambda _: None]}], ids=["plain", "observed"])
def options(request):
    """Without and with an observer, which changes no failure."""
    return request.param


@pytest.mark.parametrize("stage", [fails, fails_in_steps, fails_async])
def test_a_stage_error_has_the_stage_the_item_the_cause_and_the_trace(runner, stage, options):
    ran = []
    pipeline = Pipeline(double, stage, ran.append, **options)
    with pytest.raises(StageError) as caught:
        runner.run(pipeline, 2)
    error = caught.value
    name = stage.__name__
    assert str(error) == f"stage {name!r} raised ValueError: bad 4"
    assert (error.stage, error.item, error.trace) == (name, 4, ("double", name))
    assert isinstance(error.cause, ValueError)
    assert error.__cause__ is error.cause
    assert ran == []


def test_a_stage_error_has_the_item_that_entered_the_stage(runner):
    def breaks_later(item):
        item = [*item, "changed"]
        raise ValueError

    with pytest.raises(StageError) as caught:
        runner.run(Pipeline(breaks_later), ["it"])
    assert caught.value.item == ["it"]


@pytest.mark.parametrize(
    ("component", "name"),
    [
        (switch(fails, {1: []}), "fails"),
        (goto("p", fails), "goto p"),
        (plug_with((fails, lambda inner, item: item), []), "fails"),
        (plug_with((double, fails), [], name="plug"), "plug"),
        (composer(lambda item, memo: fails(item), name="parts"), "parts"),
    ],
)
def test_an_exception_of_another_component_is_a_stage_error_with_its_name(runner, component, name):
    pipeline = StreamPipeline(double, goto_point("p"), component, tbd("never"))
    with pytest.raises(StageError) as caught:
        runner.run(pipeline, 1)
    assert caught.value.stage == name
    assert caught.value.trace == ("double", name)


def test_a_stage_may_catch_the_failure_of_its_effect(runner, options):
    def recovers(item):
        try:
            yield Call(fails, item)
        except ValueError:
            return "recovered"

    assert runner.run(Pipeline(recovers, **options), 1) == "recovered"


def test_stop_iteration_is_a_stage_error(runner):
    def stops(item):
        return next(iter(()))

    with pytest.raises(StageError) as caught:
        runner.run(Pipeline(stops), 1)
    assert caught.value.stage == "stops"


def test_yielding_a_value_that_is_not_an_effect_is_a_stage_error(runner):
    def wrong(item):
        yield item

    with pytest.raises(StageError, match="a stage yielded 5, which is not an effect"):
        runner.run(Pipeline(wrong), 5)


def test_a_cancellation_that_a_plain_stage_raises_itself_is_a_failure(runner, options):
    """As `task.result()` of a cancelled task does: nobody asked to cancel the run."""

    def stage(item):
        raise asyncio.CancelledError

    with pytest.raises(StageError, match="'stage' raised CallCancelled") as caught:
        runner.run(Pipeline(stage, **options), 1)
    assert isinstance(caught.value.cause.__cause__, asyncio.CancelledError)


def test_a_cancellation_that_a_generator_stage_raises_itself_is_a_failure(runner):
    def stage(item):
        yield Sleep(0)
        raise asyncio.CancelledError

    with pytest.raises(CallCancelled):
        runner.run(Pipeline(stage), 1)


def test_an_interrupt_is_not_wrapped():
    def stage(item):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pipeline(stage).run_sync(1)


def exits(item):
    raise SystemExit(3)


def exits_with_effects(item):
    yield Sleep(0)
    raise SystemExit(3)


async def exits_later(item):
    raise SystemExit(3)


@pytest.mark.parametrize("fn", [exits, exits_with_effects, exits_later])
def test_a_stage_that_exits_fails(runner, fn, options):
    with pytest.raises(StageError, match=r"raised CallExited: .* sys.exit\(3\)") as caught:
        runner.run(Pipeline(fn, **options), 1)
    assert isinstance(caught.value.cause.__cause__, SystemExit)


def test_a_stage_error_can_be_pickled_and_copied():
    error = StageError("stage", [1], ValueError("bad"), ("first", "stage"))
    unpickled = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    for other in (unpickled, copy.copy(error)):
        assert str(other) == str(error)
        assert (other.stage, other.item, other.trace) == ("stage", [1], ("first", "stage"))


def test_progress_is_updated_during_execution(runner):
    progress = Progress()
    seen = []

    def look(item):
        seen.append((progress.item, list(progress.stages)))
        return item

    runner.drive(Pipeline(double, look).steps(3, progress))
    assert seen == [(6, ["double", "look"])]
    assert (progress.item, progress.stages) == (6, ["double", "look"])


def test_a_trace_has_every_pass_of_a_loop():
    with pytest.raises(StageError) as caught:
        Pipeline(
            goto_point("again"),
            double,
            goto("again", lambda item: item < 8),
            fails,
        ).run_sync(1)
    assert caught.value.trace == ("double", "double", "double", "fails")


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("treshold", ["threshold", "other"], "; did you mean 'threshold'?"),
        ("zzz", ["a", "b"], "; known are a, b"),
        (3, [40], "; known are 40"),
        ("x", [], "; there are none"),
    ],
)
def test_did_you_mean_suggests_the_closest_name_or_lists_all(name, known, hint):
    assert did_you_mean(name, known) == hint
