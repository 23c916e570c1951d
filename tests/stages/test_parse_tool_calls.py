"""From a response to calls, each with an id that no other call of the history has."""

import pytest

from treadle.messages import Response, ToolCall
from treadle.stages import parse_tool_calls


def ids(ctx):
    return [call.id for call in parse_tool_calls(ctx).tool_calls]


def test_a_response_without_calls_does_not_change_the_context(context):
    ctx = context(response=Response("Hi"))
    assert parse_tool_calls(ctx) is ctx


def test_calls_are_kept_unchanged_and_in_order(context):
    """Malformed arguments too: these are left to validation."""
    given = (ToolCall("x", "add", "{", extra={"signature": "s"}), ToolCall("y", "add", "{}"))
    assert parse_tool_calls(context(*given)).tool_calls == given


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (["", ""], ["call_4_1", "call_4_2"]),
        (["a", "a", "a"], ["a", "a_2", "a_3"]),
        (["a", "a_2", "a"], ["a", "a_2", "a_3"]),
        (["", "call_4_1"], ["call_4_1", "call_4_1_2"]),
        (["old", "new"], ["old_2", "new"]),
        (["old", "old_2", "old"], ["old_2", "old_2_2", "old_3"]),
        (["a/b", "a"], ["a_b", "a"]),
        (["a_b", "a/b", "a//b"], ["a_b", "a_b_2", "a__b"]),
    ],
)
def test_a_missing_or_used_id_is_replaced_by_an_unused_one(context, given, made):
    """It has no slash: a call could be mistaken for a step of another, or for a call of a subagent.

    It is the same each time, so that a run that is resumed or replayed has the same ids.
    """
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [{"id": "old", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "old", "content": "x"},
    ]
    calls = [ToolCall(given_id, "f") for given_id in given]
    ctx = context(*calls, messages=history, iteration=4)
    assert [ids(ctx) for _ in range(3)] == [made] * 3


def test_unknown_keys_of_a_call_are_kept_with_a_new_id(context):
    ctx = context(ToolCall("", "f", '{"a": 1}', extra={"signature": "s"}))
    (call,) = parse_tool_calls(ctx).tool_calls
    assert (call.name, call.arguments, call.extra) == ("f", '{"a": 1}', {"signature": "s"})


def test_thousands_of_calls_under_one_id_are_numbered_quickly(context):
    """The search does not start at the first number for each of them."""
    calls = [ToolCall("same", "f")] * 5_000
    assert len(set(ids(context(*calls)))) == 5_000
