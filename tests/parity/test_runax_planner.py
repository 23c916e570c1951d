"""Parity with RunaxAI: the planner, its reasons, and calls that are suppressed or deferred."""

import pytest

from treadle import Limits, Ok, presets, tool
from treadle.events import (
    CallNotRun,
    CallsPlanned,
    IterationFinished,
    ToolStarted,
)
from treadle.testing import call, calls
from treadle.tools import NotRun, PlanReason

from .conftest import answers
from .places import look, looks


@tool(parallel_safe=False)
def move(place: str) -> str:
    """Go somewhere, and nowhere else at the same time."""
    return f"moved to {place}"


@tool(requires_fresh_input=True)
def decide(place: str) -> str:
    """Decide for a place, in the light of all that is known."""
    return f"decided for {place}"


TOOLS = [look, move, decide]


def each(name, *places):
    return calls(*(call(name, f"{name} {place}", place=place) for place in places))


def plan_reasons(events):
    return [event.reason for event in events if isinstance(event, CallsPlanned)]


def of_kind(events, kind):
    return [(event.call.id, event.reason) for event in events if isinstance(event, kind)]


def not_run_as(reason, *call_ids):
    return dict.fromkeys(call_ids, reason)


# The reasons of a plan


@pytest.mark.parametrize(
    ("asked", "reason", "batches", "not_run"),
    [
        pytest.param(looks("a"), PlanReason.SINGLE_CALL, [["a"]], {}, id="single call"),
        pytest.param(
            looks("a", "b", "c"),
            PlanReason.PARALLEL_BATCH,
            [["a", "b", "c"]],
            {},
            id="parallel-safe batch",
        ),
        pytest.param(
            looks("a", "b", "c", "d", "e"),
            PlanReason.PARALLEL_BATCH_CUT,
            [["a", "b", "c"]],
            not_run_as(NotRun.PARALLEL_CAP, "d", "e"),
            id="parallel batch cut to its cap",
        ),
        pytest.param(
            calls(call("look", "a", place="a"), call("move", "b", place="b")),
            PlanReason.MIXED_BATCH_SEQUENCED,
            [["a"]],
            not_run_as(NotRun.DEFERRED, "b"),
            id="mixed batch that must be sequenced",
        ),
        pytest.param(
            each("move", "a", "b", "c"),
            PlanReason.SEQUENTIAL_DEFERRED,
            [["move a"]],
            not_run_as(NotRun.DEFERRED, "move b", "move c"),
            id="sequential calls deferred",
        ),
        pytest.param(
            looks("a", "b", "c"),
            PlanReason.OVER_BUDGET,
            [["a", "b"]],
            not_run_as(NotRun.OVER_BUDGET, "c"),
            id="call over budget",
        ),
    ],
)
def test_the_plan_and_its_event_have_the_reason(planned, asked, reason, batches, not_run):
    """The plan and `CallsPlanned` have the reason, with every call that does not run and why."""
    limit = 2 if reason is PlanReason.OVER_BUDGET else None
    script = [asked] if limit else [asked, "Done."]
    _, plans, events = planned(
        *script, tools=TOOLS, limits=Limits(max_parallel_calls=3), max_tool_calls=limit
    )
    plan = plans[0]
    assert (plan.reason, dict(plan.not_run)) == (reason, not_run)
    assert [[each.id for each in batch] for batch in plan.batches] == batches
    (event,) = [event for event in events if isinstance(event, CallsPlanned)]
    expected = CallsPlanned(
        iteration=1, reason=reason, batches=tuple(map(tuple, batches)), not_run=not_run
    )
    assert event == expected
    started = [event.call.id for event in events if isinstance(event, ToolStarted)]
    assert sorted(started) == sorted(each for batch in batches for each in batch)


def test_a_plan_without_calls_has_that_reason(planned):
    """After a text answer or invalid calls there is nothing to plan.

    A text answer emits nothing, for there are no calls to plan.
    """
    invalid = calls(call("look", "a"))
    _, plans, events = planned(invalid, "Done.", tools=TOOLS)
    assert [plan.reason for plan in plans] == [PlanReason.NO_CALLS] * 2
    assert plan_reasons(events) == [PlanReason.NO_CALLS]
    contexts = [event.context for event in events if isinstance(event, IterationFinished)]
    assert [ctx.plan.reason for ctx in contexts] == [PlanReason.NO_CALLS] * 2


def test_a_plan_whose_calls_are_all_suppressed_has_that_reason(planned):
    """Nothing runs, and each call is answered that it would return nothing new.

    In RunaxAI this is the only case in which the model sees an answer.
    """
    result, plans, events = planned(looks("a", "b"), looks("b", "a"), "Done.", tools=TOOLS)
    assert plans[1].reason is PlanReason.ALL_SUPPRESSED
    assert plans[1].batches == ()
    assert plan_reasons(events) == [PlanReason.PARALLEL_BATCH, PlanReason.ALL_SUPPRESSED]
    assert dict(plans[1].not_run) == not_run_as(NotRun.NO_NEW_EVIDENCE, "a_2", "b_2")
    assert result.tool_calls_count == 2


# Why a call does not run


