"""Values are made into a form that every provider accepts."""

import json

import pytest

from treadle.messages.sanitizing import sendable_json, valid_arguments, valid_name


@pytest.mark.parametrize("text", ["[1]", "5", "{", "nonsense", '{"a": NaN}'])
def test_valid_arguments_wraps_a_text_that_is_not_an_object(text):
    assert json.loads(valid_arguments(text)) == {"invalid_arguments": text}


def test_valid_arguments_keeps_the_text_of_an_object():
    assert valid_arguments('{"b":1,  "a":2}') == '{"b":1,  "a":2}'
    assert valid_arguments(" \n") == "{}"


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("look_up", "look_up"),
        ("get.weather-2", "get.weather-2"),
        ("look up!", "look_up_"),
        ("\u00e4\u00f6x", "_x"),
        ("", "unnamed"),
        ("x" * 129, "x" * 128),
        ("a b" * 50, ("a_b" * 50)[:128]),
    ],
)
def test_an_invalid_name_is_sent_back_in_a_form_that_providers_accept(name, valid):
    assert valid_name(name) == valid


class Unspeakable:
    def __str__(self):
        raise KeyError("no")


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("Hi", "Hi"),
        ("\ud800 half", "? half"),
        (5, 5),
        (True, True),
        (None, None),
        (0.5, 0.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ({"a": [1, {"b": "\ud800"}]}, {"a": [1, {"b": "?"}]}),
        ((1, 2), [1, 2]),
        ({1: "x", "\ud800": "y"}, {"1": "x", "?": "y"}),
        (b"ab", "b'ab'"),
        (Unspeakable(), "(Unspeakable, which cannot be shown)"),
    ],
)
def test_unknown_keys_with_any_value_are_sent_back_as_json(given, sent):
    assert sendable_json(given) == sent
    json.dumps(sendable_json(given), allow_nan=False).encode()


def test_unknown_keys_are_sent_back_as_copies():
    given = {"a": [1]}
    sent = sendable_json(given)
    sent["a"].append(2)
    assert given == {"a": [1]}
