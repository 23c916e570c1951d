"""JSON Schema: invalid schemas are definition errors, violations are texts for a model, checked in linear time."""

import dataclasses
import datetime as dt
import json
import socket
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import AfterValidator, BaseModel, Field, field_validator
from tests.growth import is_linear

from treadle.errors import ToolDefinitionError
from treadle.messages.json_text import MAX_COUNTED
from treadle.tools import Tool, as_tool, tool
from treadle.tools.validation import SchemaValidator


def problems(properties, arguments, **more):
    schema = {"type": "object", "properties": properties, **more}
    return SchemaValidator(schema, "tool 't': input_schema").problems_of(arguments)


ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}}, "required": ["street"]}

OF_VALUES = [
    ({"type": "integer"}, "x", 'expected integer, got string "x"'),
    ({"type": ["integer", "null"]}, "x", 'expected integer or null, got string "x"'),
    ({"type": "integer"}, True, "expected integer, got boolean true"),
    ({"type": "number"}, "5", 'expected number, got string "5"'),
    ({"enum": ["x", 1, None]}, "y", 'expected one of "x", 1, null, got "y"'),
    ({"const": "x"}, "y", 'expected one of "x", got "y"'),
    ({"minimum": 3}, 1, "1 is less than the minimum of 3"),
    ({"pattern": "^x"}, "y", "'y' does not match '^x'"),
    (ADDRESS, {}, "missing required field 'street'"),
    (
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "x",
        '"x" fits none of the alternatives; nearest: expected integer, got string "x"',
    ),
    (
        {"anyOf": [{"type": "integer"}, ADDRESS]},
        {"street": 5},
        '{"street": 5} fits none of the alternatives; nearest: expected string, got integer 5',
    ),
]
CLOSED = {"additionalProperties": False}
OF_ARGUMENTS = [
    ({}, {}, {"required": ["a"]}, "arguments: missing required field 'a'"),
    ({"a": {}, "b": {}}, {"c": 1}, CLOSED, "arguments: unknown field 'c'; the fields are a, b"),
    ({}, {"c": 1}, CLOSED, "arguments: unknown field 'c'; the fields are none"),
    (
        {"to": {"type": "array", "items": ADDRESS}},
        {"to": [{"street": "x"}, {"street": 5}]},
        {},
        "to[1].street: expected string, got integer 5",
    ),
    *(({"a": schema}, {"a": value}, {}, f"a: {text}") for schema, value, text in OF_VALUES),
]


@pytest.mark.parametrize(("properties", "arguments", "more", "text"), OF_ARGUMENTS)
def test_a_violation_has_its_path_the_expectation_and_the_value(properties, arguments, more, text):
    assert problems(properties, arguments, **more) == [text]


def test_valid_arguments_have_no_problem():
    assert problems({"a": {"type": "integer"}}, {"a": 5, "more": 1}, required=["a"]) == []


def test_every_violation_is_listed_in_a_stable_order():
    found = problems(
        {"b": {"type": "string"}, "a": {"type": "string"}}, {"a": 1, "b": 2}, required=["y", "x"]
    )
    assert found == [
        "a: expected string, got integer 1",
        "arguments: missing required field 'x'",
        "arguments: missing required field 'y'",
        "b: expected string, got integer 2",
    ]


def test_a_missing_field_is_named_even_if_another_has_the_same_prefix():
    names = ["na'me", "name", "name2"]
    found = problems({}, {}, required=names)
    assert found == [f"arguments: missing required field {name!r}" for name in names]


