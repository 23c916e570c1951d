"""The fixed tools of tool search, and what `search_tools` does."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle import labels
from treadle.context import Context
from treadle.effects import Call, Mode, Steps, call_mode
from treadle.messages import JSONDict, ToolCall, short_name
from treadle.tools import CALL_TOOL, MAX_BYTES, SEARCH_TOOLS, Tool, ToolSearch
from treadle.tools.tool_catalog import Catalog, unit_vectors
from treadle.tools.tool_search import MAX_RESULTS

MAX_GROUPS = 20
"""The number of groups of tools that are named if a search finds nothing."""

log = logging.getLogger("treadle.tools")


def make_catalog(options: ToolSearch, tools: Mapping[str, Tool]) -> Catalog:
    """Make the catalog of a loop, with its fixed tools.

    Args:
        options: the configuration.
        tools: the tools of the loop.

    Raises:
        OptionError: as `Catalog`.
    """
    is_native = options.mode == "native"
    fixed = [_search_tool(options, len(tools), _HOW_NATIVE if is_native else _HOW_CALL)]
    if not is_native:
        fixed.append(_call_tool())
    return Catalog(options, tools, fixed)


_HOW_CALL = f"Call a tool that was found with {CALL_TOOL}."
_HOW_NATIVE = "The tools that were found can be called from then on."


def _search_tool(options: ToolSearch, count: int, how: str) -> Tool:
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
            "description": f"The maximum number of tools; {options.limit} by default.",
        },
    }
    return Tool(
        SEARCH_TOOLS,
        f"Search the {count:,} available tools by what they do. Returns the names, descriptions and input schemas "
        f"of the best ones. {how}",
        {
            "type": "object",
            "properties": fields,
            "required": ["query"],
            "additionalProperties": False,
        },
        steps=_searching,
        annotations={"readOnlyHint": True},
    )


@functools.cache
def _call_tool() -> Tool:
    """The tool `call_tool`, which all loops share."""
    return Tool(
        CALL_TOOL,
        f"Call a tool that {SEARCH_TOOLS} has found.",
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The name of the tool."},
                "arguments": {
                    "type": "object",
                    "description": "The arguments of the tool, as its input schema describes them.",
                },
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        },
        fn=_never,
    )


def _never(**_arguments: Any) -> None:
    raise AssertionError("unreachable: a valid call of call_tool becomes the call of another tool")


def _searching(ctx: Context, call: ToolCall) -> Steps[str]:
    """Search the tools of the run: the names are the outcome of an effect, so that a replay finds the same."""
    catalog = ctx.run.catalog
    if catalog is None:
        raise AssertionError("unreachable: only a loop with a catalog has the tool")
    arguments = call.input or {}
    query, limit = arguments["query"], arguments.get("limit", catalog.options.limit)
    vector: Sequence[float] | None = None
    names: Sequence[str] | None = None
    if catalog.options.embed is not None:
        try:
            vector = yield from _embedded(ctx, catalog, call, query)
            names = yield from _found(ctx, catalog, call, limit, vector)
            if (
                names is None
            ):  # they were embedded in another process, in which the run was interrupted
                yield from _embed_tools(ctx, catalog, call)
        except Exception:  # a user-supplied function, of a service that may be down
            vector = None
            log.warning("embed= failed; tools are searched by their words alone", exc_info=True)
    if names is None:
        names = (yield from _found(ctx, catalog, call, limit, vector)) or ()
    if catalog.options.mode == "native":
        ctx.run.found.update(dict.fromkeys(names))
    return _listed(ctx, names) if names else _nothing(ctx, catalog, query)


def _embedded(ctx: Context, catalog: Catalog, call: ToolCall, query: str) -> Steps[Sequence[float]]:
    """Embed the tools, once for all runs of the loop, and the query."""
    yield from _embed_tools(ctx, catalog, call)
    embed: Any = catalog.options.embed
    vectors = yield _effect(embed, ([query],), call_mode(embed), call.id)
    [vector] = unit_vectors(vectors, 1)
    return vector


def _embed_tools(ctx: Context, catalog: Catalog, call: ToolCall) -> Steps[None]:
    effect = _effect(catalog.embed_tools, (ctx.tools,), Mode.THREAD, call.id)
    yield from catalog.locks.holding({SEARCH_TOOLS: True}, _one(effect))


def _found(
    ctx: Context, catalog: Catalog, call: ToolCall, limit: int, vector: Sequence[float] | None
) -> Steps[Sequence[str] | None]:
    """The names of the best tools; None if there is a vector and the tools are not embedded."""
    query = (call.input or {})["query"]
    args = ctx.tools, query, limit, vector
    return (yield _effect(catalog.find, args, Mode.THREAD, call.id))


def _effect(fn: Any, args: tuple[Any, ...], mode: Mode, key: str) -> Call:
    return Call(fn, *args, mode=mode, label=labels.EXECUTE_TOOL, key=key)


def _one(effect: Call) -> Steps[None]:
    yield effect


# Results


def _listed(ctx: Context, names: Iterable[str]) -> str:
    """The tools that were found, as JSON; those that do not fit into a result by name only."""
    found: list[JSONDict] = []
    others: list[str] = []
    left = MAX_BYTES // 2
    for tool in (ctx.tools[name] for name in names if name in ctx.tools):
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


def _nothing(ctx: Context, catalog: Catalog, query: str) -> str:
    groups = catalog.index(ctx.tools).groups(MAX_GROUPS)
    listed = ", ".join(f"{name} ({count})" for name, count in groups) or "none"
    return (
        f"No tool matches {short_name(query)!r}. The names of the tools start with these words, each with the "
        f"number of tools: {listed}. Search for one of them, or in other words."
    )
