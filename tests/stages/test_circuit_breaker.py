"""A tool that fails with the same error in several iterations in a row ends the run."""

import pytest

from treadle.messages import ToolCall, ToolResult
from treadle.results import CircuitBroken
from treadle.stages import circuit_breaker


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
        ([F, F, [("f", "E", "ended_run")], F], 4),
        ([F, F, [("f", "Not run", "over_budget")], F], 4),
        ([F, F, [("f", "Cancelled", "cancelled")], F], 4),
        ([F, F, [("f", "Not run yet", "deferred")], F], 4),
        ([F, F, [("f", "No", "denied")], F], 4),
        ([F, F, [("f", None, "no_new_evidence")], F], 4),
        ([[("f", "Cancelled", "cancelled")]] * 4, None),
        ([[("f", "Not run yet", "deferred")]] * 4, None),
        ([[("f", "No", "denied")]] * 4, None),
        ([[("f", "Not run", "over_budget")]] * 4, None),
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


def test_results_of_calls_that_did_not_run_do_not_change_the_context(context):
    """Neither the count nor the memo: skipped, deferred, denied, over budget, cancelled."""
    for status in (
        "no_new_evidence",
        "deferred",
        "denied",
        "over_budget",
        "ended_run",
        "cancelled",
    ):
        ctx = context().replace(
            tool_calls=(ToolCall("a", "f"),),
            tool_results={"a": ToolResult("a", "E", True, status)},
        )
        assert circuit_breaker(threshold=1)(ctx) is ctx


def test_the_reason_names_the_tool_the_error_and_the_count(iterate):
    assert iterate(F, F, F) == (3, CircuitBroken("f", "E", 3))


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_the_threshold_is_an_option(iterate, threshold):
    assert iterate(*[F] * 9, threshold=threshold)[0] == threshold


def test_a_call_without_a_result_is_ignored(context):
    ctx = context().replace(tool_calls=(ToolCall("a", "f"),))
    assert circuit_breaker(ctx).decision is None


def test_success_alone_does_not_change_the_context(context):
    ctx = context().replace(
        tool_calls=(ToolCall("a", "f"),), tool_results={"a": ToolResult("a", "ok")}
    )
    assert circuit_breaker(ctx) is ctx