def test_hostile_values_and_names_are_shortened():
    """A model that writes a megabyte into an argument does not get it back."""
    huge = "x" * 1_000_000
    found = problems(
        {
            "type": {"type": "integer"},
            "enum": {"enum": [1]},
            "const": {"const": 1},
            "pattern": {"pattern": "^y"},
            "any": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        {
            "type": huge,
            "enum": huge,
            "const": huge,
            "pattern": huge,
            "any": huge,
            "map": {huge: huge},
            huge: 1,
        },
        additionalProperties=False,
    )
    assert len(found) == 7
    assert max(map(len, found)) < 400


def test_of_many_unknown_fields_five_are_named():
    found = problems({}, {f"k{n}": 1 for n in range(100)}, additionalProperties=False)
    assert found == ["arguments: unknown field 'k0', 'k1', 'k2', 'k3', 'k4'; the fields are none"]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        *(
            (schema, ": expected a schema of type 'object', got")
            for schema in ({}, {"type": "array"}, {"type": ["object"]}, {"anyOf": []})
        ),
        (
            {"type": "object", "properties": {"a": {"type": "text"}}},
            r"\['properties'\]\['a'\]\['type'\]: 'text'",
        ),
    ],
)
def test_an_invalid_schema_is_refused_with_the_path_of_the_error(schema, text):
    with pytest.raises(ToolDefinitionError, match=f"^here{text}"):
        SchemaValidator(schema, "here")


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/Missing", "other.json", "https://example.com/schema.json", "file:///etc/passwd"],
)
def test_a_reference_that_leads_out_of_the_schema_is_refused_and_never_fetched(
    reference, monkeypatch
):
    def connect(*_):
        raise AssertionError("a schema was fetched")

    monkeypatch.setattr(socket.socket, "connect", connect)
    schema = {"type": "object", "properties": {"a": {"items": [{"$ref": reference}]}}}
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"  # where items may be a list
    with pytest.raises(ToolDefinitionError) as caught:
        SchemaValidator(schema, "here")
    text = f"here: the reference {reference!r} cannot be resolved within the schema"
    assert str(caught.value) == text


def test_a_reference_of_another_kind_is_not_fetched_either(monkeypatch):
    """What is found only while arguments are checked is a problem of the check, and never a request."""

    fetched = []

    def fetch(request, *_, **__):
        fetched.append(request)
        raise OSError

    monkeypatch.setattr("urllib.request.urlopen", fetch)
    remote = {"$dynamicRef": "https://example.com/schema.json"}
    tool = Tool("t", input_schema={"type": "object", "properties": {"a": remote}})
    (problem,) = tool.problems_of({"a": 1})
    assert problem.startswith("arguments: they cannot be checked: ")
    assert fetched == []


def test_a_reference_within_the_schema_is_followed():
    to = {"$ref": "#/$defs/Address"}
    found = problems({"to": to}, {"to": {"street": 5}}, **{"$defs": {"Address": ADDRESS}})
    assert found == ["to.street: expected string, got integer 5"]


def test_a_schema_that_refers_to_itself_is_followed_as_deep_as_the_arguments_go():
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}
    validator = SchemaValidator(tree, "here")
    assert validator.problems_of({"kids": [{"kids": []}]}) == []
    found = validator.problems_of({"kids": [{"kids": 5}]})
    assert found == ["kids[0].kids: expected array, got integer 5"]


def test_a_schema_is_checked_by_the_draft_it_names():
    """In draft 7 a list of items is a tuple; in 2020-12, the default, it is no schema at all."""
    items = {"type": "object", "properties": {"a": {"items": [{"type": "integer"}]}}}
    with pytest.raises(ToolDefinitionError):
        SchemaValidator(items, "here")
    draft7 = {"$schema": "http://json-schema.org/draft-07/schema#", **items}
    found = SchemaValidator(draft7, "here").problems_of({"a": ["x"]})
    assert found == ['a[0]: expected integer, got string "x"']


def deep(levels):
    value = {}
    for _ in range(levels):
        value = {"kids": [value]}
    return value


def test_arguments_that_make_the_check_raise_are_a_problem_of_the_call():
    """The model wrote them, so the call is answered and the run continues."""
    properties = {"kids": {"type": "array", "items": {"$ref": "#"}}}
    tool = Tool("t", input_schema={"type": "object", "properties": properties})
    (problem,) = tool.problems_of(deep(400))
    assert problem.startswith("arguments: they cannot be checked: ")
    assert len(problem) < 200


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([], True),
        ([1, "1", True, None, [], {}, [[]], [{}], False, 0, ""], True),
        ([["1"], 1, "True", -1, "-1"], True),
        ([1, 1.0], False),
        ([[1, {"a": [2]}], [1.0, {"a": [2.0]}]], False),
        ([[1], [True]], True),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([{"a": 1}, {"a": 2}], True),
        ("xx", True),
    ],
)
def test_unique_items_are_those_that_differ_as_json(items, is_unique):
    found = problems({"a": {"uniqueItems": True}}, {"a": items})
    assert found == ([] if is_unique else [f"a: {json.dumps(items)} has non-unique elements"])
    assert problems({"a": {"uniqueItems": False}}, {"a": [1, 1]}) == []


