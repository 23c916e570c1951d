"""Plans: which calls run, which do not, and why; the names of reasons are stable."""

import dataclasses

import pytest

from treadle.messages import ToolCall
from treadle.tools import Plan, PlanReason

A, B, C = (ToolCall(name, "f") for name in "abc")


def test_an_empty_plan_has_the_reason_no_calls():
    plan = Plan()
    assert (plan.batches, plan.calls, plan.reason) == ((), (), PlanReason.NO_CALLS)
    assert (plan.not_run, plan.duplicates, plan.approvals) == ({}, {}, {})


def test_a_plan_of_one_call_has_the_reason_single_call():
    assert Plan.of_one(A) == Plan(((A,),), PlanReason.SINGLE_CALL)


def test_its_calls_are_those_of_all_batches_in_order():
    assert Plan(((A, B),)).calls == (A, B)
    assert Plan(((A, B), (C,))).calls == (A, B, C)


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Plan().reason = PlanReason.SINGLE_CALL


def test_the_names_of_reasons_are_stable():
    """They occur in events and paused states, and in programs that read those."""
    assert [str(reason) for reason in PlanReason] == [
        "no_calls",
        "single_call",
        "parallel_batch",
        "parallel_batch_cut",
        "mixed_batch_sequenced",
        "sequential_deferred",
        "all_suppressed",
        "over_budget",
    ]
