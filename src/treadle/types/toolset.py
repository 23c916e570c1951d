"""The tools of a run, made of whatever stands for one."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from treadle.types.docstrings import read_docstring
from treadle.types.errors import ToolDefinitionError
from treadle.types.messages import is_mapping
from treadle.types.tools import Tool, tool

if TYPE_CHECKING:
    from pydantic import BaseModel


def as_tool(given: Any, where: str = "tool") -> Tool:
    """Make a tool of whatever stands for one.

    Args:
        given: a `Tool`; a function; a pydantic model, whose fields are the arguments; an OpenAI tool dict;
            or a dict with ``name`` and ``input_schema`` (MCP's ``inputSchema``, OpenAI's ``parameters``).
        where: what to call it in errors.

    Raises:
        ToolDefinitionError: it is none of these, or a broken one.
    """
    if isinstance(given, Tool):
        return given
    if is_mapping(given):
        return _from_dict(given, where)
    if _is_model(given):
        from treadle.types.signature import schema_of  # noqa: PLC0415 - see there

        description, _ = read_docstring(given.__doc__)
        return Tool(given.__name__, description, schema_of(given), model=given)
    if callable(given):
        return tool(given)
    raise ToolDefinitionError(
        f"{where}: expected a Tool, a function, a pydantic model or a tool dict, "
        f"got {type(given).__name__}"
    )


def _is_model(given: Any) -> TypeGuard[type[BaseModel]]:
    """Whether something is a pydantic model; told by what it does, so as not to import pydantic."""
    return inspect.isclass(given) and hasattr(given, "model_json_schema")


def _from_dict(given: Mapping[str, Any], where: str) -> Tool:
    facts: Any = given.get("function", given) if given.get("type") == "function" else given
    if not is_mapping(facts) or not isinstance(facts.get("name"), str):
        raise ToolDefinitionError(f"{where}.name: expected text, got {facts!r:.80}")
    schemas = (facts.get(key) for key in ("input_schema", "inputSchema", "parameters"))
    schema: Any = next((schema for schema in schemas if schema is not None), None)
    if schema is None:
        schema = {"type": "object", "properties": {}}
    if not is_mapping(schema):
        raise ToolDefinitionError(
            f"{where}.input_schema: expected a JSON Schema, got {type(schema).__name__}"
        )
    return Tool(facts["name"], str(facts.get("description") or ""), schema)


def toolset(given: Any) -> dict[str, Tool]:
    """Make the tools of a run, by name, in their order.

    Args:
        given: a list of what `as_tool` takes; None is no tools.

    Raises:
        ToolDefinitionError: two of one name, or what `as_tool` raises, with the place in the list.
    """
    made: dict[str, Tool] = {}
    if given is None:
        return made
    is_many = isinstance(given, Iterable) and not isinstance(given, (Mapping, str, Tool))
    if not is_many:
        raise ToolDefinitionError(f"tools: expected a list of tools, got {type(given).__name__}")  # pyright: ignore[reportUnknownArgumentType]
    for index, one in enumerate(given):  # pyright: ignore[reportUnknownArgumentType]
        candidate = as_tool(one, f"tools[{index}]")
        if candidate.name in made:
            raise ToolDefinitionError(
                f"tools[{index}]: there are two tools named {candidate.name!r}"
            )
        made[candidate.name] = candidate
    return made


def terminal_copy(given: Tool) -> Tool:
    """The tool, ending the run when it is called."""
    return dataclasses.replace(given, terminal=True)