@pytest.mark.parametrize("keyword", ["default", "const", "examples", "enum"])
def test_a_value_in_a_schema_may_look_like_a_reference(keyword):
    value = {"$ref": "#/nowhere"}
    part = {keyword: [value] if keyword in {"enum", "examples"} else value}
    assert Tool("t", input_schema={"type": "object", "properties": {"a": part}}).name == "t"


def test_a_field_may_be_called_like_a_reference():
    part = {"type": "object", "properties": {"$ref": {"$ref": "#/$defs/Missing"}}}
    with pytest.raises(ToolDefinitionError, match="'#/\\$defs/Missing' cannot be resolved"):
        SchemaValidator(part, "here")


def test_a_reference_within_a_part_that_has_an_id_leads_into_that_part():
    part = {
        "$id": "https://example.com/part",
        "$ref": "#/$defs/Count",
        "$defs": {"Count": {"type": "integer"}},
    }
    assert problems({"a": part}, {"a": "x"}) == ['a: expected integer, got string "x"']


def test_a_field_that_matches_a_pattern_is_not_named_as_unknown():
    schema = {"type": "object", "patternProperties": {"^x-": {}}, "additionalProperties": False}
    (problem,) = Tool("t", input_schema=schema).problems_of({"x-a": 1, "y": 2})
    assert problem == "arguments: unknown field 'y'; the fields are none"


def test_a_schema_of_draft_3_is_checked_by_its_rules():
    schema = {
        "$schema": "http://json-schema.org/draft-03/schema#",
        "type": "object",
        "properties": {"a": {"type": "any", "required": True}},
    }
    tool = Tool("t", input_schema=schema)
    assert tool.problems_of({"a": 1}) == []
    assert tool.problems_of({}) == ["a: missing required field 'a'"]


@pytest.mark.parametrize(
    ("divisor", "value", "is_multiple"),
    [
        (0.01, 19.99, True),
        (0.01, 19.995, False),
        (0.1, 0.3, True),
        (0.1, 10**400, True),
        (0.1, 1e300, True),
        (0.1, 1e-300, False),
        (1e-5, 0.00007, True),
        (3, 10**30 + 2, True),
        (3, 10**30 + 1, False),
        (1, 1.0, True),
        (1, -0.0, True),
        (2.5, -7.5, True),
        (2, True, True),  # no number, so that the keyword says nothing of it
        (0.5, float("inf"), False),
        (0.5, float("nan"), False),
    ],
)
def test_a_multiple_is_one_of_the_decimals_as_they_are_written(divisor, value, is_multiple):
    schema = {"type": "object", "properties": {"a": {"multipleOf": divisor}}}
    problems = Tool("t", input_schema=schema).problems_of({"a": value})
    assert [problem[:3] for problem in problems] == ([] if is_multiple else ["a: "])


@dataclasses.dataclass
class Point:
    x: int


class Even(BaseModel):
    n: int

    @field_validator("n")
    def check(cls, n):
        return n


class Chain(BaseModel):
    following: "Chain | None" = None


def take_tags(tags: set[str]): ...
def take_points(points: list[Point]): ...
def take_any(values: list[int | str | None]): ...
def take_nothing(): ...


MANY = {
    "items of several types": (take_tags, lambda n: {"tags": [1, "a", None] * n}),
    "objects as items": (take_tags, lambda n: {"tags": [{"a": i} for i in range(n)]}),
    "numbers with equal hashes": (
        {
            "name": "t",
            "input_schema": {"type": "object", "properties": {"a": {"uniqueItems": True}}},
        },
        lambda n: {"a": [i * (2**61 - 1) for i in range(n)]},
    ),
    "invalid objects": (take_points, lambda n: {"points": [{"y": 1}] * n}),
    "no alternative fits": (take_any, lambda n: {"values": [[]] * n}),
    "unknown fields": (take_nothing, lambda n: {f"k{i}": i for i in range(n)}),
    "a nested list": (take_any, lambda n: {"values": [[[[1] * n]]]}),
}


