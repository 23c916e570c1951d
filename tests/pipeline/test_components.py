"""The components, each under every driver."""

import functools

import pytest

from treadle.effects import Call
from treadle.pipeline import (
    Pipeline,
    Stage,
    StageError,
    done,
    embed,
    goto,
    goto_point,
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
        second = stage(first, name="again", requires="items")
        assert (second.name, second.requires, second.provides) == ("again", ("items",), ("total",))
        assert runner.run(Pipeline(first, second, given=["items"]), 1) == 5

    def test_several_lambdas_are_numbered(self):
        with pytest.raises(StageError, match="stage 'lambda_2' raised ZeroDivisionError"):
            Pipeline(lambda item: item, lambda item: item / 0).run_sync(1)

    def test_requires_accepts_a_single_field_name(self):
        assert stage(double, requires="messages").requires == ("messages",)


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

    def test_an_unknown_key_is_an_error_that_names_the_keys(self, runner):
        pipeline = Pipeline(switch(lambda item: item, {"a": [], "b": []}, name="kind"))
        with pytest.raises(StageError, match=r"no branch for 'c'; .* are 'a', 'b'") as caught:
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
