"""Construction: invalid definitions are refused with the name of the component; item types are checked."""

from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import pytest

from treadle.pipeline import (
    Component,
    Pipeline,
    PipelineError,
    StageError,
    done,
    embed,
    goto,
    goto_point,
    stage,
    switch,
)
from treadle.pipeline.streams import StreamPipeline, composer, dead_end, plug_with, replicated


@dataclass(frozen=True)
class Item:
    messages: list
    calls: int = 0


def a(item):
    return item


def b(item):
    return item


async def async_fn(item):
    return item


def steps_fn(item):
    yield


async def async_steps_fn(item):
    yield


def adapt(inner, original):
    return inner


NEEDY = stage(b, requires=["calls"])
FILLER = stage(a, provides=["calls"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Pipeline(a, a), "two components named 'a'"),
        (lambda: Pipeline(a, switch(b, {1: a})), "two components named 'a'"),
        (lambda: Pipeline(embed(Pipeline(a), "x"), stage(a, name="x.a")), "named 'x.a'"),
        (
            lambda: Pipeline(a, goto("start", a)),
            r"goto_point\('start'\), which does not exist; there are none",
        ),
        (
            lambda: Pipeline(goto_point("start"), goto("strat", a)),
            "'goto strat' refers to .*which does not exist; did you mean 'start'",
        ),
        (
            lambda: StreamPipeline(goto_point("p"), plug_with((a, adapt), goto("p", a))),
            "which does not exist",
        ),
        (
            lambda: Pipeline(embed(Pipeline(goto_point("p")), "x"), goto("p", a)),
            "which does not exist",
        ),
        (lambda: Pipeline(goto_point("p"), goto_point("p")), "two goto_points named 'p'"),
        (lambda: Pipeline(NEEDY), "stage 'b' requires calls, which no stage before it provides"),
        (lambda: Pipeline(NEEDY, FILLER), "'b' requires calls"),
        (lambda: Pipeline(switch(str, {"x": FILLER, "y": []}), NEEDY), "'b' requires calls"),
        (lambda: Pipeline(embed(Pipeline(a), "x"), NEEDY), "'b' requires calls"),
        (
            lambda: Pipeline(goto("p", a), FILLER, goto_point("p"), NEEDY),
            "'b' requires calls, which no stage before it provides",
        ),
        (
            lambda: Pipeline(switch(str, {1: goto("p", b), 2: []}), FILLER, goto_point("p"), NEEDY),
            "'b' requires calls",
        ),
        (
            lambda: StreamPipeline(goto("p", b), dead_end(), goto_point("p"), NEEDY),
            "'b' requires calls",
        ),
        (lambda: Pipeline(embed(Pipeline(done(b), FILLER), "x"), NEEDY), "'b' requires calls"),
        (
            lambda: Pipeline(stage(a, requires=["message"]), item=Item),
            r"names the field 'message'.*did you mean 'messages'",
        ),
        (lambda: Pipeline(stage(a, provides=["nothing"]), item=Item), "names the field 'nothing'"),
        (lambda: Pipeline(a, 3), "components and callables, not int"),
        (lambda: Pipeline("a"), "components and callables, not str"),
        (lambda: Pipeline(Component("odd")), "is not a known kind of component"),
        (lambda: Pipeline(Pipeline(a)), "components and callables, not Pipeline"),
        (lambda: Pipeline(switch(a, {"x": 3})), "components and callables, not int"),
        (lambda: Pipeline(async_steps_fn), "'async_steps_fn' is an async generator"),
        (
            lambda: Pipeline(lambda: 1),
            "'lambda' cannot be called with the item as its only argument",
        ),
        (lambda: Pipeline(lambda item, other: 1), "missing a required argument: 'other'"),
        (lambda: Pipeline(a, until="x"), "until must be callable, not str"),
        (lambda: Pipeline(a, until=async_fn), "until must be a plain function, but 'async_fn'"),
        (lambda: Pipeline(a, on_stage=[3]), "an observer in on_stage must be callable, not int"),
        (
            lambda: Pipeline(a, on_stage=[async_fn]),
            "an observer in on_stage must be a plain function",
        ),
        (lambda: Pipeline(a, item=3), "item must be the type of the items, not 3"),
        (lambda: stage(3), "a stage must be callable, not int"),
        (lambda: stage("name"), "a stage must be callable, not str"),
        (lambda: stage(a, replaces="a"), "replaces= takes a stage, such as plan_calls"),
        (lambda: replicated(a, 0), "stage 'a': count must be at least 1, not 0"),
        (lambda: stage(a, colour=1), "stage 'a' has no option 'colour'; there are none"),
        (lambda: stage(a, item=1), "stage 'a' has no option 'item'"),
        (
            lambda: stage(lambda item, *, threshold: item, treshold=1),
            "no option 'treshold'; did you mean 'threshold'",
        ),
        (lambda: FILLER(colour=1), "stage 'a' has no option 'colour'"),
        (lambda: switch(3, {1: a}), "the function of switch 'int' must be callable, not int"),
        (lambda: switch(async_fn, {1: a}), "do that work in a stage before it"),
        (lambda: switch(a, {}), "switch 'a' has no branches"),
        (lambda: switch(a, [a]), "switch 'a' has no branches"),
        (lambda: goto("p", True), "the condition of a goto to 'p' must be callable, not bool"),
        (lambda: done(steps_fn), "the condition of a done must be a plain function"),
        (lambda: composer(3), "the function of composer 'int' must be callable"),
        (
            lambda: composer(steps_fn),
            "the function of composer 'steps_fn' must be a plain function",
        ),
        (lambda: plug_with(object(), a), r"needs two functions, plug\(item\) and unplug"),
        (lambda: plug_with((a, adapt, a), a), "needs two functions"),
        (lambda: plug_with((a, 3), a), "needs two functions"),
        (
            lambda: plug_with((async_fn, adapt), a),
            "the plug of 'async_fn' must be a plain function",
        ),
        (lambda: embed(a, "x"), r"embed\('x'\) takes a Pipeline, not function"),
    ],
)
def test_an_invalid_definition_is_refused(build, message):
    with pytest.raises(PipelineError, match=message):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Pipeline(FILLER, NEEDY, item=Item),
        lambda: Pipeline(NEEDY, given=["calls"]),
        lambda: Pipeline(NEEDY, given="calls"),
        lambda: Pipeline(embed(Pipeline(FILLER), "x"), NEEDY),
        lambda: Pipeline(FILLER, embed(Pipeline(NEEDY, given=["calls"]), "x")),
        lambda: Pipeline(switch(str, {"x": FILLER, "y": stage(a, "c", provides=["calls"])}), NEEDY),
        lambda: StreamPipeline(switch(str, {"x": FILLER, "y": dead_end()}), NEEDY),
        lambda: Pipeline(FILLER, goto("p", a), stage(a, "c"), goto_point("p"), NEEDY),
        lambda: Pipeline(FILLER, goto_point("p"), NEEDY, goto("p", a)),
        lambda: Pipeline(goto("p", a), goto_point("q"), FILLER, NEEDY, goto_point("p")),
        lambda: StreamPipeline(FILLER, goto("p", a), dead_end(), goto_point("p"), NEEDY),
        lambda: Pipeline(done(a), FILLER, NEEDY),
        lambda: Pipeline(embed(Pipeline(FILLER, done(b)), "x"), NEEDY),
        lambda: StreamPipeline(switch(str, {"x": dead_end(), "y": dead_end("z")}), NEEDY),
        lambda: StreamPipeline(plug_with((a, adapt), stage(b, requires=["rows"])), item=Item),
        lambda: StreamPipeline(
            plug_with((a, adapt), embed(Pipeline(NEEDY, given=["calls"]), "x")), item=Item
        ),
        lambda: StreamPipeline(goto_point("a"), a, plug_with((a, adapt), a, name="p")),
        lambda: Pipeline(goto_point("p"), embed(Pipeline(goto_point("p")), "x")),
        lambda: stage(lambda item, **options: item, anything=1),
        lambda: stage(lambda *items, option: items, option=1),
        lambda: Pipeline(print, min),
    ],
)
def test_a_valid_definition_is_accepted(build):
    assert build()