def test_a_call_that_is_twice_in_a_batch_runs_once(planned):
    """Reason: duplicate in batch. The second is answered with the result of the first.

    In RunaxAI the second vanishes from the history; here every call has its answer.
    """
    batch = calls(
        call("look", "one", place="a"),
        call("look", "other", place="b"),
        call("look", "again", place="a"),
    )
    result, plans, events = planned(batch, "Done.", tools=TOOLS)
    assert dict(plans[0].not_run) == not_run_as(NotRun.DUPLICATE_IN_BATCH, "again")
    assert of_kind(events, CallNotRun) == [("again", NotRun.DUPLICATE_IN_BATCH)]
    assert result.tool_calls_count == 2
    assert answers(result)[:2] == ["a is empty", "b is empty"]
    assert "this response has an identical call" in answers(result)[2]
    assert "a is empty" in answers(result)[2]


def test_calls_over_the_cap_are_answered_as_deferred(planned):
    """Reason: parallel cap. They are answered that they may be made again."""
    result, _, events = planned(
        looks(*"abcde"), looks("d", "e"), "Done.", tools=TOOLS, limits=Limits(max_parallel_calls=3)
    )
    cut = [("d", NotRun.PARALLEL_CAP), ("e", NotRun.PARALLEL_CAP)]
    assert of_kind(events, CallNotRun) == cut
    assert all("call 'look' again if you still need it" in text for text in answers(result)[3:5])
    assert answers(result)[5:] == ["d is empty", "e is empty"]
    assert result.tool_calls_count == 5


@pytest.mark.parametrize("name", ["move", "decide"])
def test_of_three_calls_that_run_alone_one_runs_and_two_are_deferred(planned, name):
    """``parallel_safe=False`` or ``requires_fresh_input=True``: one runs, the others are deferred.

    In RunaxAI deferred calls vanish from the history, without a notice to the model.
    """
    asked = [each(name, *"abc"[n:]) for n in range(3)]
    result, plans, events = planned(*asked, "Done.", tools=TOOLS)
    assert [plan.reason for plan in plans[:3]] == [
        PlanReason.SEQUENTIAL_DEFERRED,
        PlanReason.SEQUENTIAL_DEFERRED,
        PlanReason.SINGLE_CALL,
    ]
    first = answers(result)[:3]
    assert first[0].endswith(" a")
    assert all(text.startswith("Not run yet: other calls have to run first.") for text in first[1:])
    assert all(f"call {name!r} again" in text for text in first[1:])
    deferred = of_kind(events, CallNotRun)
    assert [reason for _, reason in deferred] == [NotRun.DEFERRED] * 3
    assert result.tool_calls_count == 3
    ran = [event.call.input["place"] for event in events if isinstance(event, ToolStarted)]
    assert ran == ["a", "b", "c"]


def test_a_call_that_requires_fresh_input_is_deferred_even_if_the_rest_runs_in_step(planned):
    """``sequential="in_step"`` runs the others; its arguments were chosen before their results were there."""
    batch = calls(*(call(name, name, place="a") for name in ("look", "move", "decide")))
    result, plans, _ = planned(batch, "Done.", tools=TOOLS, sequential="in_step")
    assert [[made.id for made in batch] for batch in plans[0].batches] == [["look"], ["move"]]
    assert dict(plans[0].not_run) == not_run_as(NotRun.DEFERRED, "decide")
    assert result.tool_calls_count == 2


def test_every_call_that_does_not_run_is_answered(planned):
    """Suppressed, deferred, cut and over budget: with RunaxAI's preset every call has one answer, in order.

    In RunaxAI calls that do not run vanish from the history.
    """
    mixed = calls(
        call("look", "same", place="a"),
        call("look", "new", place="b"),
        call("look", "twin", place="b"),
        call("move", "later", place="c"),
    )
    many = looks("p", "q", "r", "s")
    over = looks("t", "u", "v")
    options = {**presets.runax(), "max_iterations": 4, "max_tool_calls": 6}
    result, plans, _ = planned(looks("a"), mixed, many, over, "Done.", tools=TOOLS, **options)
    assert isinstance(result, Ok)
    assert [plan.reason for plan in plans[:4]] == [
        PlanReason.SINGLE_CALL,
        PlanReason.MIXED_BATCH_SEQUENCED,
        PlanReason.PARALLEL_BATCH_CUT,
        PlanReason.OVER_BUDGET,
    ]
    not_run = {key: reason.value for plan in plans for key, reason in plan.not_run.items()}
    assert not_run == {
        "same": "no_new_evidence",
        "twin": "duplicate_in_batch",
        "later": "deferred",
        "s": "parallel_cap",
        "u": "over_budget",
        "v": "over_budget",
    }
    asked = [each["id"] for m in result.messages for each in m.get("tool_calls", ())]
    answered = [m["tool_call_id"] for m in result.messages if m["role"] == "tool"]
    assert answered == asked
    texts = dict(zip(answered, answers(result), strict=True))
    assert {key: texts[key].partition(":")[0] for key in not_run} == {
        "same": "Not run again",
        "twin": "Not run twice",
        "later": "Not run yet",
        "s": "Not run yet",
        "u": "Not run",
        "v": "Not run",
    }
    assert result.tool_calls_count == 6
