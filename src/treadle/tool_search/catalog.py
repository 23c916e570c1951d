"""`ToolSearch`, and the catalog that it makes for a loop: what the requests offer, and what a search finds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from treadle import labels
from treadle.context import Context
from treadle.effects import Call, Mode, Steps, Then, call_mode, is_awaitable
from treadle.errors import OptionError, check_names, closest, one_of
from treadle.fast_dataclass import light_dataclass
from treadle.messages import ToolCall, short_name
from treadle.tool_search.calls import CALL_TOOL, unwrapped, wrapped
from treadle.tool_search.fixed_tools import (
    MAX_RESULTS,
    SEARCH_TOOLS,
    call_tool,
    listed,
    search_tool,
)
from treadle.tools import Locks, Tool

if TYPE_CHECKING:
    from treadle.tool_search.index import SearchIndex

MODES = ("call", "native")
MAX_CLOSEST = 3
"""The number of names that are suggested for an unknown one."""
MAX_GROUPS = 20
"""The number of groups of tools that are named if a search finds nothing."""

Vectors: TypeAlias = Sequence[Sequence[float]]
Embed: TypeAlias = Callable[[list[str]], Vectors | Awaitable[Vectors]]
"""Takes texts and returns a vector for each; sync or async."""

log = logging.getLogger("treadle.tools")


@light_dataclass(frozen=True)
class ToolSearch:
    """Offers a model two fixed tools, `search_tools` and `call_tool`, in place of hundreds.

    Args:
        mode: how a tool that was found is called. ``call``: through `call_tool`, so that the tools of the requests
            never change and a provider can cache them. ``native``: it is offered itself from then on, in this run.
        always: names of tools that are offered in any case, as are tools that end the run.
        limit: the number of tools that a search returns, unless the model asks for another number; at most 20.
        embed: returns a vector for each of a list of texts, sync or async. Searches then combine the similarity of
            the vectors with BM25. The tools are embedded once per loop, before the first search. None means BM25
            alone.

    Raises:
        OptionError: a value of the wrong type.
    """

    mode: Literal["call", "native"] = "call"
    always: Sequence[str] = ()
    limit: int = 10
    embed: Embed | None = None

    def __post_init__(self) -> None:
        given: Any = self.always
        is_many = given.__class__ in {list, tuple}
        are_names = is_many and all(isinstance(name, str) for name in given)
        is_number = type(self.limit) is int and 1 <= self.limit <= MAX_RESULTS
        is_embed = self.embed is None or callable(self.embed)  # pyright: ignore[reportUnnecessaryComparison]
        for name, is_right, expected in (
            ("mode", self.mode in MODES, one_of(MODES)),
            ("always", are_names, "a list of names of tools"),
            ("limit", is_number, f"a whole number from 1 to {MAX_RESULTS}"),
            ("embed", is_embed, "a callable that takes a list of texts"),
        ):
            if not is_right:
                got = getattr(self, name)
                raise OptionError(f"ToolSearch: {name}: expected {expected}, got {got!r:.80}")
        object.__setattr__(self, "always", tuple(given))

    def catalog(self, tools: Mapping[str, Tool]) -> SearchCatalog:
        """Make the catalog of a loop.

        Args:
            tools: the tools of the loop.

        Raises:
            OptionError: a name in ``always`` that no tool has, or a tool has the name of a fixed one.
        """
        return SearchCatalog(self, tools)


class SearchCatalog:
    """The tools of a loop, of which a search finds those that the model needs; see `treadle.tools.catalog`."""

    def __init__(self, options: ToolSearch, tools: Mapping[str, Tool]) -> None:
        self._options, self._embed = options, options.embed
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
        # Each is a pair, so that it is replaced at once: runs in several threads share it.
        self._offered: tuple[object, tuple[str, ...]] = (None, ())
        self._index: tuple[object, SearchIndex | None] = (None, None)

    def offered(self, tools: Mapping[str, Tool], more: Iterable[str]) -> tuple[str, ...]:
        """The names of the tools of a request; see `treadle.tools.catalog`."""
        seen, names = self._offered
        if seen is not tools:
            ending = (tool.name for tool in tools.values() if tool.terminal)
            wanted = dict.fromkeys((*self.fixed, *self._options.always, *ending))
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
        arguments = call.input or {}
        query, limit = arguments["query"], arguments.get("limit", self._options.limit)
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
            ctx.run.ledger.found.update(dict.fromkeys(names))
        return listed(ctx.tools, names) if names else self._nothing(ctx.tools, query)

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
    return Call(fn, *args, mode=mode, label=labels.EXECUTE_TOOL, key=key)


def _one(effect: Call) -> Steps[None]:
    yield effect
