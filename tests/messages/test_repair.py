"""An invalid history is repaired so that every provider accepts it; no content is lost."""

import json

import pytest

from treadle.messages import copy_json
from treadle.messages.parts import join_messages
from treadle.messages.repair import NO_RESULT, repair_history
from treadle.testing import check_history

USER = {"role": "user", "content": "Hi"}


def call(call_id, arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def calls(*ids, **more):
    return {"role": "assistant", "content": None, "tool_calls": [call(i) for i in ids], **more}


def answer(call_id, content="ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def says(content, **more):
    return {"role": "assistant", "content": content, **more}


def repaired(*messages):
    """Repair, and check the invariants of the result; a second repair changes nothing."""
    history, reports = repair_history(copy_json(list(messages)))
    check_history(history)
    assert repair_history(copy_json(history)) == (history, ())
    return history, reports


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, says("Hi")],
        [USER, says(None, refusal="No.")],
        [USER, says([{"type": "text", "text": "Hi"}])],
        [USER, calls("a", "b"), answer("a"), answer("b"), says("Done")],
        [USER, calls("a"), answer("a"), calls("b"), answer("b")],
        [{"role": "system", "content": "x"}, USER, USER],
        [USER, calls("a", reasoning="because"), answer("a")],
    ],
)
def test_a_valid_history_is_not_changed(messages):
    assert repaired(*messages) == (messages, ())


def test_a_call_without_an_answer_is_answered_as_interrupted():
    history, reports = repaired(USER, calls("a", "b"), answer("b"))
    assert history == [USER, calls("a", "b"), answer("a", NO_RESULT), answer("b")]
    assert reports == ("messages[1]: call 'a' had no answer; it was answered as interrupted",)


def test_a_call_at_the_very_end_is_answered_too():
    history, reports = repaired(USER, calls("a"))
    assert history[2:] == [answer("a", NO_RESULT)]
    assert len(reports) == 1


def test_a_late_result_becomes_a_user_message():
    history, reports = repaired(USER, calls("a"), USER, answer("a", "5"))
    assert history[2] == answer("a", NO_RESULT)
    assert history[4] == {"role": "user", "content": "Result of an earlier tool call: 5"}
    assert reports == (
        "messages[1]: call 'a' had no answer; it was answered as interrupted",
        "messages[3]: it answers no call; it was kept as a user message",
    )


def test_answers_in_another_order_are_put_in_the_order_of_the_calls():
    history, reports = repaired(USER, calls("a", "b"), answer("b", "B"), answer("a", "A"))
    assert history[2:] == [answer("a", "A"), answer("b", "B")]
    assert reports == ("messages[1]: its answers were put in the order of its calls",)


def test_a_second_result_of_one_call_becomes_a_user_message():
    history, reports = repaired(USER, calls("a"), answer("a", "1"), answer("a", "2"))
    assert history[2:] == [
        answer("a", "1"),
        {"role": "user", "content": "Result of an earlier tool call: 2"},
    ]
    assert reports == ("messages[3]: it answers no call; it was kept as a user message",)


def test_an_answer_without_a_call_keeps_its_parts():
    part = {"type": "text", "text": "5"}
    history, _ = repaired(USER, answer("ghost", [part]))
    assert history[1]["content"] == [
        {"type": "text", "text": "Result of an earlier tool call: "},
        part,
    ]


def test_an_id_that_was_used_before_is_renamed_with_its_answer():
    history, reports = repaired(USER, calls("a"), answer("a", "1"), calls("a"), answer("a", "2"))
    assert history[3]["tool_calls"][0]["id"] == "a_2"
    assert history[4] == answer("a_2", "2")
    assert reports == ("messages[3]: the id 'a' was in use; renamed to 'a_2'",)


def test_an_id_twice_in_one_message_is_renamed_and_each_keeps_its_answer():
    history, _ = repaired(USER, calls("a", "a"), answer("a", "1"), answer("a", "2"))
    assert [m["tool_call_id"] for m in history[2:]] == ["a", "a_2"]
    assert [m["content"] for m in history[2:]] == ["1", "2"]


def test_a_new_id_is_unused():
    history, _ = repaired(
        USER, calls("a", "a_2"), answer("a"), answer("a_2"), calls("a"), answer("a")
    )
    assert history[4]["tool_calls"][0]["id"] == "a_3"


def test_an_empty_assistant_message_is_removed():
    history, reports = repaired(USER, says("  "), says(None), says([]), says(""))
    assert history == [USER]
    assert len(reports) == 4
    assert reports[0] == "messages[1]: it was an empty assistant message; it was removed"


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("a", "b", "a\n\nb"),
        ([{"type": "text", "text": "a"}], "b", [{"type": "text", "text": t} for t in "ab"]),
        ("a", [{"type": "x"}], [{"type": "text", "text": "a"}, {"type": "x"}]),
    ],
)
def test_two_assistant_messages_in_a_row_are_joined(first, second, joined):
    history, reports = repaired(USER, says(first), says(second, reasoning="r"))
    assert history == [USER, says(joined, reasoning="r")]
    assert reports == ("messages[2]: it followed another assistant message; the two were joined",)


def test_the_refusals_of_two_assistant_messages_are_joined():
    refused = {"role": "assistant", "content": None, "refusal": "No."}
    answer = {"role": "assistant", "content": "Yes.", "refusal": None}
    assert join_messages(refused, answer) == {**answer, "refusal": "No."}
    assert join_messages(refused, refused) == {**refused, "refusal": "No.\n\nNo."}


