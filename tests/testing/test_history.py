"""The rules of a history: each violation is found and reported with its place."""

import pytest
from pydantic import BaseModel

from treadle.testing import InvalidHistoryError, call, calls, check_history, history_problems

USER = {"role": "user", "content": "Hi"}


def answer(call_id):
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def says(content, **more):
    return {"role": "assistant", "content": content, **more}


def asks(*ids, **more):
    return {**calls(*(call("f", i) for i in ids)), **more}


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [{"role": "system", "content": "x"}, USER, says("Hi")],
        [USER, asks("a", "b"), answer("a"), answer("b"), says("Hi")],
        [USER, asks("a"), answer("a"), asks("b"), answer("b"), says("Hi"), USER],
        [USER, asks("a"), answer("a"), USER],
        [USER, says(None, refusal="No.")],
        [USER, USER],
        [USER, says([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}])],
        [USER, says([{"type": "text", "text": " "}, {"type": "text", "text": "Hi"}])],
        [USER, {**asks("a"), "content": " "}, answer("a")],
        [{"role": "system", "content": ""}, {"role": "user", "content": ""}],
        [USER, asks("a"), {**answer("a"), "content": ""}],
        [
            USER,
            {**asks("a"), "tool_calls": [{"id": "a", "type": "custom", "custom": {}}]},
            answer("a"),
        ],
    ],
)
def test_a_valid_history_passes(messages):
    check_history(messages)
    assert list(history_problems(messages)) == []


BAD = {
    "an image without data": (
        [USER, says([{"type": "image_url", "image_url": {"url": "data:,"}}])],
        "messages[1]: a content part that cannot be sent",
    ),
    "no answer at the end": (
        [USER, asks("a", "b"), answer("a")],
        "messages: calls b have no tool message at the end",
    ),
    "no answer before the next message": (
        [USER, asks("a"), USER],
        "messages[2]: calls a have no tool message before it",
    ),
    "an answer to nothing": (
        [USER, answer("a")],
        "messages[1]: it has the result of 'a', but no call before it with that id is open",
    ),
    "two answers to one call": (
        [USER, asks("a"), answer("a"), answer("a")],
        "messages[3]: it has the result of 'a', but no call before it with that id is open",
    ),
    "an answer that comes too late": (
        [USER, asks("a"), answer("a"), USER, answer("a")],
        "messages[4]: it has the result of 'a', but no call before it with that id is open",
    ),
    "answers out of order": (
        [USER, asks("a", "b"), answer("b"), answer("a")],
        "messages[2]: it has the result of 'b', but 'a' was called first",
    ),
    "an id used twice": (
        [USER, asks("a"), answer("a"), asks("a"), answer("a")],
        "messages[3]: the id 'a' is used twice",
    ),
    "an id used twice in one message": (
        [USER, asks("a", "a"), answer("a"), answer("a")],
        "messages[1]: the id 'a' is used twice",
    ),
    "an empty assistant message": (
        [USER, says(" ")],
        "messages[1]: an assistant message without text and calls",
    ),
    "an assistant message of no parts": (
        [USER, says([])],
        "messages[1]: an assistant message without text and calls",
    ),
    "an assistant message of blank parts": (
        [USER, says([{"type": "text", "text": " "}, {"type": "text", "text": "\n"}])],
        "messages[1]: an assistant message without text and calls",
    ),
    "two assistant messages": (
        [USER, says("a"), says("b")],
        "messages[2]: an assistant message directly after another",
    ),
    "arguments that are no object": (
        [USER, {**asks("a"), "tool_calls": [{**call("f", "a"), "function":
            {"name": "f", "arguments": "[1]"}}]}, answer("a")],
        "messages[1]: the arguments of 'a' are not a JSON object",
    ),
    "arguments with NaN": (
        [USER, {**asks("a"), "tool_calls": [{**call("f", "a"), "function":
            {"name": "f", "arguments": '{"n": NaN}'}}]}, answer("a")],
        "messages[1]: the arguments of 'a' are not a JSON object",
    ),
    "a name with a space": (
        [USER, calls(call("no name", "a")), answer("a")],
        "messages[1]: 'no name' is not a valid name of a tool",
    ),
    "arguments that are blank": (
        [USER, {**asks("a"), "tool_calls": [{**call("f", "a"), "function":
            {"name": "f", "arguments": " "}}]}, answer("a")],
        "messages[1]: the arguments of 'a' are not a JSON object",
    ),
    "a surrogate in a call": (
        [USER, calls({**call("f", "a"), "note": "\ud800"}), answer("a")],
        "messages[1]: the call 'a' has values that cannot be sent",
    ),
    "a number in a call that JSON does not have": (
        [USER, calls({**call("f", "a"), "score": float("nan")}), answer("a")],
        "messages[1]: the call 'a' has values that cannot be sent",
    ),
    "an empty list of calls": (
        [USER, {**says("Hi"), "tool_calls": []}],
        "messages[1]: an empty list of calls",
    ),
    "an empty text part": (
        [{"role": "user", "content": [{"type": "text", "text": ""}]}],
        "messages[0]: a text part without text",
    ),
    "what is no message": ([5], "messages[0]: expected a message dict, got int 5"),
    "nothing": ([], "messages: expected at least one message, got none"),
    "a message without what it needs": (
        [{"role": "tool", "content": "x"}],
        "messages[0].tool_call_id: expected the id of a call, got nothing",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "problem"), BAD.values(), ids=BAD)
def test_a_violation_is_reported_with_its_place(messages, problem):
    assert list(history_problems(messages)) == [problem]
    with pytest.raises(InvalidHistoryError) as caught:
        check_history(messages)
    assert str(caught.value) == problem
    assert isinstance(caught.value, AssertionError)


def test_every_violation_is_reported():
    messages = [USER, says(""), says("x"), asks("a"), USER]
    assert len(list(history_problems(messages))) == 4


def test_message_objects_of_an_sdk_are_checked_too():
    class Message(BaseModel):
        role: str = "assistant"
        content: str = ""

    assert list(history_problems([USER, Message()])) == [
        "messages[1]: an assistant message without text and calls"
    ]
