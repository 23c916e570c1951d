"""The estimate of tokens: a documented rule over everything that was sent and received."""

import json

import pytest

from treadle import Response, ToolCall, Usage
from treadle.messages.estimate import estimate_usage

TOOL = {"type": "function", "function": {"name": "add"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}


def sent(*messages, tools=(), others=()):
    return estimate_usage(messages, tools, Response("x"), others).input_tokens


def received(**fields):
    return estimate_usage([], [], Response(**fields)).output_tokens


def test_four_characters_are_a_token():
    assert sent({"role": "user", "content": "x" * 396}) == 100
    assert sent({"role": "user", "content": "x" * 397}) == 101
    assert received(content="x" * 400) == 100


def test_nothing_is_no_token():
    assert (sent(), received()) == (0, 0)


def test_text_parts_count_as_text_and_other_parts_as_a_thousand_tokens():
    text = {"type": "text", "text": "x" * 396}
    assert sent({"role": "user", "content": [text]}) == 100
    assert sent({"role": "user", "content": [text, IMAGE]}) == 1_100


def test_calls_other_keys_tools_and_further_texts_count():
    plain = {"role": "assistant", "content": "x"}
    assert sent({**plain, "reasoning": "x" * 400}) == sent(plain) + 100
    made = [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    assert sent({**plain, "tool_calls": made}) == pytest.approx(
        sent(plain) + len(json.dumps(made)) / 4, abs=1
    )
    assert sent(plain, tools=[TOOL]) == pytest.approx(
        sent(plain) + len(json.dumps(TOOL)) / 4, abs=1
    )
    assert sent(plain, others=["x" * 400]) == sent(plain) + 100


def test_received_calls_and_reasoning_count():
    assert received(tool_calls=(ToolCall("c", "add", "x" * 397),)) == 100
    assert received(extra={"reasoning": "x" * 400}) == 100
    assert received(content="x" * 4, extra={"content": [{"type": "text", "text": "x" * 4}]}) == 1


def test_what_was_reported_is_kept():
    response = Response("x" * 40, usage=Usage(500, 2, 600, 3, 4, is_lower_bound=True, cost=0.5))
    assert estimate_usage([], [], response) == Usage(500, 10, 600, 3, 4, cost=0.5, is_estimate=True)


def test_values_that_are_no_json_are_counted_too():
    cycle = []
    cycle.append(cycle)
    assert sent({"role": "user", "content": "x", "odd": {(1,): 2}, "more": cycle, "any": {3}}) > 0
