"""Every form of a tool definition; an invalid one is an error with its index in the list."""

import pytest
from pydantic import BaseModel, Field, field_validator

from treadle.errors import ToolDefinitionError
from treadle.tools import as_tool, tool, toolset

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
    """Every form of a tool definition."""

    def test_a_tool_is_itself_and_a_function_becomes_one(self):
        assert as_tool(add) is add
        assert as_tool(add.fn).name == "add"

    def test_a_pydantic_model_whose_fields_are_the_arguments(self):
        made = as_tool(Weather)
        assert (made.name, made.description) == ("Weather", "Look up the weather.")
        assert made.output_of({"city": "Rome"}) == Weather(city="Rome")
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

    def test_a_dict_with_only_a_name_accepts_any_arguments(self):
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
                "^tool 't': input_schema: expected a JSON Schema, got str",
            ),
            (
                5,
                "^here: expected a Tool, a function, a pydantic model, a tool dict or an MCP tool, got int",
            ),
            ("add", "^here: expected a Tool, .*got str"),
        ],
    )
    def test_anything_else_is_an_error_with_its_place_and_type(self, given, text):
        with pytest.raises(ToolDefinitionError, match=text):
            as_tool(given, "here")


def test_a_toolset_is_by_name_in_order():
    made = toolset([Weather, add, {"name": "t"}])
    assert list(made) == ["Weather", "add", "t"]
    assert made["add"] is add
    assert toolset(None) == {}
    assert list(toolset(iter([add]))) == ["add"]


@pytest.mark.parametrize("given", [add, {"name": "t"}, "add", 5, Weather, lambda: None])
def test_a_toolset_must_be_a_list(given):
    with pytest.raises(ToolDefinitionError, match=r"^tools: expected a list of tools, got "):
        toolset(given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([add, Weather, {"name": "add"}], r"\[2\]: there are two tools named 'add'"),
        ([add, 5], r"\[1\]: expected a"),
    ],
)
def test_an_invalid_tool_is_an_error_with_its_index(given, text):
    with pytest.raises(ToolDefinitionError, match=f"^tools{text}"):
        toolset(given)


class TestOptions:
    """`tool` copies any form of a tool definition, with other options."""

    OPTIONS = {  # noqa: RUF012 - only read
        "parallel_safe": False,
        "requires_fresh_input": True,
        "max_parallel": 2,
        "lock": "k",
        "dedupe": "off",
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

    def test_every_option_is_accepted_by_the_decorator_as_well(self, given):
        for made in (tool(given, **self.OPTIONS), tool(**self.OPTIONS)(given)):
            assert {name: getattr(made, name) for name in self.OPTIONS} == self.OPTIONS

    def test_the_other_options_are_kept(self, given):
        made, plain = tool(given, max_uses=3), tool(given)
        assert (made.name, made.description) == (plain.name, plain.description)
        assert made.input_schema == plain.input_schema
        assert (made.fn, made.timeout) == (plain.fn, plain.timeout)
        assert (made.max_uses, plain.max_uses) == (3, None)

    def test_the_copy_checks_arguments_and_calls_as_before(self):
        sunk = tool(Weather, max_uses=1).problems_of({"city": "Atlantis"})
        assert sunk == ["city: Value error, it has sunk"]
        copy = tool(add, max_uses=1)
        assert copy.problems_of({"a": 1}) == ["arguments: missing required field 'b'"]
        assert copy.invoke({"a": 1, "b": 2}, None) == 3

    def test_annotations_of_a_dict_are_kept(self):
        given = {"name": "t", "inputSchema": SCHEMA, "annotations": {"destructiveHint": True}}
        assert tool(given, timeout=5.0).parallel_safe is False
        assert as_tool(given).annotations == {"destructiveHint": True}

    def test_annotations_that_are_an_object_are_read(self):
        class Hints(BaseModel):
            readOnlyHint: bool = True

        made = as_tool({"name": "t", "annotations": Hints()})
        assert (made.annotations, made.idempotent) == ({"readOnlyHint": True}, True)

    @pytest.mark.parametrize("hints", [None, "safe", 5])
    def test_invalid_annotations_are_left_out(self, hints):
        assert as_tool({"name": "t", "annotations": hints}).annotations == {}


@pytest.mark.parametrize(
    "made", [add, tool(add, timeout=5.0), tool(add, terminal=True)], ids=["made", "with options", "terminal"]
)  # fmt: skip
def test_a_tool_has_the_name_and_docstring_of_its_function(made):
    assert (made.__name__, made.__doc__) == ("add", "Add two integers.")
    assert made.__module__ == add.fn.__module__
    assert made(2, 3) == 5
