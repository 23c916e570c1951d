"""A tool that fails with the same error in several iterations in a row ends the run."""

import pytest

from treadle.messages import ToolCall, ToolResult
from treadle.results import CircuitBroken
from treadle.stages import circuit_breaker
from treadle.tools import NotRun


@pytest.fixture
def iterate(context):
    """Step iterations through the breaker: each a list of ``(tool, error or None[, status])``."""

    def iterate(*iterations, **options):
        stage, ctx = circuit_breaker(**options) if options else circuit_breaker, context()
        for number, outcomes in enumerate(iterations, 1):
            calls, results = [], {}
            for place, (name, error, *status) in enumerate(outcomes):
                call = ToolCall(f"{number}/{place}", name)
                calls.append(call)
                results[call.id] = ToolResult(call.id, error or "ok", error is not None, *status)
            ctx = stage(ctx.replace(tool_calls=tuple(calls), tool_results=results))
            if ctx.decision is not None:
                return number, ctx.error
        return None

    return iterate


F, G = [("f", "E")], [("g", "E")]
OK = [("f", None)]
OTHER = [("f", "other")]
IDLE = [*sorted({*NotRun} - {NotRun.INVALID, NotRun.BREAKER_OPEN}), "retry", "unknown"]
"""The statuses of results that are neither a success nor a failure of the tool."""


@pytest.mark.parametrize(
    ("iterations", "broken_at"),
    [
        ([F, F, F], 3),
        ([F, F], None),
        ([F, F, OK, F, F], None),
        ([F, F, OK, F, F, F], 6),
        ([F, F, OTHER, F, F], None),
        ([F, OTHER, OTHER, OTHER], 4),
        ([F, F, [("g", None)], F], 4),
        ([F, F, [], F], 4),
        ([F, G, F, G, F], 5),
        ([[*F, ("g", None)]] * 3, 3),
        ([F + OK, F + OK, F + OK], None),
        ([F + OK, F, F], None),
        *(([F, F, [("f", "E", status)], F], 4) for status in IDLE),
        *(([[("f", "E", status)]] * 4, None) for status in IDLE),
        ([[("f", "E", "timeout")]] * 3, 3),
        ([[("f", "E", "invalid")]] * 3, 3),
        ([[("f", "E", "breaker_open")]] * 3, 3),
        ([F + F, F], None),
    ],
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_the_run_ends_if_a_tool_fails_with_the_same_error_often_enough(
    iterate, iterations, broken_at
):
    """The success of other tools changes nothing; its own success, or another error, starts the count again."""
    ended = iterate(*iterations)
    assert (ended[0] if ended else None) == broken_at


def test_the_reason_names_the_tool_the_error_and_the_count(iterate):
    assert iterate(F, F, F) == (3, CircuitBroken("f", "E", 3))


def test_the_reason_has_the_exception_of_the_first_failed_call_of_the_tool(context):
    """Also if another call of the tool, or another tool, failed with the same text."""
    calls = tuple(ToolCall(key, name) for key, name in (("a", "g"), ("b", "f"), ("c", "f")))
    results = {call.id: ToolResult(call.id, "E", True) for call in calls}
    ctx = context().replace(tool_calls=calls[1:], tool_results=results)
    errors = {call.id: ValueError(call.id) for call in calls}
    for key, error in errors.items():
        ctx.run.note_failure(ctx.iteration, key, error)
    assert circuit_breaker(threshold=1)(ctx).error.cause is errors["b"]


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_the_threshold_is_an_option(iterate, threshold):
    assert iterate(*[F] * 9, threshold=threshold)[0] == threshold


def test_a_call_without_a_result_is_ignored(context):
    ctx = context().replace(tool_calls=(ToolCall("a", "f"),))
    assert circuit_breaker(ctx).decision is None