def test_a_text_before_a_message_of_calls_is_joined_to_it():
    history, _ = repaired(USER, says("Let me see."), calls("a"), answer("a"))
    assert history[1] == calls("a") | {"content": "Let me see."}


def test_a_text_after_results_stays_a_separate_message():
    messages = [USER, calls("a"), answer("a"), says("Done")]
    assert repaired(*messages) == (messages, ())


def test_arguments_that_are_not_a_json_object_are_wrapped():
    """Servers that parse past calls refuse the whole request if they cannot."""
    broken = {"role": "assistant", "tool_calls": [call("a", '{"x": ')]}
    history, reports = repaired(USER, broken, answer("a"))
    arguments = history[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"invalid_arguments": '{"x": '}
    assert reports == ("messages[1]: arguments of 'f' were not a JSON object; wrapped",)


def test_empty_arguments_become_an_empty_object_without_a_report():
    message = {"role": "assistant", "tool_calls": [call("a", " "), call("b")]}
    del message["tool_calls"][1]["function"]["arguments"]
    history, reports = repaired(USER, message, answer("a"), answer("b"))
    assert [c["function"]["arguments"] for c in history[1]["tool_calls"]] == ["{}", "{}"]
    assert reports == ()


def test_a_custom_kind_of_call_is_kept_and_answered():
    own = {"id": "a", "type": "custom", "custom": {"name": "x", "input": "y"}}
    history, _ = repaired(USER, {"role": "assistant", "tool_calls": [own]})
    assert history[1]["tool_calls"] == [own]
    assert history[2] == answer("a", NO_RESULT)


def named(name, **more):
    return {**call("a"), "function": {"name": name, "arguments": "{}"}, **more}


def test_an_invalid_name_of_a_past_call_is_replaced():
    history, reports = repaired(
        USER, {"role": "assistant", "tool_calls": [named("look up!")]}, answer("a")
    )
    assert history[1]["tool_calls"] == [named("look_up_")]
    assert reports == ("messages[1]: the name 'look up!' is invalid; it became 'look_up_'",)


def test_a_past_call_whose_name_is_a_surrogate_gets_a_valid_name():
    history, _ = repaired(USER, {"role": "assistant", "tool_calls": [named("\ud800")]}, answer("a"))
    assert history[1]["tool_calls"] == [named("_")]


@pytest.mark.parametrize(
    ("broken", "sent"),
    [
        (call("a", '{"x": "\ud800"}'), call("a", '{"x": "?"}')),
        (named("f", score=float("nan")), named("f", score="nan")),
        (named("f", extra={"x": [float("inf")]}), named("f", extra={"x": ["inf"]})),
        (named("f", note="\udfff"), named("f", note="?")),
        (
            {"id": "a", "type": "custom", "custom": {"input": "\ud800"}},
            {"id": "a", "type": "custom", "custom": {"input": "?"}},
        ),
    ],
)
def test_values_of_a_past_call_that_cannot_be_sent_are_replaced(broken, sent):
    history, reports = repaired(USER, {"role": "assistant", "tool_calls": [broken]}, answer("a"))
    assert history[1]["tool_calls"] == [sent]
    json.dumps(history, ensure_ascii=False, allow_nan=False).encode()
    assert reports == ("messages[1]: call 'a' had values that cannot be sent; replaced",)


def test_an_id_with_a_surrogate_is_replaced_in_the_call_and_in_its_result():
    history, _ = repaired(USER, calls("\ud800", "?"), answer("?", "2"), answer("\ud800", "1"))
    assert [one["id"] for one in history[1]["tool_calls"]] == ["?", "?_2"]
    assert history[2:] == [answer("?", "1"), answer("?_2", "2")]


def test_unknown_keys_and_other_alphabets_in_a_past_call_are_kept():
    messages = [USER, {"role": "assistant", "tool_calls": [named("f", note="\u00e4")]}, answer("a")]
    assert repaired(*messages) == (messages, ())


def test_an_empty_list_of_calls_is_removed():
    history, reports = repaired(USER, says("Hi", tool_calls=[]))
    assert history == [USER, says("Hi")]
    assert reports == ("messages[1]: its list of calls was empty; it was removed",)


def text(content):
    return {"type": "text", "text": content}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ({"role": "user", "content": [text(""), text("Hi")]}, [text("Hi")]),
        ({"role": "user", "content": [text(""), IMAGE, text(" ")]}, [IMAGE, text(" ")]),
        ({"role": "user", "content": [text("")]}, ""),
        ({"role": "system", "content": [text("x"), {"type": "text"}]}, [text("x")]),
        (says([text(""), text("Hi")]), [text("Hi")]),
        (says([text("")], refusal="No."), None),
    ],
)
def test_an_empty_text_part_is_removed(message, kept):
    history, reports = repaired(USER, message)
    assert history == [USER, {**message, "content": kept}]
    assert reports == ("messages[1]: it had values that cannot be sent; replaced or removed",)


def test_empty_text_parts_next_to_calls_and_in_results_are_removed():
    message = {**calls("a"), "content": [text("")]}
    history, _ = repaired(USER, message, answer("a", [text(""), text("ok")]))
    assert history == [USER, calls("a"), answer("a", [text("ok")])]


def test_an_assistant_message_of_blank_parts_is_removed():
    history, reports = repaired(USER, says([text(" "), text("")]))
    assert history == [USER]
    assert len(reports) == 2
