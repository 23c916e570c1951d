"""Properties of every pipeline, tested on random ones."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.effects import NOW, Bounded, Call, Mode, Parallel, Sleep, TimeLimitReached
from treadle.pipeline import Pipeline, StageError, done, embed, goto, goto_point, stage, switch, tbd
from treadle.pipeline.streams import NotOneItemError, StreamPipeline, composer, dead_end, plug_with

# Stages from number to number, one of each kind.


def plain(item, by):
    return item + by


def in_steps(item, by):
    now = yield NOW
    return item + (yield Call(plain, now * 0, by, mode=Mode.INLINE))


def in_parallel(item, by):
    def branch(part):
        yield Sleep(0)
        return (yield Call(plain, part, by, mode=Mode.THREAD))

    return sum((yield Parallel([branch(item), branch(0), branch(1)], limit=2)))


def within_bounds(item, by):
    def slow():
        yield Sleep(30)

    try:
        yield Bounded(slow(), seconds=0)
    except TimeLimitReached:
        return item + by


async def in_async(item, by):
    return item - by


def picky(item, by):
    if item % 7 == by:
        raise ValueError(item)
    return item


LEAVES = st.tuples(
    st.sampled_from([plain, in_steps, in_parallel, within_bounds, in_async, picky]),
    st.integers(-3, 3),
)
KINDS = ("switch", "done", "drop", "composer", "memo", "plug", "embed", "loop", "skip", "tbd")


def plans(kinds):
    """What to build: a stage, a component with parts, or a list of these."""
    return st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.tuples(st.sampled_from(kinds), st.integers(0, 3), inner, inner),
        ),
        max_leaves=8,
    )


def built(plan, names=None):
    """The components of a plan, each with a unique name."""
    names = itertools.count() if names is None else names
    if isinstance(plan, list):
        return [built(part, names) for part in plan]
    name = f"c{next(names)}"
    if len(plan) == 2:
        return stage(plan[0], name, by=plan[1])
    kind, number, *parts = plan
    inner, other = (built(part, names) for part in parts)
    return BUILD[kind](name, number, inner, other)


def looped(name, number, inner, other):
    """Each pass increases the item, so that the loop ends."""
    again = goto(name, lambda item: item < 40, name=f"{name} again")
    return [goto_point(name), stage(plain, f"{name} add", by=20), inner, again]


BUILD = {
    "switch": lambda name, number, inner, other: switch(
        lambda item: item % 2, {0: inner, 1: other}, name
    ),
    "done": lambda name, number, *_: done(lambda item: item % 5 == number, name),
    "drop": lambda name, number, inner, other: switch(
        lambda item: item % 9 == 0, {True: dead_end(f"{name} drop"), False: inner}, name
    ),
    "composer": lambda name, number, *_: composer(
        lambda item, memo: ([item + n for n in range(number)], memo), name=name
    ),
    "memo": lambda name, *_: composer(
        lambda item, memo: ([item + memo], memo + 1), memo=0, name=name
    ),
    "plug": lambda name, number, inner, other: plug_with(
        (lambda item: item * 2, lambda inside, item: inside - item), inner, name
    ),
    "embed": lambda name, number, inner, other: embed(
        StreamPipeline(inner, until=lambda item: item % 11 == 0), name
    ),
    "loop": looped,
    "skip": lambda name, number, inner, other: [
        goto(name, lambda item: item % 3 == 0, name=f"{name} skip"),
        inner,
        goto_point(name),
    ],
    "tbd": lambda name, *_: tbd(name),
}


def outcome(run, item):
    try:
        return run(item)
    except StageError as error:
        return "failed", error.stage, error.item, error.trace, type(error.cause)
    except NotOneItemError:
        return "not one"


@settings(max_examples=80, deadline=None)
@given(plan=plans(KINDS), item=st.integers(-20, 20), has_observers=st.booleans())
def test_every_driver_returns_the_same_result(runners, plan, item, has_observers):
    pipeline = StreamPipeline(
        built(plan),
        on_stage=[lambda event: None] if has_observers else [],
        until=lambda item: item == 13,
    )
    first, *others = [
        outcome(lambda item, runner=runner: runner.run_all(pipeline, item), item)
        for runner in runners
    ]
    assert others == [first, first]


@settings(max_examples=60, deadline=None)
@given(
    plan=plans([kind for kind in KINDS if kind != "memo"]),
    items=st.lists(st.integers(-20, 20), max_size=6),
    concurrency=st.integers(1, 7),
)
def test_a_stream_returns_the_results_of_single_runs(runners, plan, items, concurrency):
    pipeline = StreamPipeline(built(plan))
    expected = []
    for item in items:
        try:
            expected += pipeline.run_all_sync(item)
        except StageError as error:
            expected.append(str(error))
            break
    for runner in runners:
        out = runner.stream(pipeline, items, concurrency=concurrency)
        assert [str(r) if isinstance(r, StageError) else r for r in out] == expected


@settings(max_examples=60, deadline=None)
@given(
    plan=plans(["memo", "memo", "composer", "switch", "skip", "plug", "loop"]),
    items=st.lists(st.integers(-20, 20), max_size=5),
    concurrency=st.integers(2, 6),
)
def test_memos_do_not_depend_on_the_concurrency(runners, plan, items, concurrency):
    pipeline = StreamPipeline(built(plan))
    expected = list(map(str, runners[0].stream(pipeline, items)))
    for runner in runners:
        out = runner.stream(pipeline, items, concurrency=concurrency)
        assert list(map(str, out)) == expected


@settings(max_examples=60, deadline=None)
@given(plan=st.lists(plans(KINDS), min_size=1, max_size=4), data=st.data())
def test_removing_an_inserted_component_restores_the_pipeline(plan, data):
    pipeline = StreamPipeline(stage(plain, "first", by=0), built(plan))
    name = data.draw(st.sampled_from(pipeline.names))
    item = data.draw(st.integers(-20, 20))
    edit = data.draw(st.sampled_from(["insert_before", "insert_after"]))
    there = getattr(pipeline, edit)(name, stage(plain, "entirely new", by=1))
    back = there.without("entirely new")
    assert back.components == pipeline.components
    assert outcome(back.run_all_sync, item) == outcome(pipeline.run_all_sync, item)
    assert "entirely new" in there.diagram("text")


@settings(max_examples=60, deadline=None)
@given(
    plan=plans(["switch", "done", "embed", "loop", "skip", "tbd"]),
    item=st.integers(-20, 20),
)
def test_a_pipeline_returns_what_one_for_many_items_returns(runners, plan, item):
    single = Pipeline(built(plan), until=lambda item: item == 13)
    many = StreamPipeline(*single.components, until=lambda item: item == 13)
    expected = outcome(many.run_sync, item)
    for runner in runners:
        assert outcome(lambda item, runner=runner: runner.run(single, item), item) == expected
