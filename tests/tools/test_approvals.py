"""Decisions on calls that wait for approval: approve, deny, or edit."""

import dataclasses

import pytest

from treadle.errors import OptionError
from treadle.tools import approve, deny, edit


def test_approve_runs_a_call_with_the_arguments_of_the_model():
    assert (approve.runs, approve.arguments, approve.reason) == (True, None, "")


def test_deny_does_not_run_it_and_may_have_a_reason():
    assert (deny().runs, deny().reason) == (False, "")
    assert deny("too much").reason == "too much"


def test_edit_runs_it_with_a_copy_of_other_arguments():
    given = {"n": 1}
    decision = edit(given)
    given["n"] = 2
    assert (decision.runs, decision.arguments) == (True, {"n": 1})


def test_edit_to_no_arguments_differs_from_approve():
    assert edit({}).arguments == {}
    assert edit({}) != approve


@pytest.mark.parametrize("given", [None, "n=1", [("n", 1)], 5])
def test_edited_arguments_must_be_a_mapping(given):
    with pytest.raises(OptionError, match=r"^edit: expected a mapping of arguments, got "):
        edit(given)


def test_decisions_are_frozen_and_equal_by_value():
    assert deny("a") == deny("a")
    assert deny("a") != deny("b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        approve.runs = False
