"""Tools, from whatever stands for one; broken ones are told when they are made."""

import functools

import pytest
from pydantic import BaseModel, Field, field_validator

from treadle.types import (
    Tool,
    ToolContext,
    ToolDefinitionError,
    as_tool,
    terminal_copy,
    tool,
    toolset,
)

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


def test_a_tool_can_still_be_called_as_its_function():
    assert add(2, 3) == 5
    assert add(a=2, b=3) == 5
    assert add.__name__ == "add"
    assert add.__doc__ == "Add two integers."


def test_a_decorator_with_options_sets_them_and_wins_over_the_function():
    @tool(
        name="plus", description="Sum.", timeout=2.5, retries=2, parallel_safe=False, volatile=True
    )
    def add(a: int): ...

    assert (add.name, add.description) == ("plus", "Sum.")
    assert (add.timeout, add.retries, add.parallel_safe, add.volatile) == (2.5, 2, False, True)
    assert add.terminal is False


def test_an_option_of_tools_that_does_not_exist_is_an_error():
    with pytest.raises(TypeError, match="parallel"):
        tool(parallel=True)(lambda: None)


def test_it_is_told_to_a_model_in_the_form_of_openai():
    assert add.as_openai() == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two integers.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }


def test_what_is_told_is_a_copy_each_time():
    add.as_openai()["function"]["parameters"]["properties"].clear()
    assert add.as_openai()["function"]["parameters"]["properties"] != {}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 129, "add\n", "\u00e4", 5, None])
def test_a_name_that_providers_refuse_is_refused(name):
    with pytest.raises(ToolDefinitionError, match="a tool's name has 1 to 128 letters"):
        Tool(name)


@pytest.mark.parametrize("name", ["a", "get.weather", "a-b_C9", "x" * 128])
def test_a_name_that_providers_take_is_taken(name):
    assert Tool(name).name == name


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", True])
def test_a_timeout_is_a_number_above_zero(timeout):
    with pytest.raises(ToolDefinitionError, match="tool 't': timeout must be above 0, not "):
        Tool("t", timeout=timeout)


@pytest.mark.parametrize("retries", [-1, 1.5, "2", None])
def test_retries_are_a_whole_number(retries):
    with pytest.raises(ToolDefinitionError, match="tool 't': retries must be a whole number"):
        Tool("t", retries=retries)


@pytest.mark.parametrize("schema", [5, None, "object", [SCHEMA]])
def test_a_schema_is_a_mapping(schema):
    with pytest.raises(ToolDefinitionError, match="tool 't': input_schema: expected a JSON Schema"):
        Tool("t", input_schema=schema)


def test_a_broken_schema_is_told_with_the_name_of_its_tool():
    with pytest.raises(ToolDefinitionError, match=r"^tool 't': input_schema: expected a schema of"):
        Tool("t", input_schema={"type": "array"})


def test_the_schema_is_copied_from_its_owner():
    given = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = Tool("t", input_schema=given)
    given["properties"]["a"]["type"] = "string"
    assert made.problems_of({"a": 1}) == []
    assert made.input_schema["properties"]["a"] == {"type": "integer"}


def test_a_raw_schema_is_checked_and_its_function_called_with_the_arguments():
    made = Tool("t", "", SCHEMA, fn=lambda a: a + 1)
    assert made.problems_of({"a": "x"}) == ['a: expected integer, got string "x"']
    assert made.bound({"a": 1}, lambda: ToolContext("c", "t", 1))() == 2


def test_a_tool_without_a_function_cannot_be_called():
    with pytest.raises(TypeError, match="tool 't' has no function; a resolver runs it"):
        Tool("t")()
    with pytest.raises(ToolDefinitionError, match="has no function"):
        Tool("t").bound({}, lambda: None)


async def fetch(): ...


class Fetcher:
    async def __call__(self): ...


@pytest.mark.parametrize(
    ("fn", "is_async"),
    [
        (fetch, True),
        (functools.partial(functools.partial(fetch)), True),
        (Fetcher(), True),
        (Fetcher().__call__, True),
        (lambda: None, False),
        (None, False),
    ],
)
def test_whether_it_is_async_is_decided_once(fn, is_async):
    assert Tool("t", fn=fn).is_async is is_async


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
    with pytest.raises(ToolDefinitionError, match="^tools: expected a list of tools, got "):
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
