"""The catalog of a loop with tool search: what its requests offer, and the tools that find and call the others."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle import labels
from treadle.context import Context
from treadle.effects import Call, Mode, Steps, Then, call_mode, is_awaitable
from treadle.errors import OptionError, check_names, closest, one_of
from treadle.messages import JSONDict, ToolCall, short_name
from treadle.tool_search.calls import CALL_TOOL, unwrapped, wrapped
from treadle.tools import MAX_BYTES, Locks, Tool

if TYPE_CHECKING:
    from treadle.tool_search.index import SearchIndex

SEARCH_TOOLS = "search_tools"
"""The name of the tool that searches the others."""
MAX_RESULTS = 20
"""The maximum number of results of a search."""
MAX_CLOSEST = 3
"""The number of names that are suggested for an unknown one."""
MAX_GROUPS = 20
"""The number of groups of tools that are named if a search finds nothing."""

Vectors: TypeAlias = Sequence[Sequence[float]]
Embed: TypeAlias = Callable[[list[str]], Vectors | Awaitable[Vectors]]
"""Takes texts and returns a vector for each; sync or async."""

log = logging.getLogger("treadle.tools")


class SearchCatalog:
    """The tools of a loop that a search finds; see `treadle.tools.catalog`, and `ToolSearch` for the arguments.

    Args:
        tools: the tools of the loop.
        is_native: whether a tool that was found is offered itself, in place of `call_tool`.
        always: names of tools that are offered in any case.
        limit: the number of tools that a search returns.
        embed: returns a vector for each of a list of texts; None searches by words alone.

    Raises:
        OptionError: a name in ``always`` that no tool has, or a tool has the name of a fixed one.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        is_native: bool,
        always: Sequence[str],
        limit: int,
        embed: Embed | None,
    ) -> None:
        self._is_native, self._always, self._limit, self._embed = is_native, always, limit, embed
        fixed = [_search_tool(self._searching, len(tools), limit, is_native=is_native)]
        if not is_native:
            fixed.append(_call_tool())
        self.fixed: Mapping[str, Tool] = {tool.name: tool for tool in fixed}
        for name in self.fixed:
            if name in tools:
                raise OptionError(
                    f"tool_search: {name!r} is the name of a tool of the search itself; give yours another"
                )
        check_names(always, tools, "tool_search: always: there is no tool")
        self._locks = Locks()
        # Each is a pair, so that it is replaced at once: runs in several threads share it.
        self._offered: tuple[object, tuple[str, ...]] = (None, ())
        self._index: tuple[object, SearchIndex | None] = (None, None)

    def offered(self, tools: Mapping[str, Tool], more: Iterable[str]) -> tuple[str, ...]:
        """The names of the tools of a request; see `treadle.tools.catalog`."""
        seen, names = self._offered
        if seen is not tools:
            ending = (tool.name for tool in tools.values() if tool.terminal)
            wanted = dict.fromkeys((*self.fixed, *self._always, *ending))
            names = tuple(name for name in wanted if name in tools)
            self._offered = tools, names
        added = [name for name in more if name in tools and name not in names]
        return (*names, *dict.fromkeys(added)) if added else names

    def unwrapped(self, call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
        """The call of the tool that a call of `call_tool` names; any other call is returned unchanged."""
        if call.name != CALL_TOOL or call.raw_arguments is not None:
            return call
        fixed = self.fixed.get(CALL_TOOL)
        return unwrapped(call) if fixed is not None and tools.get(CALL_TOOL) is fixed else call

    def wrapped(self, call: ToolCall) -> tuple[str, str]:
        """The name and the arguments of a call as the model made it: through `call_tool`, or directly."""
        return wrapped(call)

    def on_unknown(self, name: str, tools: Mapping[str, Tool], *, suggests: bool) -> str:
        """The answer to a call of a tool that does not exist: there are too many tools to list them."""
        names: list[str] = []
        if suggests:
            index = self.index(tools)
            alike = closest(name, (tool.name for tool in index.tools))
            names += () if alike is None else (alike,)
            names += index.search(name, MAX_CLOSEST)
        close = list(dict.fromkeys(names))[:MAX_CLOSEST]
        hint = f" Did you mean {one_of(close)}?" if close else ""
        return f"there is no tool named {short_name(name)!r}.{hint} Search for it with {SEARCH_TOOLS!r}."

    def index(self, tools: Mapping[str, Tool]) -> SearchIndex:
        """The index of the tools of a run; made once, unless a stage has changed the tools."""
        seen, index = self._index
        if index is None or seen is not tools:
            from treadle.tool_search.index import SearchIndex  # noqa: PLC0415 - searches need it

            index = SearchIndex(tool for name, tool in tools.items() if name not in self.fixed)
            self._index = tools, index
        return index

    # Searches: the names are the outcome of an effect, so that a replay finds the same.

    def _searching(self, ctx: Context, call: ToolCall) -> Steps[str]:
        arguments = call.input or {}
        query, limit = arguments["query"], arguments.get("limit", self._limit)
        vector: Sequence[float] | None = None
        names: Sequence[str] | None = None
        if self._embed is not None:
            try:
                yield from self._embedding(ctx, call)
                made = yield _effect(self._embed, ([query],), call_mode(self._embed), call.id)
                [vector] = made
                names = yield self._finding(ctx, call, query, limit, vector)
                if names is None:  # the run was interrupted in the process that embedded the tools
                    yield from self._embedding(ctx, call)
            except Exception:  # a user-supplied function, of a service that may be down
                vector = None
                log.warning("embed= failed; tools are searched by their words alone", exc_info=True)
        if names is None:
            names = yield self._finding(ctx, call, query, limit, vector)
        names = names or ()
        if self._is_native:
            ctx.run.found.update(dict.fromkeys(names))
        return _listed(ctx.tools, names) if names else self._nothing(ctx.tools, query)

    def _finding(
        self, ctx: Context, call: ToolCall, query: str, limit: int, vector: Sequence[float] | None
    ) -> Call:
        args = ctx.tools, query, limit, vector
        return _effect(self._find, args, Mode.THREAD, call.id)

    def _find(
        self, tools: Mapping[str, Tool], query: str, limit: int, vector: Sequence[float] | None
    ) -> list[str] | None:
        """The names of the best tools; None if there is a vector and the tools are not embedded."""
        return self.index(tools).find(query, limit, vector)

    def _embedding(self, ctx: Context, call: ToolCall) -> Steps[None]:
        """Embed the tools, once for all runs of the loop."""
        effect = _effect(self._embed_tools, (ctx.tools,), Mode.THREAD, call.id)
        yield from self._locks.holding({SEARCH_TOOLS: True}, _one(effect))

    def _embed_tools(self, tools: Mapping[str, Tool]) -> Awaitable[None] | None:
        index = self.index(tools)
        if index.vectors or not index.tools or self._embed is None:
            return None
        made: Any = self._embed(index.texts())
        if is_awaitable(made):
            return Then[None](made, index.keep_vectors)
        index.keep_vectors(made)
        return None

    def _nothing(self, tools: Mapping[str, Tool], query: str) -> str:
        groups = self.index(tools).groups(MAX_GROUPS)
        listed = ", ".join(f"{name} ({count})" for name, count in groups) or "none"
        return (
            f"No tool matches {short_name(query)!r}. The names of the tools start with these words, each with the "
            f"number of tools: {listed}. Search for one of them, or in other words."
        )


def _effect(fn: Any, args: tuple[Any, ...], mode: Mode, key: str) -> Call:
    return Call.of(fn, args, mode, label=labels.EXECUTE_TOOL, key=key)


def _one(effect: Call) -> Steps[None]:
    yield effect


# The fixed tools


def _search_tool(
    steps: Callable[..., Steps[str]], count: int, limit: int, *, is_native: bool
) -> Tool:
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


def _call_tool() -> Tool:
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


# Results


def _listed(tools: Mapping[str, Tool], names: Iterable[str]) -> str:
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
