"""The two fixed tools of a search for tools, and the text of its results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from treadle.effects import Steps
from treadle.messages import JSONDict
from treadle.tool_search.calls import CALL_TOOL
from treadle.tools import MAX_BYTES, Tool

SEARCH_TOOLS = "search_tools"
"""The name of the tool that searches the others."""
MAX_RESULTS = 20
"""The maximum number of results of a search."""


def search_tool(
    steps: Callable[..., Steps[str]], count: int, limit: int, *, is_native: bool
) -> Tool:
    """The tool `search_tools`.

    Args:
        steps: what it does.
        count: the number of tools that it searches.
        limit: the number of tools that it returns by default.
        is_native: whether the tools that it finds are offered themselves, in place of `call_tool`.
    """
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
    how = "The tools that were found can be called from then on."
    description = (
        f"Search the {count:,} available tools by what they do. Returns the names, descriptions and input schemas "
        f"of the best ones. {how if is_native else f'Call a tool that was found with {CALL_TOOL}.'}"
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
    facts = {"required": required, "additionalProperties": False}
    return {"type": "object", "properties": fields, **facts}


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
