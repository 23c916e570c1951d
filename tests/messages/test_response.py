"""Responses and usage: unknown usage is not zero, and a blank response has neither text nor calls."""

import pytest

from treadle.messages import Response, ToolCall, Usage


def test_the_total_is_the_sum_if_the_provider_reports_none():
    assert Usage(3, 4).total_tokens == 7
    assert Usage(3, 4, 10).total_tokens == 10


def test_usage_adds_up_field_by_field():
    first, second = Usage(1, 2, 4, 8, 16), Usage(100, 200, 400, 800, 1600)
    assert first.plus(second) == Usage(101, 202, 404, 808, 1616)
    assert (first, second) == (Usage(1, 2, 4, 8, 16), Usage(100, 200, 400, 800, 1600))


def test_unknown_usage_makes_a_lower_bound_and_stays_one():
    unknown = Usage(1, 2).plus(None)
    assert unknown == Usage(1, 2, is_lower_bound=True)
    assert unknown.plus(Usage(1, 1)).is_lower_bound
    assert Usage(1, 1).plus(unknown).is_lower_bound
    assert unknown.plus(None) == unknown
    assert not Usage(1, 1).plus(Usage()).is_lower_bound


@pytest.mark.parametrize(
    ("first", "second", "total"),
    [(None, None, None), (0.25, None, 0.25), (None, 0.5, 0.5), (0.25, 0.5, 0.75), (0.0, None, 0.0)],
)
def test_costs_add_up_as_far_as_they_are_known(first, second, total):
    """A missing cost is unknown; a cost of zero is known."""
    assert Usage(1, 1, cost=first).plus(Usage(1, 1, cost=second)).cost == total
    assert Usage(1, 1, cost=first).plus(None).cost == first


@pytest.mark.parametrize(
    ("response", "blank", "text"),
    [
        (Response(), True, ""),
        (Response(""), True, ""),
        (Response(" \n"), True, " \n"),
        (Response("Hi"), False, "Hi"),
        (Response(refusal="No."), False, "No."),
        (Response("", refusal="No."), False, "No."),
        (Response(tool_calls=(ToolCall("a", "f"),)), False, ""),
    ],
)
def test_a_response_with_neither_text_nor_call_is_blank(response, blank, text):
    assert response.is_blank is blank
    assert response.text == text


def test_responses_share_nothing():
    assert Response().extra is not Response().extra
