"""Dataclasses that are quick to construct: what `help` and `inspect.signature` show of them."""

import copy
import dataclasses
import inspect
import pickle
import pydoc

import pytest

import treadle
from treadle.fast_dataclass import fast_dataclass, fast_dataclass_kw
from treadle.tools import Plan

CLASSES = [
    getattr(treadle, name)
    for name in sorted(treadle.__all__)
    if inspect.isclass(getattr(treadle, name))
]


assert len(CLASSES) > 50


@fast_dataclass
class Point:
    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list)
    at: dict[str, int] = dataclasses.field(default_factory=lambda: {"a": 1})


@fast_dataclass_kw
class Named:
    tags: tuple[str, ...] = dataclasses.field(default_factory=tuple)


def test_a_signature_shows_the_defaults():
    assert str(inspect.signature(Point)) == (
        "(x: int, y: int = 2, tags: list[str] = [], at: dict[str, int] = {'a': 1}) -> None"
    )
    assert str(inspect.signature(Named)) == "(*, tags: tuple[str, ...] = ()) -> None"
    assert "not_run: 'Mapping[str, NotRun]' = {}" in str(inspect.signature(Plan))


def test_each_object_has_its_own_default():
    first, second = Point(1), Point(1)
    assert first == second
    assert first.tags is not second.tags
    assert Point(1, tags=["a"]).tags == ["a"]
    assert dataclasses.replace(first, x=3) == Point(3)


@dataclasses.dataclass(frozen=True)
class Labelled(Point):
    label: str = "none"


def pickled(one):
    return pickle.loads(pickle.dumps(one))  # noqa: S301 - made here


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_a_copy_of_a_subclass_has_its_fields(copied):
    assert copied(Labelled(1, label="red")) == Labelled(1, label="red")
    assert copied(Labelled(1, label="red")).label == "red"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_the_help_of_a_public_class_shows_no_sentinel(cls):
    text = pydoc.render_doc(cls, renderer=pydoc.plaintext)
    heading, *_ = text.partition("Methods defined")
    shown = [line for line in text.splitlines() if "__init__(" in line] + [heading]
    assert not [line for line in shown if "MISSING" in line or " object at 0x" in line]
