"""The review of what custom stages did to an item."""

import functools

import pytest

from treadle.effects import Sleep
from treadle.pipeline import (
    Pipeline,
    PipelineError,
    StageError,
    composer,
    dead_end,
    done,
    embed,
    goto,
    goto_point,
    plug_with,
    stage,
    switch,
    tbd,
)


def double(item):
    return item * 2


def steps(item):
    yield Sleep(0)
    return item + 1


async def async_stage(item):
    return item + 1


class Reviews:
    """A review that notes its calls and adds a number to each item."""

    def __init__(self, add=0):
        self.calls = []
        self.add = add

    def __call__(self, name, before, after):
        self.calls.append((name, before, after))
        return after + self.add


def refuse(name, before, after):
    raise ValueError(f"{name} made {after} of {before}")


def test_each_kind_of_stage_is_reviewed_and_the_reviewed_item_is_passed_on(runner):
    review = Reviews(add=100)
    pipeline = Pipeline(double, steps, async_stage, review=review)
    assert runner.run(pipeline, 1) == 304
    assert review.calls == [
        ("double", 1, 2),
        ("steps", 102, 103),
        ("async_stage", 203, 204),
    ]


def test_trusted_functions_are_not_reviewed(runner):
    review = Reviews()
    made = stage(double, name="trusted_with_another_name")
    pipeline = Pipeline(made, steps, async_stage, review=review, trusted=[double, async_stage])
    assert runner.run(pipeline, 1) == 4
    assert review.calls == [("steps", 2, 3)]


def test_a_stage_with_options_is_trusted_by_its_function(runner):
    def add(item, *, much=1):
        return item + much

    review = Reviews()
    assert runner.run(Pipeline(stage(add, much=5), review=review, trusted=[add]), 1) == 6
    assert review.calls == []


def test_unhashable_functions_can_be_trusted(runner):
    class Unhashable:
        __hash__ = None

        def __call__(self, item):
            return item + 1

    fn, review = Unhashable(), Reviews()
    assert runner.run(Pipeline(fn, review=review, trusted=[fn]), 1) == 2
    assert review.calls == []


def test_components_that_leave_the_item_as_it_is_are_not_reviewed(runner):
    review = Reviews()
    pipeline = Pipeline(
        tbd("later"),
        switch(lambda _: "a", {"a": []}),
        goto_point("on"),
        goto("on", when=lambda _: False),
        done(lambda _: True),
        dead_end(),
        review=review,
    )
    assert runner.run(pipeline, 1) == 1
    assert review.calls == []


@pytest.mark.parametrize("failing", [double, steps, async_stage])
def test_an_exception_of_the_review_is_a_stage_error_with_the_item_before(runner, failing):
    with pytest.raises(StageError, match=f"{failing.__name__} made 2 of 1") as caught:
        runner.run(Pipeline(failing, review=refuse), 1)
    error = caught.value
    assert (error.stage, error.item, error.trace) == (failing.__name__, 1, (failing.__name__,))
    assert isinstance(error.cause, ValueError)
    assert error.__cause__ is error.cause


def test_each_part_of_a_composer_is_reviewed_against_the_item_that_entered(runner):
    review = Reviews(add=100)
    split = composer(lambda item, memo: ([item + 1, item + 2], memo), name="split")
    assert runner.run_all(Pipeline(split, review=review), 1) == [102, 103]
    assert review.calls == [("split", 1, 2), ("split", 1, 3)]


def test_a_composer_whose_part_is_refused_keeps_its_memo(runner):
    seen = []

    def count(item, memo):
        seen.append(memo)
        return [item], memo + 1

    def refuse_two(name, before, after):
        if after == 2:
            raise ValueError(after)
        return after

    pipeline = Pipeline(composer(count, 0), review=refuse_two)
    *out, error = runner.stream(pipeline, [1, 2])
    assert out == [1]
    assert (error.stage, error.item) == ("count", 2)
    assert seen == [0, 1]


def test_a_trusted_composer_is_not_reviewed(runner):
    def split(item, memo):
        return [item, item], memo

    review = Reviews()
    assert runner.run_all(Pipeline(composer(split), review=review, trusted=[split]), 1) == [1, 1]
    assert review.calls == []


def plug(item):
    return str(item)


def unplug(inner, original):
    return original + len(inner)


def lengthen(text):
    return text + "!"


def test_inside_a_plug_only_the_item_that_comes_out_is_reviewed(runner):
    review = Reviews()
    plugged = plug_with((plug, unplug), [lengthen, plug_with((plug, lambda a, b: a), lengthen)])
    assert runner.run(Pipeline(plugged, double, review=review, trusted=[double]), 1) == 8
    assert review.calls == [("plug", 1, 4)]


