"""Rendering a result ends, whatever the tool returned."""

import dataclasses
import enum
import itertools
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, field_serializer
from tests.growth import is_linear

from treadle.tools import MAX_BYTES, is_plain
from treadle.tools.rendering import MAX_DEPTH, MAX_PARTS, MAX_PLAIN, MAX_TEXT, render


@dataclasses.dataclass
class Pair:
    name: str
    items: Any


@pydantic.dataclasses.dataclass
class Checked:
    name: str
    items: Any


class Page(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    name: str
    items: Iterable[int] | list[Any] = ()

    @field_serializer("name")
    def shout(self, name: str) -> str:
        return name.upper()


class Endless:
    """An iterator without an end."""

    def __iter__(self):
        return self

    def __next__(self):
        return 1


class EndlessList(list):
    def __iter__(self):
        return itertools.count()


class EndlessMapping(Mapping):
    def __getitem__(self, key):
        return 1

    def __len__(self):
        return 1

    def __iter__(self):
        return itertools.count()


class Kind(enum.Enum):
    ENDLESS = Endless()


def tree():
    """An endless iterator of endless iterators."""
    while True:
        yield tree()


ENDLESS = {
    "in a dict": lambda: {"a": itertools.count()},
    "in a list": lambda: [1, itertools.repeat("x")],
    "in a tuple": lambda: (Endless(),),
    "in a set": lambda: {Endless()},
    "in a deque": lambda: deque([Endless()]),
    "in a dataclass": lambda: Pair("x", itertools.count()),
    "in a dataclass of pydantic": lambda: Checked("x", itertools.count()),
    "in a model": lambda: Page(name="x", items=itertools.count()),
    "in an unknown field of a model": lambda: Page(name="x", more=itertools.count()),
    "in a model in a list": lambda: [{"a": Page(name="x", more=[itertools.count()])}],
    "in an enumeration": lambda: [Kind.ENDLESS],
    "in an iterator": tree,
    "in itself, through an iterator": lambda: [itertools.repeat(itertools.count())],
    "of long texts": lambda: {"a": itertools.repeat("x" * 100_000)},
}


@pytest.mark.parametrize("make", ENDLESS.values(), ids=ENDLESS.keys())
def test_an_endless_iterator_anywhere_in_a_value_ends(make):
    assert 10 < len(render(make())) < 3 * MAX_TEXT


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Pair("x", iter([1, 2])), '{"name":"x","items":[1,2]}'),
        (Checked("x", iter([1])), '{"name":"x","items":[1]}'),
        (Page(name="x", items=iter([1, 2])), '{"name":"X","items":[1,2]}'),
        (Page(name="x", more=(iter([1]),)), '{"name":"X","items":[],"more":[[1]]}'),
        ({"a": [Page(name="x")]}, '{"a":[{"name":"X","items":[]}]}'),
        (EndlessList([1, 2]), "[1,2]"),
        (deque([1, "a"]), '[1,"a"]'),
    ],
)
def test_a_value_with_iterators_is_serialized_as_its_type_says(value, text):
    assert render(value) == text


def test_a_mapping_whose_keys_never_end_is_shown_by_its_type():
    assert "EndlessMapping object" in render(EndlessMapping())


def test_rendering_leaves_the_value_as_it_is():
    page = Page(name="x", more=[iter([1])])
    inner = page.more
    render(page)
    assert page.more is inner


def test_an_iterator_that_fails_within_a_value_does_not_fail_the_tool():
    def failing():
        yield 1
        raise ValueError("no")

    assert "generator object" in render({"a": failing()})
    with pytest.raises(ValueError, match="no"):
        render(failing())


def test_a_value_of_very_many_parts_is_rendered_in_part():
    shown = render([1] * 10 * MAX_PARTS)
    assert MAX_BYTES < len(shown) < 3 * MAX_PARTS


def test_a_value_that_contains_itself_or_a_part_many_times_ends():
    value, shared = [], [1]
    value.extend([value] * 50)
    for _ in range(100):
        shared = [shared, shared]
    assert render(value).startswith("[[...]")
    assert len(render(shared)) > MAX_BYTES


def test_rendering_takes_time_linear_in_the_size_of_a_value():
    assert is_linear(lambda n: lambda: render([{"a": Pair("x", [n])} for n in range(n)]), 300)


class Custom(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", True),
        (1, True),
        (None, True),
        ({"a": [1, (2.5, {"b": None})]}, True),
        ("x" * (MAX_TEXT + 1), False),
        ([1] * (MAX_PLAIN + 1), False),
        ([[1] * 100] * 100, False),
        ({1: 2}, False),
        (Custom("x"), False),
        ([Custom("x")], False),
        (EndlessList(), False),
        (itertools.count(), False),
        (Page(name="x"), False),
    ],
)
def test_small_json_data_is_plain(value, expected):
    assert is_plain(value) is expected


@pytest.fixture
def deep_recursion():
    """The recursion limit of a program that has raised it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("deep_recursion")
def test_iterators_nested_without_end_are_read_to_the_maximum_depth():
    made = itertools.count()

    def nested():
        next(made)
        yield nested()

    assert render([nested()]).startswith("[<generator object")
    assert next(made) <= MAX_DEPTH
