"""The check of arguments takes time linear in their size, whatever the model wrote."""

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, Field, field_validator
from tests.growth import is_linear

from treadle.messages import MAX_COUNTED
from treadle.tools import Tool, as_tool, tool


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


@pytest.mark.parametrize(("given", "arguments"), MANY.values(), ids=MANY.keys())
def test_the_check_takes_time_linear_in_the_size_of_the_arguments(given, arguments):
    checked = as_tool(given, "here")

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


def take_chain(chain: Chain): ...
def take_even(even: Even): ...
def take_plain(n: int, at: dt.datetime, path: Path, points: list[Point]): ...
def take_positive(n: Annotated[int, Field(gt=0)]): ...
def take_checked(n: Annotated[int, AfterValidator(lambda n: n)]): ...


@pytest.mark.parametrize(
    ("given", "is_slow"),
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
        (
            {
                "name": "t",
                "input_schema": {
                    "type": "object",
                    "properties": {"a": {"$ref": "#/$defs/A"}},
                    "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}]}, "B": {}},
                },
            },
            False,
        ),
    ],
)
def test_a_check_may_be_slow_if_a_type_has_validators_or_the_schema_is_recursive(given, is_slow):
    assert as_tool(given, "here").is_slow_to_check is is_slow
