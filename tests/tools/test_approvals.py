"""What a person says of a call that waits: let it run, do not, or let it run with other arguments."""

import dataclasses

import pytest

from treadle.errors import OptionError
from treadle.results import PendingCall
from treadle.tools import approve, deny, edit


def test_to_approve_lets_a_call_run_as_the_model_asked():
    assert (approve.runs, approve.arguments, approve.reason) == (True, None, "")


def test_to_deny_does_not_let_it_run_and_may_say_why():
    assert (deny().runs, deny().reason) == (False, "")
    assert deny("too much").reason == "too much"


def test_to_edit_lets_it_run_with_other_arguments_which_are_copied():
    given = {"n": 1}
    decision = edit(given)
    given["n"] = 2
    assert (decision.runs, decision.arguments) == (True, {"n": 1})


def test_to_edit_to_no_arguments_is_no_approval_of_the_models():
    assert edit({}).arguments == {}
    assert edit({}) != approve


@pytest.mark.parametrize("given", [None, "n=1", [("n", 1)], 5])
def test_edited_arguments_are_a_mapping(given):
    with pytest.raises(OptionError, match=r"^edit: expected a mapping of arguments, got "):
        edit(given)


def test_decisions_are_frozen_and_equal_where_they_say_the_same():
    assert deny("a") == deny("a")
    assert deny("a") != deny("b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        approve.runs = False


def test_a_pending_call_says_which_call_it_is_and_in_what_words_to_ask():
    pending = PendingCall("c1", "send", {"to": "bob"}, "Send it?")
    assert dataclasses.asdict(pending) == {
        "id": "c1",
        "name": "send",
        "arguments": {"to": "bob"},
        "question": "Send it?",
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        pending.name = "other"
