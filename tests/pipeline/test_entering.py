"""An item that enters a pipeline at a later stage."""

import pytest

from treadle.effects import Call
from treadle.pipeline import (
    Pipeline,
    PipelineError,
    Progress,
    StageError,
    composer,
    done,
    embed,
    goto,
    goto_point,
    plug_with,
    stage,
    switch,
    tbd,
)


def noted(name):
    """A stage that adds its name to the item."""
    return stage(lambda item: (*item, name), name=name)


async def later(item):
    return (*item, "later")


def in_steps(item):
    return (yield Call(lambda: (*item, "in_steps")))


SIMPLE = Pipeline(noted("a"), later, in_steps, tbd("open"), noted("z"))

RICH = Pipeline(
    noted("a"),
    switch(len, {1: [noted("one")], 2: [noted("two")]}, name="how_many"),
    goto_point("point"),
    plug_with((lambda item: item, lambda item, kept: item), [noted("inner")], name="plug"),
    goto("point", when=lambda item: len(item) < 3, name="again"),
    embed(Pipeline(noted("part")), name="whole"),
    done(when=lambda item: "end" in item, name="end"),
    composer(lambda item, memo: ([item], memo), memo=None, name="compose"),
    noted("after"),
)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, ("a", "later", "in_steps", "z")),
        ("a", ("a", "later", "in_steps", "z")),
        ("later", ("later", "in_steps", "z")),
        ("in_steps", ("in_steps", "z")),
        ("open", ("z",)),
        ("z", ("z",)),
    ],
)
def test_goes_through_that_stage_and_all_that_follow(runner, start, expected):
    trace = Progress()
    assert runner.drive(SIMPLE.steps((), trace, start=start)) == expected
    stages = ["a", "later", "in_steps", "open", "z"]
    assert trace.stages == stages[stages.index(start or "a") :]
    assert trace.item == expected


@pytest.mark.parametrize(
    ("start", "item", "expected"),
    [
        ("how_many", ("x",), ("x", "one", "inner", "part", "after")),
        ("plug", ("x", "y"), ("x", "y", "inner", "part", "after")),
        ("again", ("x",), ("x", "inner", "inner", "part", "after")),
        ("end", ("x",), ("x", "after")),
        ("end", ("end",), ("end",)),
        ("compose", ("x",), ("x", "after")),
    ],
)
def test_may_start_at_any_component_at_the_top_up_to_a_composer(runner, start, item, expected):
    assert runner.drive(RICH.steps(item, start=start)) == expected


@pytest.mark.parametrize(
    "start", ["nonsense", "", "after", "plug/inner", "inner", "one", "part", "whole.part", "point"]
)
def test_a_name_where_none_can_start_is_an_error_that_names_where_one_can(runner, start):
    with pytest.raises(PipelineError) as caught:
        runner.drive(RICH.steps(("x",), start=start))
    assert str(caught.value) == (
        f"an item cannot start at {start!r}; where it can: a, how_many, plug, again, end, compose"
    )


def test_a_point_is_not_taken_for_the_nested_stage_of_the_same_name(runner):
    pipeline = Pipeline(
        goto_point("same"), switch(bool, {True: [noted("same")], False: []}, name="switch")
    )
    with pytest.raises(PipelineError, match="cannot start at 'same'; where it can: switch"):
        runner.drive(pipeline.steps((), start="same"))


def test_a_pipeline_of_nothing_has_no_place_to_start(runner):
    with pytest.raises(PipelineError, match="where it can: none"):
        runner.drive(Pipeline().steps((), start="a"))


def test_observers_are_told_of_the_stages_from_there_on(runner):
    events = []
    pipeline = Pipeline(noted("a"), noted("b"), noted("c"), on_stage=[events.append])
    assert runner.drive(pipeline.steps((), start="b")) == ("b", "c")
    assert [event.stage for event in events if event.kind == "start"] == ["b", "c"]


def test_a_stage_that_fails_tells_the_stages_from_there_on(runner):
    def fails(item):
        raise ValueError

    with pytest.raises(StageError) as caught:
        runner.drive(Pipeline(noted("a"), noted("b"), fails).steps((), start="b"))
    assert caught.value.trace == ("b", "fails")
