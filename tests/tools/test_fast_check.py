"""The fast check accepts only valid arguments, and supports the schemas that most tools have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from treadle import tool
from treadle.tools import compile_check

TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]
NAMES = ["a", "b", "c"]


def objects(inner):
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from(NAMES), inner)},
        optional={
            "required": st.lists(st.sampled_from(NAMES), unique=True),
            "additionalProperties": st.booleans(),
            "description": st.just("d"),
        },
    )


SCHEMAS = st.recursive(
    st.one_of(
        st.sampled_from(TYPES).map(lambda name: {"type": name}),
        st.lists(st.sampled_from(TYPES), min_size=1, unique=True).map(lambda t: {"type": t}),
        st.just({}),
        st.just({"title": "T", "default": 1}),
        st.lists(st.sampled_from(["x", "y", ""]), min_size=1, unique=True).map(
            lambda members: {"type": "string", "enum": members}
        ),
        st.sampled_from([{"enum": [1]}, {"type": "integer", "minimum": 3}, {"const": "x"}]),
        st.sampled_from([{"type": "string", "required": ["a"]}, {"type": "null", "items": {}}]),
        st.just({"anyOf": [{"type": "string"}], "properties": {"a": {"type": "null"}}}),
    ),
    lambda inner: st.one_of(
        objects(inner),
        inner.map(lambda items: {"type": "array", "items": items}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(0, 3), st.sampled_from([0.5, 1.0, "x", "y", "", "z"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*NAMES, "d"]), inner)
    ),
    max_leaves=6,
)


@given(schema=SCHEMAS, values=st.lists(VALUES, min_size=1, max_size=10))
def test_what_is_accepted_is_valid(schema, values):
    check = compile_check(schema)
    validator = Draft202012Validator(schema)
    for value in values:
        if check is not None and check(value):
            assert validator.is_valid(value)


@pytest.mark.parametrize(
    ("schema", "good"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1, "b": 2}),
        ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}, {"a": None}),
        ({"type": "array", "items": {"type": "number"}}, [1, 2.5]),
        ({"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}]}, "x"),
        ({"description": "anything"}, {"a": [1]}),
        ({"type": "string", "format": "date"}, "no date: the format asserts nothing"),
    ],
)
def test_plain_arguments_are_accepted(schema, good):
    assert compile_check(schema)(good)
    assert Draft202012Validator(schema).is_valid(good)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_values_of_other_types_are_not_accepted(value):
    assert not compile_check({"type": "integer"})(value)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"$ref": "#/$defs/x"},
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": "x"},
        {"enum": [1, "x"]},
        {"type": "integer", "enum": [1]},
        {"type": "string", "enum": ["x", 1]},
        {"type": "object", "properties": {"a": {"const": 1}}},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "array", "items": {"not": {}}},
        {"anyOf": [{"type": "string"}, {"maxLength": 1}]},
    ],
)
def test_a_schema_with_other_keywords_is_left_to_jsonschema(schema):
    assert compile_check(schema) is None


def test_arguments_that_the_fast_check_refuses_may_be_valid():
    """JSON Schema accepts 2.0 as an integer; the tool receives it as an int."""

    @tool
    def double(n: int):
        return 2 * n

    problems, arguments = double.validate({"n": 2.0})
    assert problems == []
    assert arguments == {"n": 2}
    assert type(arguments["n"]) is int
    assert double.validate({"n": 2.5})[0] == ["n: expected integer, got number 2.5"]
