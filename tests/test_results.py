"""Results, values to match or to unwrap; and reasons, which are equal by their facts and raised by `unwrap`."""

import copy
import dataclasses
import pickle
import traceback
from typing import get_args

import pytest

from treadle import results as types
from treadle.errors import TreadleError
from treadle.messages import Response, Usage
from treadle.results import (
    BudgetExhausted,
    CircuitBroken,
    CompactionStalled,
    DeadlineExceeded,
    EmptyResponse,
    Err,
    InvalidInput,
    LimitNotMeasurable,
    LLMError,
    LoopDetected,
    MaxIterationsReached,
    Ok,
    OutputMissing,
    Paused,
    PendingCall,
    PipelineFailed,
    Reason,
    ResponseIncomplete,
    RunCancelled,
    RunError,
    RunPausedError,
    StoppedByStage,
)
from treadle.run_state import RunState

PENDING = (
    PendingCall("a", "tool_a", {"to": "bob"}, "Send?"),
    PendingCall("b", "tool_b", {}, "?"),
)


@pytest.mark.parametrize(
    "result",
    [
        Ok(Response("Hi"), [{"role": "user"}]),
        Err(MaxIterationsReached(3), [{"role": "user"}]),
        Paused(PENDING, [{"role": "user"}]),
    ],
    ids=["ok", "err", "paused"],
)
def test_each_matches_by_its_content_and_messages_alone(result):
    match result:
        case Ok(Response("Hi"), messages):
            kind = Ok
        case Err(MaxIterationsReached(3), messages):
            kind = Err
        case Paused((PendingCall("a"), _), messages):
            kind = Paused
    assert (type(result), messages) == (kind, [{"role": "user"}])


def test_unwrap_returns_the_answer_or_raises_why_there_is_none():
    response, reason = Response("Hi"), MaxIterationsReached(3)
    assert Ok(response).unwrap() is response
    with pytest.raises(MaxIterationsReached) as caught:
        Err(reason).unwrap()
    assert caught.value is reason
    with pytest.raises(TreadleError, match=r"^not there$"):  # of a tool
        Err("not there").unwrap()
    waiting = r"^the run is paused and waits for approval of tool_a \(a\), tool_b \(b\)$"
    with pytest.raises(RunPausedError, match=waiting):
        Paused(PENDING).unwrap()


@pytest.mark.parametrize(
    ("make", "stop_reason"),
    [(Ok, "answered"), (Err, "error"), (Paused, "paused")],
)
def test_all_results_have_the_same_attributes_are_frozen_and_share_no_list(make, stop_reason):
    result = make(())
    assert (result.messages, result.output, result.usage) == ([], None, Usage())
    assert (result.iterations, result.tool_calls_count, result.run) == (0, 0, None)
    assert result.stop_reason == stop_reason
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.messages = []
    assert result.messages is not make(()).messages


def test_states_do_not_count_for_equality_and_are_not_shown():
    for make in (Ok, Err, Paused):
        assert make((), run=RunState()) == make((), run=RunState())
        assert make(()) != make((1,))
        assert "run=" not in repr(make((), run=RunState()))
    assert "digest" not in repr(Paused((), state={"digest": "f00d"}))
    assert Paused(()).state is not Paused(()).state


REASONS = {
    "max_iterations_reached": (MaxIterationsReached(10), "no answer within max_iterations=10"),
    "budget_exhausted": (
        BudgetExhausted("max_tool_calls", 3, 4),
        "the budget is spent: max_tool_calls=3, used 4",
    ),
    "limit_not_measurable": (
        LimitNotMeasurable("max_cost", "cost", "pass cost_of="),
        "max_cost cannot be measured: the cost of a response is not known; pass cost_of=",
    ),
    "deadline_exceeded": (DeadlineExceeded(2.50), "the run took longer than max_seconds=2.5"),
    "circuit_broken": (
        CircuitBroken("search", "Error: down", 3),
        "tool 'search' failed with the same error in 3 consecutive iterations: Error: down",
    ),
    "loop_detected": (
        LoopDetected(("a({})", "b({})"), 3, "f00d"),
        (
            "the same calls with the same results in 3 consecutive iterations: a({}), b({}) "
            "(a tool to be polled needs volatile=True)"
        ),
    ),
    "compaction_stalled": (
        CompactionStalled(7, 3),
        (
            "the history was compacted 7 times, the last 3 without a tool returning anything new; a larger "
            "max_tokens, shorter results or a better summary keep what is needed"
        ),
    ),
    "llm_error": (
        LLMError("overloaded", "APIError", 4),
        "the model failed: APIError: overloaded (after 4 attempts)",
    ),
    "empty_response": (
        EmptyResponse(4, 2, ("stop", None), "acme", "m1"),
        (
            "2 consecutive empty responses, the last in iteration 4; finish reasons: stop, None; "
            "provider: acme; model: m1"
        ),
    ),
    "response_incomplete": (
        ResponseIncomplete("cut", "length", option="max_tokens"),
        (
            "the response was cut off (finish reason 'length'); raise max_tokens; accept_cut=True takes a cut "
            "text as the answer"
        ),
    ),
    "output_missing": (
        OutputMissing(3, ("a: bad", "b: bad")),
        "no valid output after 3 attempts: a: bad; b: bad",
    ),
    "pipeline_failed": (
        PipelineFailed("plan_calls", "oh", "ValueError"),
        "stage 'plan_calls' raised ValueError: oh",
    ),
    "stopped_by_stage": (
        StoppedByStage("no_secrets", "the prompt has a password"),
        "stage 'no_secrets' stopped the run: the prompt has a password",
    ),
    "invalid_input": (InvalidInput(("a: bad", "b: bad")), "a: bad; b: bad"),
    "cancelled": (RunCancelled(), "the run was cancelled"),
}


