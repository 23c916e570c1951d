"""Results: how a run ended, as a value to match or to unwrap."""

import dataclasses

import pytest

from treadle.errors import TreadleError
from treadle.messages import Response, Usage
from treadle.results import Err, MaxIterationsReached, Ok, Paused, PendingCall, RunPausedError
from treadle.run_state import RunState


def test_ok_matches_by_its_response_and_messages():
    match Ok(Response("Hi"), [{"role": "user"}]):
        case Ok(response, messages):
            assert (response.content, messages) == ("Hi", [{"role": "user"}])
        case _:
            pytest.fail("it did not match")


def test_err_matches_by_its_reason_and_messages():
    match Err(MaxIterationsReached(3), [{"role": "user"}]):
        case Err(MaxIterationsReached(limit), messages):
            assert (limit, messages) == (3, [{"role": "user"}])
        case _:
            pytest.fail("it did not match")


def test_unwrap_returns_the_answer_or_raises_the_reason():
    response, reason = Response("Hi"), MaxIterationsReached(3)
    assert Ok(response).unwrap() is response
    with pytest.raises(MaxIterationsReached) as caught:
        Err(reason).unwrap()
    assert caught.value is reason


def test_unwrapping_the_err_of_a_tool_raises_its_text():
    with pytest.raises(TreadleError, match=r"^not there$"):
        Err("not there").unwrap()


def test_paused_is_neither_ok_nor_err_and_matches_by_its_pending_calls():
    pending = PendingCall("c1", "send", {"to": "bob"}, "Send?")
    match Paused((pending,), [{"role": "user"}]):
        case Ok(_) | Err(_):
            pytest.fail("it matched")
        case Paused((waiting,), messages):
            assert (waiting, messages) == (pending, [{"role": "user"}])


def test_unwrapping_a_paused_result_names_the_pending_calls():
    pending = tuple(PendingCall(name, f"tool_{name}", {}, "?") for name in "ab")
    with pytest.raises(RunPausedError) as caught:
        Paused(pending).unwrap()
    assert str(caught.value) == (
        "the run is paused and waits for approval of tool_a (a), tool_b (b)"
    )
    assert issubclass(RunPausedError, RuntimeError)


@pytest.mark.parametrize(
    ("result", "stop_reason"),
    [(Ok("x"), "answered"), (Err("x"), "error"), (Paused(()), "paused")],
)
def test_all_results_have_the_same_attributes(result, stop_reason):
    assert result.messages == []
    assert result.output is None
    assert result.usage == Usage()
    assert (result.iterations, result.tool_calls_count, result.run) == (0, 0, None)
    assert result.stop_reason == stop_reason


def test_they_are_frozen_and_share_no_list():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Ok("x").response = "y"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Err("x").reason = "y"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Paused(()).pending = ("y",)
    assert Ok("x").messages is not Ok("x").messages
    assert Paused(()).messages is not Paused(()).messages
    assert Paused(()).state is not Paused(()).state


def test_the_run_state_does_not_count_for_equality():
    assert Ok("x", run=RunState()) == Ok("x", run=RunState())
    assert Ok("x") != Ok("y")
    assert "run=" not in repr(Ok("x", run=RunState()))
    assert Paused((), run=RunState()) == Paused((), run=RunState())


def test_the_state_of_a_paused_run_is_not_in_the_repr():
    assert "digest" not in repr(Paused((), state={"digest": "f00d"}))
