"""The two fixed tools of a search for tools: the text of its results, and the calls of other tools."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from treadle.effects import Steps
from treadle.messages import JSONDict, MalformedJSONError, ToolCall, is_dict, parse_object
from treadle.tools import MAX_BYTES, Tool

CALL_TOOL = "call_tool"
"""The name of the tool that calls another."""
SEARCH_TOOLS = "search_tools"
"""The name of the tool that searches the others."""
MAX_RESULTS = 20
"""The maximum number of results of a search."""


def search_tool(
    steps: Callable[..., Steps[str]], count: int, limit: int, *, is_native: bool
) -> Tool:
    """The tool `search_tools`, which searches a number of tools, and returns as many as the limit by default."""
    fields = {
        "query": {
            "type": "string",
            "minLength": 1,
            "description": "What the tool has to do and on what, in a few words; or the name of a tool.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_RESULTS,
            "description": f"The maximum number of tools; {limit} by default.",
        },
    }
    how = f"Call a tool that was found with {CALL_TOOL}."
    if is_native:
        how = "The tools that were found can be called from then on."
    description = (
        f"Search the {count:,} available tools by what they do. Returns the names, descriptions and input schemas "
        f"of the best ones. {how}"
    )
    schema = _closed(fields, ["query"])
    return Tool(SEARCH_TOOLS, description, schema, steps=steps, annotations={"readOnlyHint": True})


def call_tool() -> Tool:
    """The tool `call_tool`, whose calls become those of other tools before they run."""
    fields = {
        "name": {"type": "string", "description": "The name of the tool."},
        "arguments": {
            "type": "object",
            "description": "The arguments of the tool, as its input schema describes them.",
        },
    }
    description = f"Call a tool that {SEARCH_TOOLS} has found."
    return Tool(CALL_TOOL, description, _closed(fields, ["name", "arguments"]), fn=_never)


def _closed(fields: JSONDict, required: list[str]) -> JSONDict:
    return {
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }


def _never(**_arguments: Any) -> None:
    raise AssertionError("unreachable: a valid call of call_tool becomes the call of another tool")


def listed(tools: Mapping[str, Tool], names: Iterable[str]) -> str:
    """The tools that were found, as JSON; those that do not fit into a result by name only."""
    found: list[JSONDict] = []
    others: list[str] = []
    left = MAX_BYTES // 2
    for tool in (tools[name] for name in names if name in tools):
        shown = {
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.input_schema,
        }
        left -= len(_compact(shown).encode("utf-8", "replace"))
        if found and left < 0:
            others.append(tool.name)
        else:
            found.append(shown)
    answer: JSONDict = {"tools": found}
    if others:
        answer["more"] = others
        answer["note"] = "Search for the name of a tool in 'more' for its input schema."
    return _compact(answer)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def unwrapped(call: ToolCall) -> ToolCall:
    """The call of the tool that a call of `call_tool` names; one that is not well formed is returned unchanged.

    Some models write the arguments as a JSON text, which is accepted, or call `call_tool` through itself.
    """
    while call.name == CALL_TOOL:
        try:
            given = parse_object(call.arguments)
        except MalformedJSONError:
            break
        name, arguments = given.pop("name", None), given.pop("arguments", None)
        if arguments is None:
            arguments = "{}"
        elif is_dict(arguments):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if given or not isinstance(name, str) or not isinstance(arguments, str):
            break
        raw = call.arguments if call.raw_arguments is None else call.raw_arguments
        call = dataclasses.replace(call, name=name, arguments=arguments, raw_arguments=raw)
    return call


def wrapped(call: ToolCall) -> tuple[str, str]:
    """The name and the arguments of a call as the history shows them: as the model made it.

    If a stage has changed a call that was made through `call_tool`, the arguments are those of such a call.
    """
    if call.raw_arguments is None:
        return call.name, call.arguments
    before = unwrapped(ToolCall(call.id, CALL_TOOL, call.raw_arguments))
    if (before.name, before.arguments) == (call.name, call.arguments):
        return CALL_TOOL, call.raw_arguments
    arguments: Any = call.arguments
    with contextlib.suppress(MalformedJSONError):
        arguments = parse_object(call.arguments)
    return CALL_TOOL, json.dumps({"name": call.name, "arguments": arguments}, ensure_ascii=False)
