"""The components that drop, make, convert or replicate items, under every driver."""

import pickle
import threading

import pytest

from treadle.pipeline import (
    Pipeline,
    PipelineError,
    StageError,
    done,
    embed,
    goto,
    goto_point,
    stage,
    switch,
    tbd,
)
from treadle.pipeline.streams import (
    NotOneItemError,
    StreamPipeline,
    composer,
    dead_end,
    plug_with,
    replicated,
)


def double(item):
    return item * 2


def increment(item, by=1):
    return item + by


class TestDeadEnd:
    def test_drops_the_item(self, runner):
        pipeline = StreamPipeline(switch(bool, {True: [], False: dead_end()}), double)
        assert runner.run_all(pipeline, 0) == []
        assert runner.run_all(pipeline, 1) == [2]


class TestComposer:
    @staticmethod
    def split(item, memo):
        return item.split(), memo + 1

    def test_makes_many_items_of_one_in_their_order(self, runner):
        pipeline = StreamPipeline(composer(self.split, memo=0), str.upper)
        assert runner.run_all(pipeline, "a b c") == ["A", "B", "C"]

    def test_successive_composers_are_executed_depth_first(self, runner):
        pipeline = StreamPipeline(
            composer(lambda item, memo: (item.split(","), memo)),
            composer(lambda item, memo: (list(item), memo)),
        )
        assert runner.run_all(pipeline, "ab,cd") == ["a", "b", "c", "d"]

    def test_runs_and_streams_do_not_share_a_memo(self, runner):
        def collect(item, memo):
            memo.append(item)  # mutating it leaks nothing either
            return [list(memo)], memo

        pipeline = StreamPipeline(composer(collect, memo=[]))
        assert [runner.run(pipeline, item) for item in "ab"] == [["a"], ["b"]]
        assert runner.stream(pipeline, "ab") == [["a"], ["a", "b"]]
        assert runner.stream(pipeline, "c") == [["c"]]

    def test_keeps_its_memo_in_a_loop_of_one_run(self, runner):
        def count(item, memo):
            return [item + 1], [*memo, item]

        seen = []

        def look(item, memo):
            seen.append(memo)
            return count(item, memo)

        pipeline = StreamPipeline(
            goto_point("again"), composer(look, memo=[]), goto("again", lambda item: item < 3)
        )
        assert runner.run(pipeline, 0) == 3
        assert seen == [[], [0], [0, 1]]

    def test_an_invalid_return_value_is_a_stage_error(self, runner):
        with pytest.raises(StageError, match="stage 'bad' raised TypeError"):
            runner.run_all(StreamPipeline(composer(lambda item, memo: item, name="bad")), 1)

    def test_the_trace_of_a_part_has_no_stages_of_other_parts(self, runner):
        def fail_at_b(item):
            if item == "b":
                raise ValueError(item)
            return item

        pipeline = StreamPipeline(composer(self.split, memo=0), fail_at_b)
        with pytest.raises(StageError) as caught:
            runner.run_all(pipeline, "a b")
        assert caught.value.trace == ("split", "fail_at_b")


class TestPlugWith:
    class Length:
        @staticmethod
        def plug(item):
            return len(item)

        @staticmethod
        def unplug(inner, original):
            return f"{original}:{inner}"

    def test_adapts_the_item_and_passes_the_original_to_unplug(self, runner):
        assert runner.run(StreamPipeline(plug_with(self.Length, double)), "abc") == "abc:6"

    def test_takes_a_pair_of_functions(self, runner):
        pair = (len, lambda inner, original: (original, inner))
        assert runner.run(StreamPipeline(plug_with(pair, [double, increment])), "ab") == ("ab", 5)

    def test_may_be_nested(self, runner):
        inner = plug_with((str, lambda inner, original: original + len(inner)), str.upper)
        assert runner.run(StreamPipeline(plug_with(self.Length, inner)), "abc") == "abc:4"

    def test_every_part_of_a_composer_inside_is_unplugged_with_the_original(self, runner):
        inner = composer(lambda item, memo: (range(item), memo))
        assert runner.run_all(StreamPipeline(plug_with(self.Length, inner)), "ab") == [
            "ab:0",
            "ab:1",
        ]

    def test_done_ends_only_the_plugged_part(self, runner):
        inner = [done(lambda item: item > 2), double]
        pipeline = StreamPipeline(plug_with(self.Length, inner), str.upper)
        assert [runner.run(pipeline, item) for item in ("ab", "abc")] == ["AB:4", "ABC:3"]

    def test_the_type_is_checked_outside_but_not_inside(self, runner):
        pipeline = StreamPipeline(plug_with((len, lambda inner, original: inner), double), item=str)
        with pytest.raises(StageError, match="it returned int, expected str"):
            runner.run(pipeline, "ab")
        good = StreamPipeline(plug_with(self.Length, double), str.upper, item=str)
        assert runner.run(good, "ab") == "AB:4"
        after = StreamPipeline(
            plug_with(self.Length, double), len, item=str
        )  # as inside, but too late
        with pytest.raises(StageError, match="stage 'len' raised TypeError: it returned int"):
            runner.run(after, "ab")


