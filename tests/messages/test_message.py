"""Validation of messages: every problem has the place, what was expected, and what was found."""

import types

import pytest
from pydantic import BaseModel

from treadle.messages import InvalidMessagesError, copy_json, describe, problems_of, to_message
from treadle.messages.message import ROLES
from treadle.messages.repair import validate_messages

USER = {"role": "user", "content": "Hi"}


def called(**call):
    made = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [{**made, **call}]}


GOOD = {
    "system": {"role": "system", "content": "Be brief."},
    "developer": {"role": "developer", "content": "Be brief."},
    "empty text": {"role": "user", "content": ""},
    "parts": {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url"}]},
    "no parts": {"role": "user", "content": []},
    "assistant with null and no calls": {"role": "assistant", "content": None},
    "assistant with calls and no content": {
        "role": "assistant",
        "tool_calls": called()["tool_calls"],
    },
    "empty list of calls": {"role": "assistant", "content": "x", "tool_calls": []},
    "null calls": {"role": "assistant", "content": "x", "tool_calls": None},
    "call without arguments": called(function={"name": "add"}),
    "call with malformed arguments, which repair wraps": called(
        function={"name": "add", "arguments": "{"}
    ),
    "a custom kind of call": called(type="custom", function=None),
    "tool": {"role": "tool", "tool_call_id": "c1", "content": "5"},
    "unknown keys": {**USER, "cache_control": {"type": "ephemeral"}, "name": 5},
}


@pytest.mark.parametrize("message", GOOD.values(), ids=GOOD.keys())
def test_a_well_formed_message_has_no_problem(message):
    assert list(problems_of([message])) == []


CONTENT = "text or a list of parts"
ROLE = f"one of {', '.join(ROLES)}"
BAD = [
    (5, "", "a message dict", "int 5"),
    (None, "", "a message dict", "nothing"),
    ("Hi", "", "a message dict", "str 'Hi'"),
    ({}, ".role", ROLE, "nothing"),
    ({"role": "bot", "content": "x"}, ".role", ROLE, "str 'bot'"),
    ({"role": ["user"], "content": "x"}, ".role", ROLE, "list ['user']"),
    ({"role": "user"}, ".content", CONTENT, "nothing"),
    ({"role": "user", "content": None}, ".content", CONTENT, "nothing"),
    ({"role": "user", "content": b"x"}, ".content", CONTENT, "bytes b'x'"),
    ({"role": "user", "content": ["Hi"]}, ".content[0]", "a part with a type", "str 'Hi'"),
    ({"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]},
     ".content[1]", "a part with a type", "dict {'text': 'b'}"),
    ({"role": "assistant"}, ".content", CONTENT, "nothing"),
    ({"role": "assistant", "content": "x", "tool_calls": "add"}, ".tool_calls", "a list of calls", "str 'add'"),
    ({"role": "assistant", "content": "x", "tool_calls": ["add"]}, ".tool_calls[0]", "a call", "str 'add'"),
    ({"role": "assistant", "content": "x", "refusal": 5}, ".refusal", "text", "int 5"),
    (called(id=7), ".tool_calls[0].id", "text", "int 7"),
    (called(id=""), ".tool_calls[0].id", "text", "str ''"),
    (called(type="custom", id=None), ".tool_calls[0].id", "text", "nothing"),
    (called(function=None), ".tool_calls[0].function.name", "text", "nothing"),
    (called(function={"name": ""}), ".tool_calls[0].function.name", "text", "dict {'name': ''}"),
    (called(function={"name": "add", "arguments": {"a": 1}}),
     ".tool_calls[0].function.arguments", "JSON text", "dict {'a': 1}"),
    (called(function={"name": "add", "arguments": None}),
     ".tool_calls[0].function.arguments", "JSON text", "nothing"),
    ({"role": "tool", "content": "5"}, ".tool_call_id", "the id of a call", "nothing"),
    ({"role": "tool", "content": "5", "tool_call_id": ""}, ".tool_call_id", "the id of a call", "str ''"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "where", "expected", "found"), BAD)
def test_a_problem_names_the_place_the_expectation_and_the_value(message, where, expected, found):
    assert [*problems_of([message])] == [f"messages[0]{where}: expected {expected}, got {found}"]


@pytest.mark.parametrize("text", ["Hi", " \u00e9\n", "\0"])
def test_a_text_is_a_message_of_the_user(text):
    messages = [{"role": "user", "content": text}]
    assert validate_messages(text) == validate_messages(messages) == (messages, ())


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_blank_text_is_a_problem(text):
    with pytest.raises(InvalidMessagesError, match="expected at least one message"):
        validate_messages(text)


def test_an_empty_list_is_a_problem():
    assert list(problems_of([])) == ["messages: expected at least one message, got none"]


def test_all_problems_are_listed_each_with_its_index():
    """Nothing stops at the first problem, neither between messages nor within one."""
    bad_tool = {"role": "tool", "content": 5}
    problems = list(problems_of([USER, 5, bad_tool]))
    assert [line.split(":")[0] for line in problems] == [
        "messages[1]",
        "messages[2].content",
        "messages[2].tool_call_id",
    ]


def test_a_long_value_is_described_by_its_type_alone():
    """An error does not repeat a long value."""
    assert describe("x" * 5000) == "str"
    assert describe("x" * 10) == "str 'xxxxxxxxxx'"
    assert describe(None) == "nothing"


def test_a_value_whose_repr_raises_is_described_by_its_type():
    assert describe(10**5000) == "int"


def test_a_copy_shares_no_container():
    """Lists and dicts are copied all the way down; tuples become lists, as in JSON."""
    original = {"a": [{"b": [1]}], "c": ({"d": 1},)}
    copy = copy_json(original)
    assert copy == {"a": [{"b": [1]}], "c": [{"d": 1}]}
    copy["a"][0]["b"].append(2)
    copy["c"][0]["d"] = 2
    assert original == {"a": [{"b": [1]}], "c": ({"d": 1},)}


def test_a_value_that_is_not_json_is_not_copied():
    thing = object()
    assert copy_json({"x": thing})["x"] is thing


def test_any_mapping_becomes_a_new_dict():
    given = types.MappingProxyType({"role": "user", "content": [{"type": "text"}]})
    made = to_message(given)
    assert type(made) is dict
    assert made["content"][0] is not given["content"][0]


def test_the_message_object_of_an_sdk_becomes_its_dump_without_nulls():
    class Message(BaseModel):
        role: str = "assistant"
        content: str | None = "Hi"
        refusal: str | None = None

    assert to_message(Message()) == {"role": "assistant", "content": "Hi"}


def test_a_message_of_the_openai_sdk_is_accepted():
    openai = pytest.importorskip("openai.types.chat")
    message = openai.ChatCompletionMessage(role="assistant", content="Hi")
    assert list(problems_of([to_message(message)])) == []


def test_a_class_is_not_a_message():
    """A class has the methods of its objects, and calling them would raise."""

    class Message(BaseModel):
        role: str = "user"

    assert to_message(Message) is Message
    (problem,) = problems_of([to_message(Message)])
    assert problem.startswith("messages[0]: expected a message dict")
