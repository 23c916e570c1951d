"""The components, each under every driver."""

import functools

import pytest

from treadle.effects import Call
from treadle.errors import TreadleError
from treadle.pipeline import (
    NotOneItemError,
    Pipeline,
    PipelineError,
    Stage,
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


def increment(item, by=1):
    return item + by


def steps_increment(item, by=1):
    return (yield Call(increment, item, by))


async def async_increment(item, by=1):
    return item + by


class Incrementer:
    def __init__(self, by):
        self.by = by

    def __call__(self, item):
        return item + self.by


class AsyncIncrementer(Incrementer):
    async def __call__(self, item):
        return item + self.by


class StepsIncrementer(Incrementer):
    def __call__(self, item):
        return (yield Call(increment, item, self.by))

    def method(self, item):
        return (yield Call(increment, item, self.by))


@pytest.mark.parametrize(
    "fn",
    [
        increment,
        steps_increment,
        async_increment,
        Incrementer(1),
        AsyncIncrementer(1),
        StepsIncrementer(1),
        StepsIncrementer(1).method,
        functools.partial(increment, by=1),
        functools.partial(steps_increment, by=1),
        functools.partial(async_increment, by=1),
        lambda item: item + 1,
        lambda item: async_increment(item, 1),
        (1).__add__,
    ],
)
def test_any_callable_from_item_to_item_is_a_stage(runner, fn):
    assert runner.run(Pipeline(fn, double), 3) == 8


def test_a_class_is_a_stage_that_creates_an_instance(runner):
    class Celsius:
        def __init__(self, degrees):
            self.degrees = degrees

        async def __call__(self):
            raise NotImplementedError

    assert runner.run(Pipeline(Celsius), 3).degrees == 3


def test_an_empty_pipeline_returns_the_item(runner):
    assert runner.run(Pipeline(), "it") == "it"


def test_components_may_come_in_nested_lists():
    assert Pipeline([double, [increment]], tbd("later")).names == ("double", "increment", "later")


class TestStage:
    def test_takes_options(self, runner):
        assert runner.run(Pipeline(stage(increment, by=5)), 1) == 6

    def test_is_a_decorator_with_and_without_arguments(self, runner):
        @stage
        def plain(item):
            return item + 1

        @stage(name="renamed", by=10)
        def configured(item, by):
            return item + by

        pipeline = Pipeline(plain, configured)
        assert pipeline.names == ("plain", "renamed")
        assert runner.run(pipeline, 0) == 11

    def test_called_with_an_item_runs_the_function(self):
        assert stage(increment, by=5)(1) == 6

    def test_called_with_keywords_only_returns_a_configured_copy(self, runner):
        first = stage(increment)
        second = first(by=5)
        assert isinstance(second, Stage)
        assert runner.run(Pipeline(second), 1) == 6
        assert runner.run(Pipeline(first), 1) == 2

    def test_made_of_a_stage_is_a_copy_with_the_given_changes(self, runner):
        first = stage(steps_increment, by=2, provides=["total"])
        second = stage(first, name="again", count=2)
        assert (second.name, second.count, second.provides) == ("again", 2, ("total",))
        assert runner.run(Pipeline(first, second), 1) == 5

    def test_several_lambdas_are_numbered(self):
        with pytest.raises(StageError, match="stage 'lambda_2' raised ZeroDivisionError"):
            Pipeline(lambda item: item, lambda item: item / 0).run_sync(1)

    def test_requires_accepts_a_single_field_name(self):
        assert stage(double, requires="messages").requires == ("messages",)

    def test_may_be_used_in_two_pipelines(self, runner):
        shared = stage(increment)
        assert runner.run(Pipeline(shared), 1) == runner.run(Pipeline(double, shared), 0.5) == 2


class TestSwitch:
    PIPELINE = Pipeline(
        switch(
            lambda item: "even" if item % 2 == 0 else "odd",
            {"even": [increment, double], "odd": stage(double, "twice"), "none": []},
            name="parity",
        ),
        str,
    )

    @pytest.mark.parametrize(("item", "expected"), [(2, "6"), (3, "6")])
    def test_sends_the_item_through_its_branch_and_on(self, runner, item, expected):
        assert runner.run(self.PIPELINE, item) == expected

    def test_with_an_empty_branch_passes_the_item_through(self, runner):
        assert runner.run(Pipeline(switch(bool, {True: [], False: double})), 5) == 5

    def test_an_unknown_key_is_an_error_that_names_the_keys(self, runner):
        pipeline = Pipeline(switch(lambda item: item, {"a": [], "b": []}, name="kind"))
        with pytest.raises(StageError, match="'c'; the branches are 'a', 'b'") as caught:
            runner.run(pipeline, "c")
        assert caught.value.stage == "kind"
        assert caught.value.trace == ("kind",)

    def test_an_unhashable_key_is_a_stage_error(self, runner):
        with pytest.raises(StageError, match="unhashable"):
            runner.run(Pipeline(switch(lambda item: [], {"a": []}, name="kind")), 1)

    def test_may_be_nested(self, runner):
        inner = switch(lambda item: item > 10, {True: str, False: double}, name="size")
        outer = switch(lambda item: item > 0, {True: inner, False: abs}, name="sign")
        pipeline = Pipeline(outer)
        assert [runner.run(pipeline, item) for item in (20, 5, -3)] == ["20", 10, 3]


class TestGoto:
    def test_jumps_back_while_its_condition_holds(self, runner):
        pipeline = Pipeline(goto_point("again"), double, goto("again", lambda item: item < 100))
        assert runner.run(pipeline, 3) == 192

    def test_jumps_forward_over_stages(self, runner):
        pipeline = Pipeline(goto("end", lambda item: item > 5), double, goto_point("end"), str)
        assert [runner.run(pipeline, item) for item in (2, 7)] == ["4", "7"]

    def test_may_loop_a_hundred_thousand_times(self):
        pipeline = Pipeline(
            goto_point("again"), increment, goto("again", lambda item: item < 100_000)
        )
        assert pipeline.run_sync(0) == 100_000

    def test_may_loop_through_a_composer_thousands_of_times(self):
        pipeline = Pipeline(
            goto_point("again"),
            composer(lambda item, memo: ([item + 1], memo)),
            goto("again", lambda item: item < 5_000),
        )
        assert pipeline.run_sync(0) == 5_000

    def test_jumps_into_and_out_of_a_branch(self, runner):
        pipeline = Pipeline(
            goto("inside", lambda item: item == 0),
            switch(
                lambda item: item > 0,
                {
                    True: [goto_point("inside"), increment, goto("out", lambda item: item > 5)],
                    False: abs,
                },
                name="sign",
            ),
            double,
            goto_point("out"),
        )
        assert [runner.run(pipeline, item) for item in (0, 5, -4)] == [2, 6, 8]


class TestDone:
    def test_lets_the_item_leave_the_whole_pipeline(self, runner):
        pipeline = Pipeline(double, done(lambda item: item > 10), increment)
        assert [runner.run(pipeline, item) for item in (3, 6)] == [7, 12]

    def test_leaves_from_within_a_branch(self, runner):
        pipeline = Pipeline(
            switch(bool, {True: [done(lambda item: item > 5), double], False: []}), increment
        )
        assert [runner.run(pipeline, item) for item in (0, 1, 6)] == [1, 3, 6]


class TestUntil:
    def test_an_item_leaves_after_the_stage_that_made_it_meet_the_condition(self, runner):
        ran = []
        pipeline = Pipeline(
            double,
            lambda item: ran.append(item) or item,
            until=lambda item: item >= 10,
        )
        assert [runner.run(pipeline, item) for item in (1, 5, 10)] == [2, 10, 20]
        assert ran == [2]

    def test_is_not_evaluated_on_the_item_that_enters(self, runner):
        assert runner.run(Pipeline(increment, until=lambda item: True), 99) == 100

    def test_an_exception_in_it_is_a_stage_error_of_the_stage_before(self, runner):
        pipeline = Pipeline(double, until=lambda item: item.nothing)
        with pytest.raises(StageError) as caught:
            runner.run(pipeline, 4)
        assert (caught.value.stage, caught.value.item) == ("double", 4)

    def test_of_an_embedded_pipeline_ends_only_the_embedded_part(self, runner):
        inner = Pipeline(increment, double, until=lambda item: item == 3)
        pipeline = Pipeline(embed(inner, "inner"), str)
        assert [runner.run(pipeline, item) for item in (1, 2)] == ["4", "3"]

    def test_an_inner_one_ends_the_embedded_part_and_an_outer_one_ends_both(self, runner):
        inner = Pipeline(increment, double, until=lambda item: item == 3)
        pipeline = Pipeline(
            embed(Pipeline(embed(inner, "b")), "a"), str, until=lambda item: item == 5
        )
        assert [runner.run(pipeline, item) for item in (1, 2, 4)] == ["4", "3", 5]

    def test_is_evaluated_on_each_part_of_a_composer(self, runner):
        pipeline = Pipeline(
            composer(lambda item, memo: (range(item), memo)), str, until=lambda item: item == 1
        )
        assert runner.run_all(pipeline, 3) == ["0", 1, "2"]

    def test_is_evaluated_on_the_result_of_a_plug_but_not_inside_it(self, runner):
        pipeline = Pipeline(
            plug_with(
                (lambda item: 7, lambda inner, item: item + 1), [increment, lambda item: item + 1]
            ),
            double,
            until=lambda item: item in {8, 9, 20},
        )
        assert [runner.run(pipeline, item) for item in (19, 2)] == [20, 6]


class TestDeadEnd:
    def test_drops_the_item(self, runner):
        pipeline = Pipeline(switch(bool, {True: [], False: dead_end()}), double)
        assert runner.run_all(pipeline, 0) == []
        assert runner.run_all(pipeline, 1) == [2]


class TestComposer:
    @staticmethod
    def split(item, memo):
        return item.split(), memo + 1

    def test_makes_many_items_of_one_in_their_order(self, runner):
        pipeline = Pipeline(composer(self.split, memo=0), str.upper)
        assert runner.run_all(pipeline, "a b c") == ["A", "B", "C"]

    def test_makes_no_item_of_one(self, runner):
        assert runner.run_all(Pipeline(composer(self.split, memo=0)), "") == []

    def test_successive_composers_are_executed_depth_first(self, runner):
        pipeline = Pipeline(
            composer(lambda item, memo: (item.split(","), memo)),
            composer(lambda item, memo: (list(item), memo)),
        )
        assert runner.run_all(pipeline, "ab,cd") == ["a", "b", "c", "d"]

    def test_passes_its_memo_from_item_to_item_of_a_stream(self, runner):
        def number(item, memo):
            return [(memo, item)], memo + 1

        assert runner.stream(Pipeline(composer(number, memo=0)), "abc") == [
            (0, "a"),
            (1, "b"),
            (2, "c"),
        ]

    def test_runs_and_streams_do_not_share_a_memo(self, runner):
        def collect(item, memo):
            memo.append(item)  # mutating it leaks nothing either
            return [list(memo)], memo

        pipeline = Pipeline(composer(collect, memo=[]))
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

        pipeline = Pipeline(
            goto_point("again"), composer(look, memo=[]), goto("again", lambda item: item < 3)
        )
        assert runner.run(pipeline, 0) == 3
        assert seen == [[], [0], [0, 1]]

    def test_an_invalid_return_value_is_a_stage_error(self, runner):
        with pytest.raises(StageError, match="stage 'bad' raised TypeError"):
            runner.run_all(Pipeline(composer(lambda item, memo: item, name="bad")), 1)

    def test_the_trace_of_a_part_has_no_stages_of_other_parts(self, runner):
        def fail_at_b(item):
            if item == "b":
                raise ValueError(item)
            return item

        pipeline = Pipeline(composer(self.split, memo=0), fail_at_b)
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
        assert runner.run(Pipeline(plug_with(self.Length, double)), "abc") == "abc:6"

    def test_takes_a_pair_of_functions(self, runner):
        pair = (len, lambda inner, original: (original, inner))
        assert runner.run(Pipeline(plug_with(pair, [double, increment])), "ab") == ("ab", 5)

    def test_may_be_nested(self, runner):
        inner = plug_with((str, lambda inner, original: original + len(inner)), str.upper)
        assert runner.run(Pipeline(plug_with(self.Length, inner)), "abc") == "abc:4"

    def test_every_part_of_a_composer_inside_is_unplugged_with_the_original(self, runner):
        inner = composer(lambda item, memo: (range(item), memo))
        assert runner.run_all(Pipeline(plug_with(self.Length, inner)), "ab") == ["ab:0", "ab:1"]

    def test_done_ends_only_the_plugged_part(self, runner):
        inner = [done(lambda item: item > 2), double]
        pipeline = Pipeline(plug_with(self.Length, inner), str.upper)
        assert [runner.run(pipeline, item) for item in ("ab", "abc")] == ["AB:4", "ABC:3"]

    def test_the_type_is_checked_outside_but_not_inside(self, runner):
        pipeline = Pipeline(plug_with((len, lambda inner, original: inner), double), item=str)
        with pytest.raises(StageError, match="it returned int, expected str"):
            runner.run(pipeline, "ab")
        good = Pipeline(plug_with(self.Length, double), str.upper, item=str)
        assert runner.run(good, "ab") == "AB:4"
        after = Pipeline(plug_with(self.Length, double), len, item=str)  # as inside, but too late
        with pytest.raises(StageError, match="stage 'len' raised TypeError: it returned int"):
            runner.run(after, "ab")


class TestEmbed:
    INNER = Pipeline(double, done(lambda item: item > 10), increment)

    def test_the_names_of_its_components_have_a_namespace(self, runner):
        pipeline = Pipeline(embed(self.INNER, "one"), embed(self.INNER, "two"))
        assert runner.run(pipeline, 1) == 7

        def fail(item):
            raise ValueError

        nested = Pipeline(embed(Pipeline(embed(Pipeline(fail), "b")), "a"))
        with pytest.raises(StageError) as caught:
            runner.run(nested, 1)
        assert caught.value.stage == "a.b.fail"

    def test_its_done_ends_only_the_embedded_part(self, runner):
        assert runner.run(Pipeline(embed(self.INNER, "one"), str), 6) == "12"

    def test_has_its_own_points(self, runner):
        loop = Pipeline(goto_point("p"), increment, goto("p", lambda item: item % 10 != 0))
        pipeline = Pipeline(
            goto_point("p"), embed(loop, "loop"), double, goto("p", lambda item: item < 50)
        )
        assert runner.run(pipeline, 1) == 60


class TestTbd:
    def test_passes_the_item_through_and_is_in_the_trace(self, runner):
        def fail(item):
            raise ValueError(item)

        assert runner.run(Pipeline(tbd("later"), double), 4) == 8
        with pytest.raises(StageError) as caught:
            runner.run(Pipeline(tbd("later"), fail), 4)
        assert caught.value.trace == ("later", "fail")


def test_an_awaitable_that_a_plain_stage_returns_is_awaited(runner):
    def disguised(item):
        return async_increment(item)

    assert runner.run(Pipeline(double, disguised, str, item=int | str), 1) == "3"


@pytest.mark.parametrize(
    ("error", "base"),
    [(PipelineError, ValueError), (StageError, RuntimeError), (NotOneItemError, LookupError)],
)
def test_the_exceptions_are_treadle_errors_and_have_a_standard_base(error, base):
    assert issubclass(error, TreadleError)
    assert issubclass(error, base)