def test_every_reason_is_in_the_table():
    made = {type(reason) for reason, _ in REASONS.values()}
    kinds = {kind for kind in vars(types).values() if isinstance(kind, type)}
    assert (
        made
        == set(get_args(Reason))
        == {kind for kind in kinds if issubclass(kind, types._Reason)} - {types._Reason}
    )


def test_a_custom_reason_has_the_attributes_that_it_declares_or_inherits():
    class Own(BudgetExhausted):
        stop_reason = "own"

    class Other(RunError):
        detail: str

    own = Own("max_cost", 1, 2)
    assert (own.stop_reason, own.is_guard, own.allows_last_answer) == ("own", True, True)
    assert (Other("x").stop_reason, Other("x").is_guard, str(Other("x"))) == ("error", False, "x")
    assert pickle.loads(pickle.dumps(RunError("x"))).args == ("x",)  # noqa: S301


@pytest.mark.parametrize("stop_reason", REASONS)
def test_a_reason_has_a_name_for_telemetry_and_a_text_and_is_equal_by_its_facts(stop_reason):
    reason, text = REASONS[stop_reason]
    assert (reason.stop_reason, str(reason)) == (stop_reason, text)
    assert {reason, dataclasses.replace(reason)} == {reason}
    assert [other for other, _ in REASONS.values() if other == reason] == [reason]
    for copied in (pickle.loads(pickle.dumps(reason)), copy.deepcopy(reason), copy.copy(reason)):  # noqa: S301
        assert (copied, type(copied), str(copied)) == (reason, type(reason), text)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (LLMError("oh"), "the model failed: oh"),
        (
            LoopDetected(("b({})",), 3, "f00d", period=2),
            (
                "the same calls with the same results in 3 times 2 consecutive iterations, the last: b({}) "
                "(a tool to be polled needs volatile=True)"
            ),
        ),
    ],
    ids=["a single attempt", "a loop of several iterations"],
)
def test_the_text_of_a_reason_depends_on_its_facts(reason, text):
    assert str(reason) == text


def test_the_cause_is_kept_and_does_not_count_for_equality():
    cause = ValueError("x")
    reason = LLMError("a", cause=cause)
    assert (reason, hash(reason), repr(reason)) == (
        LLMError("a"),
        hash(LLMError("a")),
        repr(LLMError("a")),
    )
    assert reason.cause is copy.deepcopy(reason).cause is cause
    assert pickle.loads(pickle.dumps(reason)).cause.args == ("x",)  # noqa: S301


@pytest.mark.parametrize(
    "reason_of",
    [lambda cause: LLMError("a", cause=cause), lambda cause: PipelineFailed("s", "a", cause=cause)],
)
def test_unwrap_shows_the_traceback_of_the_cause(reason_of):
    def call_a_bug():
        return {}["missing"]

    try:
        call_a_bug()
    except KeyError as error:
        reason = reason_of(error)
    copied = pickle.loads(pickle.dumps(reason))  # noqa: S301
    assert isinstance(copied.__cause__, KeyError)
    with pytest.raises(RunError) as caught:
        Err(reason).unwrap()
    shown = "".join(traceback.format_exception(caught.value))
    assert "call_a_bug" in shown
    assert "The above exception was the direct cause" in shown


def test_a_reason_without_a_cause_hides_no_context():
    """A cause of None, set explicitly, would hide the exception that is handled when it is raised."""
    with pytest.raises(LLMError) as caught:
        try:
            raise KeyError("context")
        except KeyError:
            Err(LLMError("a")).unwrap()
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__
