"""All that stands for a tool; a broken one is told with its place in the list."""

import pytest
from pydantic import BaseModel, Field, field_validator

from treadle.errors import ToolDefinitionError
from treadle.tools import as_tool, terminal_copy, tool, toolset

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


class Weather(BaseModel):
    """Look up the weather.

    Args:
        city: is described by its field.
    """

    city: str = Field(description="which city")
    days: int = 1

    @field_validator("city")
    @classmethod
    def known(cls, value):
        if value == "Atlantis":
            raise ValueError("it has sunk")
        return value


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


class TestForms:
    """All that stands for a tool."""

    def test_a_tool_is_itself(self):
        assert as_tool(add) is add

    def test_a_function(self):
        def look(a: int): ...

        assert as_tool(look).name == "look"

    def test_a_pydantic_model_whose_fields_are_the_arguments(self):
        made = as_tool(Weather)
        assert (made.name, made.description) == ("Weather", "Look up the weather.")
        assert made.model is Weather
        assert made.fn is None
        assert made.input_schema["properties"]["city"] == {
            "type": "string",
            "description": "which city",
        }
        assert made.problems_of({"city": 5}) == ["city: expected string, got integer 5"]
        assert made.problems_of({"city": "Atlantis"}) == ["city: Value error, it has sunk"]
        assert made.problems_of({"city": "Bonn"}) == []

    @pytest.mark.parametrize(
        "given",
        [
            {"name": "t", "description": "Do.", "input_schema": SCHEMA},
            {"name": "t", "description": "Do.", "inputSchema": SCHEMA, "annotations": {}},
            {"name": "t", "description": "Do.", "parameters": SCHEMA},
            {"type": "function", "name": "t", "description": "Do.", "parameters": SCHEMA},
            {
                "type": "function",
                "function": {"name": "t", "description": "Do.", "parameters": SCHEMA},
            },
        ],
        ids=["anthropic", "mcp", "bare function", "responses", "chat completions"],
    )
    def test_the_dict_of_another_library(self, given):
        made = as_tool(given)
        assert (made.name, made.description, made.input_schema) == ("t", "Do.", SCHEMA)

    def test_a_dict_of_a_name_alone_takes_any_arguments(self):
        made = as_tool({"name": "t", "description": None})
        assert made.description == ""
        assert made.problems_of({"whatever": 1}) == []

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({}, r"^here\.name: expected text, got \{\}"),
            ({"name": 5}, r"^here\.name: expected text"),
            ({"type": "function", "function": None}, r"^here\.name: expected text, got None"),
            (
                {"name": "t", "parameters": "x"},
                r"^here\.input_schema: expected a JSON Schema, got str",
            ),
            (5, "^here: expected a Tool, a function, a pydantic model or a tool dict, got int"),
            ("add", "^here: expected a Tool, .*got str"),
        ],
    )
    def test_anything_else_is_an_error_that_says_where_and_what(self, given, text):
        with pytest.raises(ToolDefinitionError, match=text):
            as_tool(given, "here")


def test_a_toolset_is_by_name_in_order():
    made = toolset([Weather, add, {"name": "t"}])
    assert list(made) == ["Weather", "add", "t"]
    assert made["add"] is add
    assert toolset(None) == {}
    assert list(toolset(iter([add]))) == ["add"]


@pytest.mark.parametrize("given", [add, {"name": "t"}, "add", 5, Weather, lambda: None])
def test_a_toolset_is_a_list_even_of_one(given):
    with pytest.raises(ToolDefinitionError, match=r"^tools: expected a list of tools, got "):
        toolset(given)


def test_two_tools_of_one_name_are_an_error_that_names_the_place():
    with pytest.raises(ToolDefinitionError, match=r"^tools\[2\]: there are two tools named 'add'"):
        toolset([add, Weather, {"name": "add"}])


def test_a_broken_tool_is_told_with_its_place():
    with pytest.raises(ToolDefinitionError, match=r"^tools\[1\]: expected a Tool"):
        toolset([add, 5])