def test_inherited_fields_count_as_fields():
    class Base:
        inherited: int

    class Derived(Base):
        own: int

    assert Pipeline(stage(a, provides=["inherited", "own"]), item=Derived)


class Row(TypedDict):
    key: str


class Named(Protocol):
    name: str


@pytest.mark.parametrize(
    ("item_type", "good", "bad"),
    [
        (int, 1, "x"),
        (dict[str, int], {}, 1),
        (Row, {"key": "x"}, 1),
        (int | str, "x", None),
    ],
)
def test_a_stage_must_return_the_type_of_the_items(runner, item_type, good, bad):
    assert runner.run(Pipeline(lambda item: good, item=item_type), good) == good
    with pytest.raises(StageError, match="expected "):
        runner.run(Pipeline(lambda item: bad, item=item_type), good)


@pytest.mark.parametrize("item_type", [Any, Named, None])
def test_a_type_that_isinstance_cannot_check_accepts_anything(runner, item_type):
    assert runner.run(Pipeline(lambda item: None, item=item_type), 1) is None


def test_the_error_hints_at_a_missing_return(runner):
    def forgets(item):
        item + 1

    with pytest.raises(StageError, match=r"returned NoneType, .*; is a return missing\?"):
        runner.run(Pipeline(forgets, item=int), 1)


def test_the_type_is_checked_after_every_stage_and_for_every_part_of_a_composer(runner):
    first = Pipeline(a, b, str, item=int)
    with pytest.raises(StageError, match="stage 'str' raised TypeError"):
        runner.run(first, 1)
    parts = StreamPipeline(composer(lambda item, memo: ([1, "x"], memo), name="parts"), item=int)
    with pytest.raises(StageError, match="stage 'parts' raised TypeError: it returned str"):
        runner.run_all(parts, 1)
