"""Entry points: an item enters a pipeline at a later component."""

import pytest

from treadle.effects import Call
from treadle.pipeline import (
    Pipeline,
    PipelineError,
    Progress,
    done,
    embed,
    goto,
    goto_point,
    stage,
    switch,
    tbd,
)
from treadle.pipeline.streams import StreamPipeline, composer, plug_with


def appending(name):
    """A stage that adds its name to the item."""
    return stage(lambda item: (*item, name), name=name)


async def later(item):
    return (*item, "later")


def in_steps(item):
    return (yield Call(lambda: (*item, "in_steps")))


SIMPLE = Pipeline(appending("a"), later, in_steps, tbd("open"), appending("z"))

RICH = StreamPipeline(
    appending("a"),
    switch(len, {1: [appending("one")], 2: [appending("two")]}, name="how_many"),
    goto_point("point"),
    plug_with((lambda item: item, lambda item, kept: item), [appending("inner")], name="plug"),
    goto("point", when=lambda item: len(item) < 3, name="again"),
    embed(Pipeline(appending("part")), name="whole"),
    done(when=lambda item: "end" in item, name="end"),
    composer(lambda item, memo: ([item], memo), memo=None, name="compose"),
    appending("after"),
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
def test_execution_starts_at_that_stage(runner, start, expected):
    progress = Progress()
    assert runner.drive(SIMPLE.steps((), progress, start=start)) == expected
    stages = ["a", "later", "in_steps", "open", "z"]
    assert progress.stages == stages[stages.index(start or "a") :]
    assert progress.item == expected


@pytest.mark.parametrize(
    ("start", "item", "expected"),
    [
        ("how_many", ("x",), ("x", "one", "inner", "part", "after")),
        ("plug", ("x", "y"), ("x", "y", "inner", "part", "after")),
        ("again", ("x",), ("x", "inner", "inner", "part", "after")),
        ("whole", ("x",), ("x", "part", "after")),
        ("end", ("x",), ("x", "after")),
        ("end", ("end",), ("end",)),
        ("compose", ("x",), ("x", "after")),
        ("after", ("x",), ("x", "after")),
    ],
)
def test_any_top_level_component_is_an_entry_point(runner, start, item, expected):
    assert runner.drive(RICH.steps(item, start=start)) == expected


@pytest.mark.parametrize(
    "start", ["nonsense", "", "plug/inner", "inner", "one", "part", "whole.part", "point"]
)
def test_another_name_is_an_error_that_lists_the_entry_points(runner, start):
    with pytest.raises(PipelineError) as caught:
        runner.drive(RICH.steps(("x",), start=start))
    assert str(caught.value) == (
        f"an item cannot start at {start!r}; entry points: "
        "a, how_many, plug, again, whole, end, compose, after"
    )
    with pytest.raises(PipelineError, match=r"entry points: none$"):
        runner.drive(Pipeline().steps((), start=start))


def test_execution_starts_inside_an_embedded_pipeline_whether_or_not_there_is_an_until(runner):
    parts = (appending("a"), embed(Pipeline(appending("part")), "whole"), appending("z"))
    for pipeline in (Pipeline(*parts), Pipeline(*parts, until=lambda item: "never" in item)):
        assert pipeline.has_entry("whole")
        assert runner.drive(pipeline.steps((), start="whole")) == ("part", "z")


def test_observers_are_called_from_that_stage_on(runner):
    events = []
    pipeline = Pipeline(appending("a"), appending("b"), appending("c"), on_stage=[events.append])
    assert runner.drive(pipeline.steps((), start="b")) == ("b", "c")
    assert [event.stage for event in events if event.kind == "start"] == ["b", "c"]
