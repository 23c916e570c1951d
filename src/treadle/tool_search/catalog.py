"""`ToolSearch`, and the catalog that it makes for a loop: what the requests offer, and what a search finds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from treadle import labels
from treadle.checks import ValueCheck, check_fields, checked, choice
from treadle.context import Context
from treadle.effects import Call, Mode, Steps, call_mode
from treadle.errors import OptionError, check_names, closest, one_of
from treadle.fast_dataclass import light_dataclass
from treadle.messages import JSONDict, ToolCall, is_dict, short_name
from treadle.messages.json_text import MalformedJSONError, parse_object
from treadle.tools import MAX_BYTES, Locks, Tool

if TYPE_CHECKING:
    from treadle.tool_search.index import SearchIndex

CALL_TOOL = "call_tool"
"""The name of the tool that calls another."""
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


def _is_names(value: Any) -> bool:
    return value.__class__ in {list, tuple} and all(isinstance(name, str) for name in value)


_LIMIT = ValueCheck(
    lambda value: type(value) is int and 1 <= value <= MAX_RESULTS,
    f"a whole number from 1 to {MAX_RESULTS}",
    shows_value=True,
)


@light_dataclass(frozen=True)
class ToolSearch:
    """Offers a model two fixed tools, `search_tools` and `call_tool`, in place of hundreds.

    Raises:
        OptionError: a value that a field does not accept.
    """

    mode: Literal["call", "native"] = checked("call", choice("call", "native"))
    """How a tool that was found is called. ``call``: through `call_tool`, so that the tools of the requests never
    change and a provider can cache them. ``native``: it is offered itself from then on, in this run."""
    always: Sequence[str] = checked(
        (), ValueCheck(_is_names, "a list of names of tools", shows_value=True)
    )
    """Names of tools that are offered in any case, as are tools that end the run."""
    limit: int = checked(10, _LIMIT)
    """The number of tools that a search returns, unless the model asks for another number; at most 20."""
    embed: Embed | None = checked(
        None, ValueCheck(callable, "a callable that takes a list of texts", shows_value=True)
    )
    """Returns a vector for each of a list of texts, sync or async. Searches then combine the similarity of the
    vectors with BM25. The tools are embedded once per loop, before the first search. None means BM25 alone."""

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "always", tuple(self.always))

    def catalog(self, tools: Mapping[str, Tool]) -> SearchCatalog:
        """Make the catalog of a loop with these tools."""
        return SearchCatalog(self, tools)


class SearchCatalog:
    """The tools of a loop, of which a search finds those that the model needs; see `treadle.tools.catalog`."""

    def __init__(self, options: ToolSearch, tools: Mapping[str, Tool]) -> None:
        self._options = options
        self._is_native = options.mode == "native"
        search = self._search_tool(len(tools))
        fixed = [search] if self._is_native else [search, _call_tool()]
        self.fixed: Mapping[str, Tool] = {tool.name: tool for tool in fixed}
        for name in self.fixed:
            if name in tools:
                raise OptionError(
                    f"tool_search: {name!r} is the name of a tool of the search itself; give yours another"
                )
        check_names(options.always, tools, "tool_search: always: there is no tool")
        self._locks = Locks()
        # A pair, so that it is replaced at once: runs in several threads share it.
        self._index: tuple[object, SearchIndex | None] = (None, None)

    def offered(self, tools: Mapping[str, Tool], more: Iterable[str]) -> tuple[str, ...]:
        """The names of the tools of a request; see `treadle.tools.catalog`."""
        ending = (tool.name for tool in tools.values() if tool.terminal)
        names = dict.fromkeys((*self.fixed, *self._options.always, *ending, *more))
        return tuple(name for name in names if name in tools)

    def unwrapped(self, call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
        """The call of the tool that a call of `call_tool` names; any other call is returned unchanged."""
        fixed = self.fixed.get(CALL_TOOL)
        is_through = fixed is not None and tools.get(CALL_TOOL) is fixed
        return unwrapped(call) if is_through and call.raw_arguments is None else call

    @staticmethod
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
        made = {"name": call.name, "arguments": arguments}
        return CALL_TOOL, json.dumps(made, ensure_ascii=False)

    def on_unknown(self, name: str, tools: Mapping[str, Tool], *, suggests: bool) -> str:
        """The answer to a call of a tool that does not exist; it may suggest similar ones, by a search."""
        names: list[str | None] = []
        if suggests:
            index = self.index(tools)
            names.append(closest(name, (tool.name for tool in index.tools)))
            names += index.search(name, MAX_CLOSEST)
        close = list(dict.fromkeys(filter(None, names)))[:MAX_CLOSEST]
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

    def _search_tool(self, count: int) -> Tool:
        what = "What the tool has to do and on what, in a few words; or the name of a tool."
        most = f"The maximum number of tools; {self._options.limit} by default."
        number = {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": most}
        fields = {"query": {"type": "string", "minLength": 1, "description": what}, "limit": number}
        how = f"Call a tool that was found with {CALL_TOOL}."
        if self._is_native:
            how = "The tools that were found can be called from then on."
        description = (
            f"Search the {count:,} available tools by what they do. Returns the names, descriptions and input "
            f"schemas of the best ones. {how}"
        )
        schema, hints = _closed(fields, ["query"]), {"readOnlyHint": True}
        return Tool(SEARCH_TOOLS, description, schema, steps=self._searching, annotations=hints)

    def _searching(self, ctx: Context, call: ToolCall) -> Steps[str]:
        """Search the tools. The names are the outcome of an effect, so that a replay finds the same."""
        arguments, tools, embed = call.input or {}, ctx.tools, self._options.embed
        query, limit = arguments["query"], arguments.get("limit", self._options.limit)
        vector: Sequence[float] | None = None
        names: Sequence[str] | None = None

        def effect(fn: Any, *args: Any, mode: Mode = Mode.THREAD) -> Call:
            return Call(fn, *args, mode=mode, label=labels.EXECUTE_TOOL, key=call.id)

        def embedding() -> Steps[None]:
            yield effect(lambda: self.index(tools).embed_tools(embed))

        def find() -> list[str] | None:
            return self.index(tools).find(query, limit, vector)

        if embed is not None:
            lock = {SEARCH_TOOLS: True}  # the tools are embedded once for all runs of the loop
            try:
                yield from self._locks.holding(lock, embedding())
                [vector] = yield effect(embed, [query], mode=call_mode(embed))
                names = yield effect(find)
                if names is None:  # the run was interrupted in the process that embedded the tools
                    yield from self._locks.holding(lock, embedding())
            except Exception:  # a user-supplied function, of a service that may be down
                vector = None
                log.warning("embed= failed; tools are searched by their words alone", exc_info=True)
        if names is None:
            names = yield effect(find)
        names = names or ()
        if self._is_native:
            ctx.run.ledger.found.update(dict.fromkeys(names))
        if names:
            return _listed(tools, names)
        groups = self.index(tools).groups(MAX_GROUPS)
        counts = ", ".join(f"{name} ({count})" for name, count in groups) or "none"
        return (
            f"No tool matches {short_name(query)!r}. The names of the tools start with these words, each with the "
            f"number of tools: {counts}. Search for one of them, or in other words."
        )


def _call_tool() -> Tool:
    """The tool whose calls become those of other tools before they run."""
    what = "The arguments of the tool, as its input schema describes them."
    fields = {
        "name": {"type": "string", "description": "The name of the tool."},
        "arguments": {"type": "object", "description": what},
    }
    description = f"Call a tool that {SEARCH_TOOLS} has found."
    return Tool(CALL_TOOL, description, _closed(fields, ["name", "arguments"]), fn=_never)


def _never(**_arguments: Any) -> None:
    raise AssertionError("unreachable: a valid call of call_tool becomes the call of another tool")


def _closed(fields: JSONDict, required: list[str]) -> JSONDict:
    facts = {"properties": fields, "required": required}
    return {"type": "object", **facts, "additionalProperties": False}


def _listed(tools: Mapping[str, Tool], names: Iterable[str]) -> str:
    """The tools that were found, as JSON; those that do not fit into a result by name only."""
    found: list[JSONDict] = []
    others: list[str] = []
    left = MAX_BYTES // 2
    for tool in (tools[name] for name in names if name in tools):
        shown = {key: getattr(tool, key) for key in ("name", "description", "input_schema")}
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
