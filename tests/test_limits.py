"""Limits: positive numbers or none; an invalid one is an error with its name."""

import dataclasses

import pytest

from treadle.errors import OptionError
from treadle.limits import LIMIT_NAMES, Limits, Remaining

OPTIONAL = LIMIT_NAMES - {"max_iterations", "max_parallel_calls", "max_depth"}


def test_the_defaults():
    limits = Limits()
    assert (limits.max_iterations, limits.max_parallel_calls, limits.max_depth) == (10, 8, 5)
    assert all(getattr(limits, name) is None for name in OPTIONAL)


def test_the_names_are_the_fields_that_are_no_policies():
    policies = {"on_limit", "unmeasured", "cost_of", "show_budget"}
    assert {field.name for field in dataclasses.fields(Limits)} - policies == LIMIT_NAMES


def test_each_limit_that_is_used_up_is_among_what_remains():
    names = {f"max_{field.name}" for field in dataclasses.fields(Remaining)}
    assert names >= LIMIT_NAMES - {"max_parallel_calls", "max_depth"}


@pytest.mark.parametrize("name", sorted(LIMIT_NAMES - {"max_seconds", "max_cost"}))
@pytest.mark.parametrize("value", [-1, 1.5, "5", True, float("nan"), [1]])
def test_a_count_is_a_whole_number(name, value):
    least = 0 if name in {"max_tool_calls", "max_depth"} else 1
    with pytest.raises(OptionError) as caught:
        Limits(**{name: value})
    assert str(caught.value) == (
        f"{name}: expected a whole number of at least {least}, got {value!r}"
    )


@pytest.mark.parametrize(("name", "unit"), [("max_seconds", "seconds"), ("max_cost", "US dollars")])
@pytest.mark.parametrize("value", [-0.1, "5", True, float("nan"), int])
def test_seconds_and_a_cost_are_numbers(name, unit, value):
    with pytest.raises(
        OptionError, match=f"^{name}: expected a number of {unit} of at least 0, got "
    ):
        Limits(**{name: value})


@pytest.mark.parametrize("name", sorted(OPTIONAL))
def test_none_is_no_limit(name):
    assert getattr(Limits(**{name: None}), name) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_iterations", None),
        ("max_iterations", 0),
        ("max_parallel_calls", None),
        ("max_parallel_calls", 0),
        ("max_depth", None),
    ],
)
def test_a_required_limit_is_neither_none_nor_zero(name, value):
    with pytest.raises(OptionError, match=f"^{name}: expected a whole number of at least"):
        Limits(**{name: value})


def test_limits_of_zero_tool_calls_and_zero_seconds_are_valid():
    assert Limits(max_tool_calls=0, max_seconds=0).max_tool_calls == 0
    assert Limits(max_seconds=0.5).max_seconds == 0.5
    assert Limits(max_seconds=float("inf")).max_seconds == float("inf")
