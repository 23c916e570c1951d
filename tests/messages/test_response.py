"""Responses and usage: what is unknown is not zero, and a blank is neither text nor call."""

import json

import pytest

from treadle.messages import Response, ToolCall, Usage


def test_the_total_is_the_sum_where_the_provider_gave_none():
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
    """A cost that nobody told is unknown; one of nothing is not."""
    assert Usage(1, 1, cost=first).plus(Usage(1, 1, cost=second)).cost == total
    assert Usage(1, 1, cost=first).plus(None).cost == first


def test_usage_is_the_same_after_it_was_json():
    usage = Usage(1, 2, 4, 8, 16, is_lower_bound=True, cost=0.5)
    assert Usage.from_json(json.loads(json.dumps(usage.as_json()))) == usage
    assert Usage.from_json(Usage().as_json()) == Usage()


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
def test_blank_is_what_has_neither_text_nor_call(response, blank, text):
    assert response.is_blank is blank
    assert response.text == text


def test_responses_share_nothing():
    assert Response().extra is not Response().extra
