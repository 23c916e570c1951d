"""Custom stages in a loop: every kind of them is checked, wherever it stands, and stays what it was."""

import functools
import inspect

import pytest

from treadle import Loop, PipelineFailed, Response, stages
from treadle.effects import Sleep
from treadle.pipeline import Pipeline, embed, stage, switch
from treadle.stages import default_stages


def plain(ctx, *, wrong="text"):
    return ctx.evolve(tool_results=wrong)


def steps(ctx, *, wrong="text"):
    yield Sleep(0)
    return plain(ctx, wrong=wrong)


async def later(ctx, *, wrong="text"):
    return plain(ctx, wrong=wrong)


def awaitable(ctx, *, wrong="text"):
    return later(ctx, wrong=wrong)


class Callable:
    __hash__ = None

    def __call__(self, ctx, *, wrong="text"):
        return plain(ctx, wrong=wrong)


KINDS = [plain, steps, later, awaitable, Callable(), functools.partial(steps)]


def run(component):
    return Loop.run_sync("Hi", lambda m: "Hello", stages=[*default_stages()[:2], component])


@pytest.mark.parametrize("fn", KINDS)
@pytest.mark.parametrize(
    ("place", "name"),
    [
        (lambda made: made, "custom"),
        (lambda made: switch(lambda _: True, {True: made}), "custom"),
        (lambda made: embed(Pipeline(made), "inner"), "inner.custom"),
    ],
)
def test_each_kind_of_stage_is_checked_wherever_it_stands(fn, place, name):
    reason = run(place(stage(fn, "custom"))).reason
    assert isinstance(reason, PipelineFailed)
    assert (reason.stage, reason.error_type) == (name, "TypeError")
    assert reason.message.startswith("tool_results: expected ")


@pytest.mark.parametrize("fn", KINDS)
def test_the_options_of_a_stage_reach_its_function(fn):
    reason = run(stage(fn, "custom")(wrong=3)).reason
    assert reason.message.endswith("got int 3")


async def nothing_later(ctx):
    pass


def nothing_awaitable(ctx):
    return nothing_later(ctx)


@pytest.mark.parametrize("fn", [lambda ctx: None, nothing_later, nothing_awaitable])
def test_a_stage_without_a_return_is_named(fn):
    reason = run(stage(fn, "custom")).reason
    assert (reason.stage, reason.error_type) == ("custom", "TypeError")
    assert reason.message == "it returned NoneType, expected Context; is a return missing?"


def test_a_custom_stage_in_the_pipeline_of_a_loop_is_described_as_it_was():
    made = stage(later, requires="response", provides="output", wrong=1)
    *_, checked = Loop(stages=[*default_stages(), made]).pipeline.components
    for name in ("name", "requires", "provides", "options"):
        assert getattr(checked, name) == getattr(made, name)
    assert inspect.signature(checked.fn) == inspect.signature(later)
    assert inspect.iscoroutinefunction(checked.fn)


def test_the_stages_of_a_loop_are_those_of_another_one():
    def shout(ctx):
        return ctx.replace(response=Response(ctx.response.text.upper()))

    first, *rest = default_stages()
    loop = Loop(stages=[first, shout, *rest])
    again = Loop(stages=loop.pipeline.without("circuit_breaker"))
    assert again.pipeline.components[1].fn is loop.pipeline.components[1].fn
    assert again.pipeline.components[0].fn is stages.ask_model.fn
    assert again.run_sync("Hi", lambda m: "Hello").output == "HELLO"
