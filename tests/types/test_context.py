"""The context: an immutable record, copied with changes."""

import dataclasses

import pytest

from treadle.types import (
    Context,
    Decision,
    History,
    Limits,
    MaxIterationsReached,
    Plan,
    Response,
    RunState,
    ToolCall,
)


@pytest.fixture
def context():
    return Context(History(), {}, Response("Hi"), Limits(max_iterations=4), RunState())


def test_replace_changes_a_copy_and_nothing_else(context):
    changed = context.replace(iteration=5, output="x")
    assert (changed.iteration, changed.output) == (5, "x")
    assert (context.iteration, context.output) == (1, None)
    for spec in dataclasses.fields(Context):
        if spec.name not in {"iteration", "output"}:
            assert getattr(changed, spec.name) is getattr(context, spec.name)


def test_a_field_that_does_not_exist_is_an_error_that_names_it(context):
    with pytest.raises(TypeError, match=r"^Context has no field itteration, outputs$"):
        context.replace(outputs=1, itteration=2, output=3)


def test_it_is_frozen(context):
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.iteration = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.replace(iteration=2).iteration = 5


def test_a_decision_sets_the_status(context):
    assert (context.decision, context.status) == (None, "continue")
    done = context.done("out")
    assert (done.decision, done.status, done.output) == (Decision.DONE, "ok", "out")
    reason = MaxIterationsReached(4)
    stopped = context.stop(reason)
    assert (stopped.decision, stopped.status, stopped.error) == (Decision.STOP, "error", reason)


def test_what_is_remembered_leaves_the_rest_of_the_memory(context):
    first = context.remember("a", 1)
    second = first.remember("b", 2)
    assert (context.memo, first.memo, second.memo) == ({}, {"a": 1}, {"a": 1, "b": 2})


def test_the_limit_of_iterations_is_at_hand(context):
    assert context.max_iterations == 4


def test_a_plan_lists_its_calls_batch_by_batch():
    a, b, c = (ToolCall(i, "f") for i in "abc")
    assert Plan().calls == ()
    assert Plan(((a, b),)).calls == (a, b)
    assert Plan(((a, b), (c,))).calls == (a, b, c)


def test_calls_are_equal_whatever_validation_has_noted():
    call = ToolCall("a", "f", "{}")
    assert call == dataclasses.replace(call, input={}, fingerprint="f00d")
    assert call != ToolCall("a", "f", '{"x": 1}')
