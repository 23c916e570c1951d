"""Why a call does not run, and what the model reads in place of its result."""

import pytest

from treadle.messages import ToolCall, ToolResult
from treadle.tools import NotRun, not_run

VALUES = {
    name: f"<{name}>"
    for name in (
        "iteration", "content", "more", "budget", "then", "most", "error", "stage", "why", "problems", "ending",
    )
}  # fmt: skip


def test_the_names_of_reasons_are_stable():
    """They occur in events, results, recordings and paused states, and in programs that read those."""
    assert sorted(NotRun) == [
        "answered",
        "breaker_open",
        "cancelled",
        "deferred",
        "denied",
        "duplicate_in_batch",
        "ended_run",
        "invalid",
        "locked",
        "max_uses",
        "no_new_evidence",
        "not_allowed",
        "not_planned",
        "over_budget",
        "parallel_cap",
        "recalled",
        "removed",
        "response_replaced",
    ]


@pytest.mark.parametrize("reason", sorted(set(NotRun) - {NotRun.ANSWERED}))
def test_every_reason_has_an_answer_whose_status_it_is(reason):
    result = not_run(ToolCall("c1", "look"), reason, **VALUES)
    assert (result.tool_call_id, result.status) == ("c1", reason)
    assert "{" not in result.content
    has_result = reason in {NotRun.NO_NEW_EVIDENCE, NotRun.RECALLED, NotRun.DUPLICATE_IN_BATCH}
    assert result.is_error is not has_result
    assert ("<content>" in result.content) is has_result


def test_values_with_braces_are_texts():
    found = not_run(ToolCall("c1", "{x}"), NotRun.BREAKER_OPEN, error='{"code": 1}')
    assert found.content.startswith("Error: '{x}' is unavailable and was not tried.")
    assert '{"code": 1}' in found.content


def test_an_answer_with_the_result_of_a_failed_call_is_an_error():
    made = not_run(
        ToolCall("c1", "f"), NotRun.DUPLICATE_IN_BATCH, is_error=True, content="E", more=""
    )
    assert made == ToolResult("c1", made.content, True, "duplicate_in_batch")
