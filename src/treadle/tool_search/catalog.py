"""`ToolSearch`, and the catalog that it makes for a loop: what the requests offer, and what a search finds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from treadle import labels
from treadle.checks import ValueCheck, check_fields, checked, choice
from treadle.context import Context
from treadle.effects import Call, Mode, Steps, call_mode
from treadle.errors import OptionError, check_names, closest, one_of
from treadle.fast_dataclass import light_dataclass
from treadle.messages import ToolCall, short_name
from treadle.tool_search.fixed_tools import (
    CALL_TOOL,
    MAX_RESULTS,
    SEARCH_TOOLS,
    call_tool,
    listed,
    search_tool,
    unwrapped,
    wrapped,
)
from treadle.tools import Locks, Tool

if TYPE_CHECKING:
    from treadle.tool_search.index import SearchIndex

MAX_CLOSEST = 3
"""The number of names that are suggested for an unknown one."""
MAX_GROUPS = 20
"""The number of groups of tools that are named if a search finds nothing."""

Vectors: TypeAlias = Sequence[Sequence[float]]
Embed: TypeAlias = Callable[[list[str]], Vectors | Awaitable[Vectors]]
"""Takes texts and returns a vector for each; sync or async."""

log = logging.getLogger("treadle.tools")


def _is_list_of_names(value: Any) -> bool:
    return value.__class__ in {list, tuple} and all(isinstance(name, str) for name in value)


def _is_limit(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MAX_RESULTS


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
        (), ValueCheck(_is_list_of_names, "a list of names of tools", shows_value=True)
    )
    """Names of tools that are offered in any case, as are tools that end the run."""
    limit: int = checked(
        10, ValueCheck(_is_limit, f"a whole number from 1 to {MAX_RESULTS}", shows_value=True)
    )
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
        search = search_tool(self._searching, len(tools), options.limit, is_native=self._is_native)
        fixed = [search] if self._is_native else [search, call_tool()]
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
        if call.name != CALL_TOOL or call.raw_arguments is not None:
            return call
        fixed = self.fixed.get(CALL_TOOL)
        return unwrapped(call) if fixed is not None and tools.get(CALL_TOOL) is fixed else call

    wrapped = staticmethod(wrapped)

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
        return listed(tools, names) if names else self._nothing(tools, query)

    def _nothing(self, tools: Mapping[str, Tool], query: str) -> str:
        groups = self.index(tools).groups(MAX_GROUPS)
        listed = ", ".join(f"{name} ({count})" for name, count in groups) or "none"
        return (
            f"No tool matches {short_name(query)!r}. The names of the tools start with these words, each with the "
            f"number of tools: {listed}. Search for one of them, or in other words."
        )