@pytest.mark.parametrize(("tool_like", "arguments"), MANY.values(), ids=MANY.keys())
def test_the_check_takes_time_linear_in_the_size_of_the_arguments(tool_like, arguments):
    checked = as_tool(tool_like, "here")

    def make(size):
        made = arguments(size)
        return lambda: checked.problems_of(made)

    assert is_linear(make, 500)


def test_missing_fields_are_found_in_time_linear_in_their_number():
    def make(size):
        names = [f"n{i}" for i in range(size)]
        checked = Tool("t", input_schema={"type": "object", "required": names})
        return lambda: checked.problems_of({})

    assert is_linear(make, 1_000)


@pytest.mark.parametrize(
    ("fn", "arguments"),
    [(take_any, {"values": [[]] * 1_000}), (take_points, {"points": [{"x": "1.5"}] * 1_000})],
)
def test_of_many_violations_the_first_are_found(fn, arguments):
    assert len(tool(fn).problems_of(arguments)) == MAX_COUNTED


NODE = {"$ref": "#/$defs/Node"}
TREE = {
    "type": "object",
    "properties": {"root": NODE},
    "$defs": {
        "Node": {
            "anyOf": [
                {"type": "object", "properties": {"a": NODE}, "required": ["a"]},
                {"type": "object", "properties": {"a": NODE}, "required": ["a", "b"]},
            ]
        }
    },
}


def nested(depth):
    return {"a": nested(depth - 1)} if depth else 5


def test_alternatives_that_lead_back_to_themselves_end():
    """Each level doubles the work; without a bound, a depth of 60 takes longer than the age of the earth."""
    (problem,) = Tool("t", input_schema=TREE).problems_of({"root": nested(60)})
    assert problem == "arguments: they are too deeply nested to be checked against their schema"


def test_the_bound_does_not_affect_arguments_that_can_be_checked():
    assert len(Tool("t", input_schema=TREE).problems_of({"root": nested(5)})) == 1
    wide = {
        "type": "object",
        "properties": {"a": {"items": {"anyOf": [{"const": n} for n in range(200)]}}},
    }
    assert Tool("t", input_schema=wide).problems_of({"a": [199] * 300}) == []


CHAINED = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A"}},
    "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}]}, "B": {}},
}


def take_chain(chain: Chain): ...
def take_even(even: Even): ...
def take_plain(n: int, at: dt.datetime, path: Path, points: list[Point]): ...
def take_positive(n: Annotated[int, Field(gt=0)]): ...
def take_checked(n: Annotated[int, AfterValidator(lambda n: n)]): ...


@pytest.mark.parametrize(
    ("tool_like", "is_slow"),
    [
        (take_chain, True),
        (take_even, True),
        (take_checked, True),
        (Even, True),
        (Point, False),
        (take_plain, False),
        (take_positive, False),
        ({"name": "t", "input_schema": TREE}, True),
        ({"name": "t", "input_schema": {**TREE, "properties": {"root": {"$ref": "#"}}}}, True),
        (
            {
                "name": "t",
                "input_schema": {"type": "object", "properties": {"a": {"pattern": "x"}}},
            },
            False,
        ),
        ({"name": "t", "input_schema": CHAINED}, False),
    ],
)
def test_a_check_may_be_slow_if_a_type_has_validators_or_the_schema_is_recursive(
    tool_like, is_slow
):
    assert as_tool(tool_like, "here").is_slow_to_check is is_slow


# The quick check

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
        st.just({"type": "string", "enum": []}),
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


def accepts(schema, value):
    whole = {"type": "object", "properties": {"a": schema}}
    return SchemaValidator(whole, "here").accepts({"a": value})


@given(schema=SCHEMAS, values=st.lists(VALUES, min_size=1, max_size=10))
def test_what_the_quick_check_accepts_is_valid(schema, values):
    validator = Draft202012Validator(schema)
    for value in values:
        assert validator.is_valid(value) or not accepts(schema, value)


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
def test_plain_arguments_pass_the_quick_check(schema, good):
    assert accepts(schema, good)