class TestReplicated:
    def test_a_stage_keeps_what_it_is(self, runner):
        made = replicated(stage(increment, name="more", by=3, provides="total"), 2)
        assert (made.name, made.count, made.provides) == ("more", 2, ("total",))
        for again in (made, stage(made, name="again"), made(by=3)):
            assert again.count == 2
            assert runner.run(StreamPipeline(again), 1) == 4

    def test_a_single_item_is_not_affected(self, runner):
        thread = replicated(lambda item: threading.current_thread(), 3)
        for pipeline in (Pipeline(thread), StreamPipeline(thread)):
            assert runner.run(pipeline, 1) is threading.current_thread()


class TestGoto:
    def test_may_loop_through_a_composer_thousands_of_times(self):
        pipeline = StreamPipeline(
            goto_point("again"),
            composer(lambda item, memo: ([item + 1], memo)),
            goto("again", lambda item: item < 5_000),
        )
        assert pipeline.run_sync(0) == 5_000


class TestUntil:
    def test_is_evaluated_on_each_part_of_a_composer(self, runner):
        pipeline = StreamPipeline(
            composer(lambda item, memo: (range(item), memo)), str, until=lambda item: item == 1
        )
        assert runner.run_all(pipeline, 3) == ["0", 1, "2"]

    def test_is_evaluated_on_the_result_of_a_plug_but_not_inside_it(self, runner):
        pipeline = StreamPipeline(
            plug_with(
                (lambda item: 7, lambda inner, item: item + 1), [increment, lambda item: item + 1]
            ),
            double,
            until=lambda item: item in {8, 9, 20},
        )
        assert [runner.run(pipeline, item) for item in (19, 2)] == [20, 6]


@pytest.mark.parametrize("number", [0, 2])
def test_run_requires_one_result_and_points_to_run_all(runner, number):
    pipeline = StreamPipeline(composer(lambda item, memo: (range(item), memo)))
    with pytest.raises(NotOneItemError, match=rf"returned {number} items.*run_all"):
        runner.run(pipeline, number)
    assert runner.run_all(pipeline, number) == list(range(number))


@pytest.mark.parametrize(
    "component",
    [
        dead_end("part"),
        composer(lambda item, memo: ([item], memo), name="part"),
        plug_with((str, lambda inner, item: item), [], name="part"),
    ],
)
@pytest.mark.parametrize(
    "build",
    [
        Pipeline,
        lambda component: Pipeline(switch(bool, {True: component, False: []})),
        lambda component: Pipeline(embed(StreamPipeline(component), "inner")),
        lambda component: Pipeline(double).insert_after("double", component),
    ],
)
def test_a_pipeline_for_single_items_refuses_them(component, build):
    with pytest.raises(
        PipelineError, match=r"part' drops, makes or converts.* a StreamPipeline of"
    ):
        build(component)


def test_an_edited_pipeline_is_one_for_many_items(runner):
    pipeline = StreamPipeline(double, until=lambda item: item > 9)
    edited = pipeline.insert_after("double", composer(lambda item, memo: ([item, item + 1], memo)))
    assert runner.stream(edited, [1, 5]) == [2, 3, 10]


def split(item, memo):
    return [item, item + 1], memo


def unplugged(inner, original):
    return inner


def test_a_pipeline_without_jumps_can_be_pickled():
    parts = [embed(Pipeline(double), "inner"), tbd("later"), goto_point("here")]
    parts += [composer(split), plug_with((double, unplugged), increment), dead_end()]
    pipeline = pickle.loads(pickle.dumps(StreamPipeline(*parts[:-1])))  # noqa: S301 - our own bytes
    assert pipeline.run_all_sync(1) == [5, 7]
    assert pickle.loads(pickle.dumps(StreamPipeline(*parts))).run_all_sync(1) == []  # noqa: S301
