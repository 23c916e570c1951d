"""Reasons: values that are equal by their facts, and exceptions that `unwrap` raises."""

import copy
import pickle
import traceback
from typing import get_args

import pytest

from treadle import results as types
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
    OutputMissing,
    PipelineFailed,
    Reason,
    ResponseIncomplete,
    RunCancelled,
    RunError,
    StoppedByStage,
)

REASONS = {
    "max_iterations_reached": (
        lambda: MaxIterationsReached(10),
        "no answer within max_iterations=10",
    ),
    "budget_exhausted": (
        lambda: BudgetExhausted("max_tool_calls", 3, 4),
        "the budget is spent: max_tool_calls=3, used 4",
    ),
    "limit_not_measurable": (
        lambda: LimitNotMeasurable("max_cost", "cost", "pass cost_of="),
        "max_cost cannot be measured: the cost of a response is not known; pass cost_of=",
    ),
    "deadline_exceeded": (
        lambda: DeadlineExceeded(2.50),
        "the run took longer than max_seconds=2.5",
    ),
    "circuit_broken": (
        lambda: CircuitBroken("search", "Error: down", 3),
        "tool 'search' failed with the same error in 3 consecutive iterations: Error: down",
    ),
    "loop_detected": (
        lambda: LoopDetected(("a({})", "b({})"), 3, "f00d"),
        (
            "the same calls with the same results in 3 consecutive iterations: a({}), b({}) "
            "(a tool to be polled needs volatile=True)"
        ),
    ),
    "compaction_stalled": (
        lambda: CompactionStalled(7, 3),
        (
            "the history was compacted 7 times, and became too long again 3 times in a row without a tool "
            "returning anything new; a larger max_tokens, shorter results or a better summary keep what the model "
            "needs"
        ),
    ),
    "llm_error": (
        lambda: LLMError("overloaded", "APIError", 4),
        "the model failed: APIError: overloaded (after 4 attempts)",
    ),
    "empty_response": (
        lambda: EmptyResponse(4, 2, ("stop", None), "acme", "m1"),
        (
            "2 consecutive empty responses, the last in iteration 4; finish reasons: stop, None; "
            "provider: acme; model: m1"
        ),
    ),
    "response_incomplete": (
        lambda: ResponseIncomplete("cut", "length", option="max_tokens"),
        (
            "the response was cut off (finish reason 'length'); raise max_tokens; accept_cut=True takes a cut "
            "text as the answer"
        ),
    ),
    "output_missing": (
        lambda: OutputMissing(3, ("a: bad", "b: bad")),
        "no valid output after 3 attempts: a: bad; b: bad",
    ),
    "pipeline_failed": (
        lambda: PipelineFailed("plan_calls", "oh", "ValueError"),
        "stage 'plan_calls' raised ValueError: oh",
    ),
    "stopped_by_stage": (
        lambda: StoppedByStage("no_secrets", "the prompt has a password"),
        "stage 'no_secrets' stopped the run: the prompt has a password",
    ),
    "invalid_input": (lambda: InvalidInput(("a: bad", "b: bad")), "a: bad; b: bad"),
    "cancelled": (RunCancelled, "the run was cancelled"),
}


@pytest.fixture(params=REASONS, name="stop_reason")
def _stop_reason(request):
    return request.param


def test_every_reason_is_in_the_table():
    made = {type(make()) for make, _ in REASONS.values()}
    assert made == set(get_args(Reason)) == set(RunError.__subclasses__())
    assert all(getattr(types, one.__name__) is one for one in made)


def test_its_text_is_a_sentence(stop_reason):
    make, text = REASONS[stop_reason]
    assert str(make()) == text


def test_it_has_a_name_for_telemetry(stop_reason):
    make, _ = REASONS[stop_reason]
    assert make().stop_reason == stop_reason


def test_reasons_with_the_same_facts_are_equal_and_have_equal_hashes(stop_reason):
    make, _ = REASONS[stop_reason]
    assert make() == make()
    assert {make(), make()} == {make()}
    assert all(make() != other() for name, (other, _) in REASONS.items() if name != stop_reason)


def test_it_survives_pickle_and_copies(stop_reason):
    make, text = REASONS[stop_reason]
    for copied in (pickle.loads(pickle.dumps(make())), copy.deepcopy(make()), copy.copy(make())):  # noqa: S301
        assert copied == make()
        assert type(copied) is type(make())
        assert str(copied) == text


def test_the_cause_is_kept_and_does_not_count_for_equality():
    cause = ValueError("x")
    assert LLMError("a", cause=cause) == LLMError("a")
    assert hash(LLMError("a", cause=cause)) == hash(LLMError("a"))
    assert LLMError("a", cause=cause).cause is cause
    assert repr(LLMError("a", cause=cause)) == repr(LLMError("a"))
    assert pickle.loads(pickle.dumps(LLMError("a", cause=cause))).cause.args == ("x",)  # noqa: S301


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


def test_a_single_attempt_is_not_mentioned():
    assert str(LLMError("oh")) == "the model failed: oh"


def test_a_loop_of_several_iterations_is_described_as_one():
    reason = LoopDetected(("b({})",), 3, "f00d", period=2)
    assert str(reason) == (
        "the same 2 iterations 3 times in a row with the same results, the last: b({}) "
        "(a tool to be polled needs volatile=True)"
    )
    assert reason != LoopDetected(("b({})",), 3, "f00d")
