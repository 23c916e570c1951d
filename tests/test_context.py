"""The context: an immutable record, copied with changes."""

import dataclasses

import pytest

from treadle.context import Context, Decision
from treadle.limits import Budget, Limits
from treadle.messages import History, Response, ToolCall, Usage
from treadle.results import MaxIterationsReached, PendingCall
from treadle.run_state import RunState


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


def test_to_pause_is_neither_an_end_nor_an_error(context):
    waiting = (PendingCall("c1", "send", {}, "Send?"),)
    paused = context.pause(waiting)
    assert (paused.decision, paused.status, paused.waiting) == (Decision.PAUSE, "paused", waiting)
    assert (paused.error, context.waiting) == (None, ())


class TestTheBudget:
    """A context without one makes one of its own limits, and of what it says was used."""

    def test_it_has_what_the_context_says(self):
        limits = Limits(max_iterations=4, max_tool_calls=3, max_seconds=60)
        made = Context(
            History(), {}, Response(), limits, RunState(),
            iteration=2, tool_calls_count=1, usage=Usage(5, 6), started_at=100.0,
        )  # fmt: skip
        left = made.budget.remaining(now=130.0)
        assert (left.iterations, left.tool_calls, left.seconds) == (2, 2, 30.0)
        assert (made.budget.usage, made.budget.limits) == (Usage(5, 6), limits)

    def test_each_context_has_its_own_and_its_copies_share_it(self, context):
        other = Context(History(), {}, Response("Hi"), Limits(), RunState())
        context.run.budget.reserve_calls(2)
        assert (context.replace(iteration=3).budget.tool_calls, other.budget.tool_calls) == (2, 0)

    def test_one_that_is_given_is_taken(self):
        budget = Budget(Limits(max_tool_calls=1))
        made = Context(History(), {}, Response(), Limits(), RunState(), budget=budget, iteration=9)
        assert made.budget is budget
        assert budget.iterations == 0


def test_what_is_remembered_leaves_the_rest_of_the_memory(context):
    first = context.remember("a", 1)
    second = first.remember("b", 2)
    assert (context.memo, first.memo, second.memo) == ({}, {"a": 1}, {"a": 1, "b": 2})


def test_the_limit_of_iterations_is_at_hand(context):
    assert context.max_iterations == 4


def test_calls_are_equal_whatever_validation_has_noted():
    call = ToolCall("a", "f", "{}")
    assert call == dataclasses.replace(call, input={}, fingerprint="f00d")
    assert call != ToolCall("a", "f", '{"x": 1}')
