"""All that stands for a tool; a broken one is told with its place in the list."""

import pytest
from pydantic import BaseModel, Field, field_validator

from treadle.types import ToolDefinitionError, as_tool, terminal_copy, tool, toolset

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
    assert copy.bound({"a": 1, "b": 2}, lambda: None)() == 3