def test_an_item_refused_after_a_plug_is_reported_as_it_entered_the_plug(runner):
    with pytest.raises(StageError) as caught:
        runner.run(Pipeline(plug_with((plug, unplug), lengthen), review=refuse), 1)
    assert (caught.value.stage, caught.value.item) == ("plug", 1)


def test_a_trusted_unplug_is_not_reviewed(runner):
    review = Reviews()
    pipeline = Pipeline(plug_with((plug, unplug), lengthen), review=review, trusted=[unplug])
    assert runner.run(pipeline, 1) == 3
    assert review.calls == []


def test_branches_are_reviewed(runner):
    review = Reviews()
    pipeline = Pipeline(switch(lambda _: "a", {"a": double, "b": []}), review=review)
    assert runner.run(pipeline, 1) == 2
    assert review.calls == [("double", 1, 2)]


def test_embedded_stages_are_reviewed_by_their_pipeline_and_then_by_the_one_around(runner):
    inner, outer = Reviews(add=10), Reviews(add=100)
    embedded = Pipeline(double, steps, review=inner, trusted=[steps])
    pipeline = Pipeline(embed(embedded, "sub"), double, review=outer, trusted=[steps])
    assert runner.run(pipeline, 1) == 326
    assert inner.calls == [("sub.double", 1, 2)]
    assert outer.calls == [("sub.double", 1, 12), ("double", 113, 226)]


def test_a_pipeline_embedded_in_a_plug_keeps_its_own_review(runner):
    review = Reviews(add=1)
    inner = embed(Pipeline(double, review=review), "sub")
    pipeline = Pipeline(plug_with((int, lambda a, b: a), inner), review=refuse, trusted=[])
    with pytest.raises(StageError, match="int made 3 of 1"):
        runner.run(pipeline, 1)
    assert review.calls == [("int/sub.double", 1, 2)]


@pytest.mark.parametrize(
    "edit",
    [
        lambda pipeline: pipeline.insert_before("steps", double),
        lambda pipeline: pipeline.insert_after("async_stage", double),
        lambda pipeline: pipeline.replace("async_stage", double),
        lambda pipeline: pipeline.insert_before("steps", double).without("async_stage"),
    ],
)
def test_an_edited_pipeline_keeps_the_review_and_the_trusted_functions(runner, edit):
    review = Reviews()
    pipeline = Pipeline(steps, async_stage, review=review, trusted=[steps, async_stage])
    runner.run(edit(pipeline), 1)
    assert [name for name, _, _ in review.calls] == ["double"]


def test_an_edited_embedded_pipeline_keeps_its_review(runner):
    review = Reviews()
    pipeline = Pipeline(embed(Pipeline(steps, review=review), "sub"))
    runner.run(pipeline.insert_after("sub.steps", double), 1)
    assert review.calls == [("sub.steps", 1, 2), ("sub.double", 2, 4)]


def test_a_stream_reviews_each_item_whatever_the_count_of_the_stage(runner):
    review = Reviews(add=100)
    pipeline = Pipeline(stage(double, count=2), steps, review=review, trusted=[steps])
    assert runner.stream(pipeline, [1, 2, 3], concurrency=3) == [103, 105, 107]
    assert sorted(review.calls) == [("double", 1, 2), ("double", 2, 4), ("double", 3, 6)]


def test_observed_stages_are_reviewed(runner):
    review, events = Reviews(add=100), []
    pipeline = Pipeline(double, review=review, on_stage=[events.append])
    assert runner.run(pipeline, 1) == 102
    assert [event.item for event in events] == [1, 2]


def test_the_review_sees_only_items_of_the_right_type(runner):
    review = Reviews()
    with pytest.raises(StageError, match="returned str, expected int"):
        runner.run(Pipeline(str, item=int, review=review), 1)
    assert review.calls == []


def test_until_is_evaluated_on_the_reviewed_item(runner):
    pipeline = Pipeline(double, steps, until=lambda item: item > 100, review=Reviews(add=100))
    assert runner.run(pipeline, 1) == 102
    split = composer(lambda item, memo: ([item], memo))
    pipeline = Pipeline(split, double, until=lambda item: item > 100, review=Reviews(add=100))
    assert runner.run(pipeline, 1) == 101
    plugged = plug_with((plug, unplug), lengthen)
    pipeline = Pipeline(plugged, double, until=lambda item: item > 100, review=Reviews(add=100))
    assert runner.run(pipeline, 1) == 103


async def async_review(name, before, after):
    return after


@pytest.mark.parametrize("review", [async_review, functools.partial(async_review), 3])
def test_a_review_is_a_plain_function(review):
    with pytest.raises(PipelineError, match="review must be"):
        Pipeline(double, review=review)
