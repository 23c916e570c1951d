"""The options of tools: their valid values, and their defaults from MCP's annotations."""

import pytest

from treadle.errors import ToolDefinitionError
from treadle.shown import shown
from treadle.tools import Tool

POSITIVE = [0, -1, 1.5, "2", True]
FLAGS = [1, 0, "yes", None]


async def coroutine_function(_arguments):
    """An async function, where the option takes a sync one."""


WRONG = {
    "timeout": ("above 0", [0, -1, float("nan"), "5", True]),
    "retries": ("a whole number of at least 0", [-1, 1.5, "2", None, True]),
    "max_parallel": ("a whole number of at least 1", POSITIVE),
    "max_uses": ("a whole number of at least 0", [-1, 1.5, "2", True]),
    "parallel_safe": ("True or False", [1, "yes"]),
    "read_only": ("True or False", [1, "yes"]),
    "idempotent": ("True or False", [1, "yes"]),
    "requires_fresh_input": ("True or False", FLAGS),
    "dedupe": ("'evidence', 'strict' or 'off'", [True, False, "loose", ["off"]]),
    "volatile": ("True or False", FLAGS),
    "terminal": ("True or False", FLAGS),
    "dedupe_fields": ("names of fields", ["q", [1], ("q", None), {"q"}, 5]),
    "lock": (
        "a key, or a sync function of the arguments that makes one",
        [5, ["a"], True, coroutine_function],
    ),
    "requires_approval": (
        "True, False, or a sync function of the arguments",
        [1, "yes", None, coroutine_function],
    ),
}
RIGHT = {
    "timeout": [None, 1, 0.5, float("inf")],
    "retries": [0, 3],
    "max_parallel": [None, 1, 8],
    "max_uses": [None, 0, 3],
    "parallel_safe": [True, False],
    "read_only": [True, False],
    "idempotent": [True, False],
    "requires_fresh_input": [True, False],
    "dedupe": [None, "evidence", "strict", "off"],
    "volatile": [True, False],
    "terminal": [True, False],
    "dedupe_fields": [None, [], ["q"], ("q", "lang")],
    "lock": [None, "k", lambda arguments: "k"],
    "requires_approval": [True, False, lambda arguments: True],
}


def pairs(table):
    return [(option, value) for option, values in table.items() for value in values]


@pytest.mark.parametrize(
    ("option", "value"), pairs({option: values for option, (_, values) in WRONG.items()})
)
def test_an_invalid_option_is_an_error_with_tool_expectation_and_value(option, value):
    expected, _ = WRONG[option]
    with pytest.raises(ToolDefinitionError) as caught:
        Tool("t", **{option: value})
    assert str(caught.value) == f"tool 't': {option} must be {expected}, not {shown(value)}"


@pytest.mark.parametrize(("option", "value"), pairs(RIGHT))
def test_a_valid_option_is_kept(option, value):
    assert getattr(Tool("t", **{option: value}), option) is value


def test_by_default_a_tool_is_parallel_safe_and_has_no_limits():
    made = Tool("t")
    assert made.parallel_safe
    assert made.read_only is False
    assert made.dedupe is None  # as the loop says
    assert made.requires_approval is False
    assert not any(
        (made.idempotent, made.requires_fresh_input, made.volatile, made.terminal, made.retries)
    )
    bounds = (made.max_parallel, made.max_uses, made.lock, made.dedupe_fields, made.timeout)
    assert bounds == (None,) * 5


class TestAnnotations:
    """MCP's annotations are the defaults; an explicit option wins."""

    @pytest.mark.parametrize(
        ("annotations", "parallel_safe", "idempotent"),
        [
            ({}, True, False),
            ({"readOnlyHint": True}, True, True),
            ({"readOnlyHint": False}, True, False),
            ({"destructiveHint": True}, False, False),
            ({"destructiveHint": False}, True, False),
            ({"idempotentHint": True}, True, True),
            ({"idempotentHint": True, "destructiveHint": True}, False, True),
            ({"readOnlyHint": True, "destructiveHint": True}, True, True),
            ({"readOnlyHint": None, "destructiveHint": None, "title": "T"}, True, False),
        ],
    )
    def test_they_are_the_defaults_of_options(self, annotations, parallel_safe, idempotent):
        """A tool that only reads is not destructive, whatever its other hints."""
        made = Tool("t", annotations=annotations)
        assert (made.parallel_safe, made.idempotent) == (parallel_safe, idempotent)

    @pytest.mark.parametrize(
        ("options", "read_only", "others"),
        [
            ({"annotations": {"readOnlyHint": True}}, True, True),
            ({"annotations": {"readOnlyHint": True}, "read_only": False}, False, False),
            ({"annotations": {"destructiveHint": True}, "read_only": True}, True, True),
            ({"annotations": {"destructiveHint": True}}, False, False),
        ],
    )
    def test_a_read_only_tool_is_idempotent_and_its_other_hints_do_not_count(
        self, options, read_only, others
    ):
        made = Tool("t", **options)
        assert made.read_only is read_only
        assert made.idempotent is others

    @pytest.mark.parametrize("value", [True, False])
    @pytest.mark.parametrize("hint", [True, False])
    def test_an_explicit_value_wins(self, value, hint):
        annotations = {"readOnlyHint": hint, "destructiveHint": hint, "idempotentHint": hint}
        made = Tool("t", parallel_safe=value, idempotent=value, annotations=annotations)
        assert (made.parallel_safe, made.idempotent) == (value, value)

    def test_they_are_copied(self):
        given = {"title": "T"}
        made = Tool("t", annotations=given)
        given["title"] = "other"
        assert made.annotations == {"title": "T"}


@pytest.mark.parametrize(
    "options",
    [
        {"parallel_safe": False},
        {"annotations": {"destructiveHint": True}},
        {"max_parallel": 8},
        {"max_uses": 100},
        {"requires_approval": True},
        {"requires_approval": lambda arguments: False},
        {"requires_fresh_input": True},
    ],
)
def test_a_tool_that_a_plan_has_to_check_is_not_plain(options):
    assert not Tool("t", **options).is_plain


@pytest.mark.parametrize(
    "options",
    [{}, {"lock": "k"}, {"timeout": 1, "retries": 2}, {"volatile": True}, {"dedupe": "off"}],
)
def test_a_tool_that_a_plan_need_not_check_is_plain(options):
    assert Tool("t", **options).is_plain


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, None),
        ({"dedupe": "strict"}, "strict"),
        ({"volatile": True}, "off"),
        ({"dedupe": "strict", "volatile": True}, "off"),
        ({"idempotent": True, "annotations": {"readOnlyHint": True}}, None),
    ],
)
def test_volatile_is_off_and_side_effects_say_nothing_of_duplicates(options, mode):
    assert Tool("t", **options).dedupe_mode == mode
