"""Parsing and formatting JSON that a model wrote: no text raises or hangs, and no value is coerced."""

import json

import pytest

from treadle.messages import parse_object, short_json, short_name
from treadle.messages.json_text import (
    MAX_LENGTH,
    MAX_PATH,
    MalformedJSONError,
    canonical_json,
    format_path,
    json_type,
)


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_white_space_counts_as_no_arguments(text):
    assert parse_object(text) == {}


def test_an_object_is_parsed():
    assert parse_object(' {"a": [1, 2.5, null, true], "b": {"c": "\u00e9"}} ') == {
        "a": [1, 2.5, None, True],
        "b": {"c": "\u00e9"},
    }


NOT_JSON = {
    "[]": "expected a JSON object, got array []",
    "5": "expected a JSON object, got integer 5",
    "2.5": "expected a JSON object, got number 2.5",
    '"x"': 'expected a JSON object, got string "x"',
    "null": "expected a JSON object, got null null",
    "true": "expected a JSON object, got boolean true",
    # Python's parser takes these, the next provider does not.
    '{"a": NaN}': "NaN is not JSON",
    '{"a": Infinity}': "Infinity is not JSON",
    '{"a": -Infinity}': "-Infinity is not JSON",
    **dict.fromkeys(
        ("{", '{"a": }', "{'a': 1}", '{"a": 1,}', '{"a": 1} x', "nonsense"), "at character "
    ),
    '{"a": "' + "x" * 50_000 + '" oops' + "y" * 50_000: "near ",
    # Python limits the digits of integers, against denial of service; that raises a plain ValueError.
    '{"a": ' + "9" * 10_000 + "}": "Exceeds the limit",
    '{"a": ' + "[" * 200_000: "nested more than 100 levels",
    '{"a": ' + "[" * 100 + "]" * 100 + "}": "nested more than 100 levels",
    '{"a": 1e999}': "1e999 is too large for a number",
    # Brackets in a string that is cut off do not count as nesting.
    **{'{"a": "' + "[" * 500 + end: "Unterminated string" for end in ("", "\\", '\\"')},
}


@pytest.mark.parametrize(("text", "why"), NOT_JSON.items(), ids=lambda text: text[:20])
def test_a_text_that_is_no_json_object_is_refused_with_a_short_reason(text, why):
    with pytest.raises(MalformedJSONError) as caught:
        parse_object(text)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 200


def test_arguments_may_be_nested_100_levels_deep():
    assert parse_object('{"a": ' + "[" * 99 + "]" * 99 + "}")
    assert parse_object('{"a": "' + "[" * 500 + '"}') == {"a": "[" * 500}


def test_the_last_of_duplicate_keys_wins():
    """As in the JSON parsers of Python and JavaScript."""
    assert parse_object('{"a": 1, "a": 2}') == {"a": 2}


def test_canonical_json_is_independent_of_key_order_and_white_space():
    left = canonical_json(json.loads('{"b": [1,  2], "a": {"d": 1, "c": 2}}'))
    assert left == canonical_json({"a": {"c": 2, "d": 1}, "b": [1, 2]})
    assert left == '{"a":{"c":2,"d":1},"b":[1,2]}'
    assert canonical_json([1, 2]) != canonical_json([2, 1])


def test_a_value_is_shortened_as_json():
    assert short_json({"a": "\u00e9"}) == '{"a": "\u00e9"}'
    long = short_json("x" * 5000)
    assert long == '"' + "x" * (MAX_LENGTH - 1) + "..."


def test_a_value_that_is_not_json_is_described_by_its_type():
    deep: list = []
    deep.append(deep)
    assert short_json(object()) == "object"
    assert short_json(deep) == "list"
    assert short_json(10**5000) == "int"


def test_a_name_is_bounded():
    assert short_name("add") == "add"
    assert short_name("x" * MAX_LENGTH) == "x" * MAX_LENGTH
    assert short_name("x" * (MAX_LENGTH + 1)) == "x" * MAX_LENGTH + "..."


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ([], "arguments"),
        (["to"], "to"),
        (["to", 0, "address"], "to[0].address"),
        ([0, "a"], "[0].a"),
        (["a", 1, 2], "a[1][2]"),
    ],
)
def test_a_path_is_formatted_as_in_code(parts, path):
    assert format_path(parts) == path


def test_a_path_of_hostile_names_is_bounded():
    """Each name, and the whole: a hostile key is not echoed at length."""
    assert format_path(["map", "k" * 50_000]) == "map." + "k" * MAX_LENGTH + "..."
    assert len(format_path(["name"] * 1000)) == MAX_PATH + 3


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (True, "boolean"),
        (1, "integer"),
        (1.0, "integer"),
        (1.5, "number"),
        (float("inf"), "number"),
        (float("nan"), "number"),
        ("", "string"),
        ({}, "object"),
        ([], "array"),
        (None, "null"),
    ],
)
def test_a_type_has_the_name_that_json_schema_uses(value, name):
    assert json_type(value) == name
