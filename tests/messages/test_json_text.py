"""Parsing and formatting JSON that a model wrote: no text raises or hangs, and no value is coerced."""

import json

import pytest

from treadle.messages import (
    MAX_LENGTH,
    MAX_PATH,
    MalformedJSONError,
    canonical_json,
    format_path,
    json_type,
    parse_object,
    short_json,
    short_name,
)


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_white_space_counts_as_no_arguments(text):
    assert parse_object(text) == {}


def test_an_object_is_parsed():
    assert parse_object(' {"a": [1, 2.5, null, true], "b": {"c": "\u00e9"}} ') == {
        "a": [1, 2.5, None, True],
        "b": {"c": "\u00e9"},
    }


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[]", "array []"),
        ("5", "integer 5"),
        ("2.5", "number 2.5"),
        ('"x"', 'string "x"'),
        ("null", "null null"),
        ("true", "boolean true"),
    ],
)
def test_json_that_is_not_an_object_is_refused_with_its_type(text, kind):
    with pytest.raises(MalformedJSONError, match="expected a JSON object, got ") as caught:
        parse_object(text)
    assert str(caught.value).endswith(kind)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_json_does_not_have_are_refused(constant):
    """Python's parser takes them, the next provider does not."""
    with pytest.raises(MalformedJSONError) as caught:
        parse_object(f'{{"a": {constant}}}')
    assert str(caught.value) == f"{constant} is not JSON"


@pytest.mark.parametrize(
    "text", ["{", '{"a": }', "{'a': 1}", '{"a": 1,}', '{"a": 1} x', "nonsense"]
)
def test_malformed_json_is_refused_with_the_position(text):
    with pytest.raises(MalformedJSONError, match=r"at character \d+, near "):
        parse_object(text)


def test_the_quoted_text_around_an_error_is_bounded():
    text = '{"a": "' + "x" * 50_000 + '" oops' + "y" * 50_000
    with pytest.raises(MalformedJSONError) as caught:
        parse_object(text)
    assert len(str(caught.value)) < 200


def test_a_number_of_thousands_of_digits_is_refused():
    """Python limits the digits of integers, against denial of service; that raises a plain ValueError."""
    with pytest.raises(MalformedJSONError) as caught:
        parse_object('{"a": ' + "9" * 10_000 + "}")
    assert len(str(caught.value)) <= MAX_LENGTH


def test_deep_nesting_is_refused():
    with pytest.raises(MalformedJSONError, match="nested more than 100 levels"):
        parse_object('{"a": ' + "[" * 200_000)


def test_arguments_may_be_nested_100_levels_deep():
    """Brackets within a string are not nesting."""
    assert parse_object('{"a": ' + "[" * 99 + "]" * 99 + "}")
    with pytest.raises(MalformedJSONError, match="nested more than 100 levels"):
        parse_object('{"a": ' + "[" * 100 + "]" * 100 + "}")
    assert parse_object('{"a": "' + "[" * 500 + '"}') == {"a": "[" * 500}


def refused(text):
    with pytest.raises(MalformedJSONError, match="Unterminated string"):
        parse_object(text)


@pytest.mark.parametrize("end", ["", "\\", '\\"'])
def test_brackets_in_a_string_that_is_cut_off_do_not_count_as_nesting(end):
    refused('{"a": "' + "[" * 500 + end)


def test_a_number_that_overflows_is_refused():
    with pytest.raises(MalformedJSONError, match="1e999 is too large for a number"):
        parse_object('{"a": 1e999}')


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