def test_a_terminal_copy_ends_the_run_and_the_original_does_not():
    copy = terminal_copy(add)
    assert (copy.terminal, add.terminal) == (True, False)
    assert copy.problems_of({"a": 1}) == ["arguments: missing required field 'b'"]
    assert copy.bind_call({"a": 1, "b": 2}, lambda: None)() == 3


class TestOptions:
    """`tool` gives options to whatever stands for a tool, and leaves the original alone."""

    OPTIONS = {  # noqa: RUF012 - read alone
        "parallel_safe": False,
        "requires_fresh_input": True,
        "max_parallel": 2,
        "lock": "k",
        "dedupe": False,
        "dedupe_fields": ["a"],
        "volatile": True,
        "idempotent": True,
        "timeout": 2.5,
        "retries": 2,
        "max_uses": 3,
        "requires_approval": True,
        "terminal": True,
        "annotations": {"title": "T"},
        "name": "renamed",
        "description": "Do it.",
    }

    @pytest.fixture(params=["function", "dict", "model", "tool"])
    def given(self, request):
        def add(a: int, b: int): ...

        return {
            "function": add,
            "dict": {"name": "t", "input_schema": SCHEMA},
            "model": Weather,
            "tool": tool(add, timeout=9.0),
        }[request.param]

    def test_every_option_is_taken(self, given):
        made = tool(given, **self.OPTIONS)
        assert {name: getattr(made, name) for name in self.OPTIONS} == self.OPTIONS

    def test_it_is_a_decorator_as_well(self, given):
        made = tool(**self.OPTIONS)(given)
        assert {name: getattr(made, name) for name in self.OPTIONS} == self.OPTIONS

    def test_the_rest_stays_as_it_was(self, given):
        made, plain = tool(given, max_uses=3), tool(given)
        assert (made.name, made.description) == (plain.name, plain.description)
        assert made.input_schema == plain.input_schema
        assert (made.fn, made.model, made.timeout) == (plain.fn, plain.model, plain.timeout)
        assert plain.max_uses is None

    def test_it_still_checks_arguments_as_before(self):
        assert tool(Weather, max_uses=1).problems_of({"city": "Atlantis"}) == [
            "city: Value error, it has sunk"
        ]
        assert tool(add, max_uses=1).problems_of({"a": 1}) == [
            "arguments: missing required field 'b'"
        ]

    def test_a_wrong_one_is_told(self, given):
        with pytest.raises(ToolDefinitionError, match="max_uses must be a whole number"):
            tool(given, max_uses=-1)

    def test_one_that_does_not_exist_is_an_error(self, given):
        with pytest.raises(TypeError, match="max_use"):
            tool(given, max_use=1)

    def test_annotations_are_defaults_here_too(self, given):
        made = tool(given, annotations={"destructiveHint": True, "idempotentHint": True})
        assert (made.parallel_safe, made.idempotent) == (False, True)

    def test_and_what_is_said_outright_wins(self, given):
        made = tool(given, parallel_safe=True, annotations={"destructiveHint": True})
        assert made.parallel_safe

    def test_those_of_a_dict_are_taken_with_it(self):
        given = {"name": "t", "inputSchema": SCHEMA, "annotations": {"destructiveHint": True}}
        assert tool(given, timeout=5.0).parallel_safe is False
        assert as_tool(given).annotations == {"destructiveHint": True}

    def test_those_of_an_object_of_another_library_are_read(self):
        class Hints(BaseModel):
            readOnlyHint: bool = True

        made = as_tool({"name": "t", "annotations": Hints()})
        assert (made.annotations, made.idempotent) == ({"readOnlyHint": True}, True)

    @pytest.mark.parametrize("hints", [None, "safe", 5])
    def test_what_is_no_annotations_is_left_out(self, hints):
        assert as_tool({"name": "t", "annotations": hints}).annotations == {}


@pytest.mark.parametrize(
    "made", [add, tool(add, timeout=5.0), terminal_copy(add)], ids=["made", "with options", "terminal"]
)  # fmt: skip
def test_a_tool_looks_like_its_function_to_whoever_asks(made):
    assert (made.__name__, made.__doc__) == ("add", "Add two integers.")
    assert made.__module__ == add.fn.__module__
    assert made(2, 3) == 5
