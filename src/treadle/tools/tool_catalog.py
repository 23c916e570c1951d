"""The catalog of a loop with tool search: which tools a request offers, and which ones a search finds."""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle.effects import Then, is_awaitable
from treadle.errors import OptionError, check_names, closest
from treadle.messages import ToolCall
from treadle.tools.definition import Tool
from treadle.tools.locks import Locks
from treadle.tools.tool_search import ToolSearch
from treadle.tools.wrapped_calls import CALL_TOOL, unwrapped

if TYPE_CHECKING:
    from treadle.tools.search_index import SearchIndex

MAX_CLOSEST = 3
"""The number of names that are suggested for an unknown one."""
MAX_RANKED = 100
"""The number of tools of each ranking that are combined."""
FUSION = 60
"""The constant of reciprocal rank fusion: Cormack, Clarke and Buettcher, SIGIR 2009."""


class Catalog:
    """The tools of a loop with the option ``tool_search``; runs share it.

    Args:
        options: the configuration.
        tools: the tools of the loop, without the fixed ones.
        fixed: the fixed tools.

    Raises:
        OptionError: a name in ``always`` that no tool has, or a tool has the name of a fixed one.
    """

    def __init__(
        self, options: ToolSearch, tools: Mapping[str, Tool], fixed: Iterable[Tool]
    ) -> None:
        self.options = options
        self.fixed = {tool.name: tool for tool in fixed}
        for name in self.fixed:
            if name in tools:
                raise OptionError(
                    f"tool_search: {name!r} is the name of a tool of the search itself; give yours another"
                )
        check_names(options.always, tools, "tool_search: always: there is no tool")
        self.locks = Locks()
        # Each is a pair, so that it is replaced at once: runs in several threads share it.
        self._offered: tuple[object, tuple[str, ...]] = (None, ())
        self._index: tuple[object, SearchIndex | None] = (None, None)

    def offered(self, tools: Mapping[str, Tool], more: Iterable[str]) -> tuple[str, ...]:
        """The names of the tools of a request.

        Args:
            tools: the tools of the run.
            more: names of further tools, such as those that were found; others are ignored.
        """
        seen, names = self._offered
        if seen is not tools:
            ending = (tool.name for tool in tools.values() if tool.terminal)
            wanted = dict.fromkeys((*self.fixed, *self.options.always, *ending))
            names = tuple(name for name in wanted if name in tools)
            self._offered = tools, names
        added = [name for name in more if name in tools and name not in names]
        return (*names, *dict.fromkeys(added)) if added else names

    def unwrapped(self, call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
        """The call of the tool that a call of `call_tool` names; any other call is returned unchanged.

        Args:
            call: the call.
            tools: the tools of the run; a stage may have removed `call_tool`.
        """
        if call.name != CALL_TOOL or call.written is not None:
            return call
        fixed = self.fixed.get(CALL_TOOL)
        return unwrapped(call) if fixed is not None and tools.get(CALL_TOOL) is fixed else call

    def closest(self, name: str, tools: Mapping[str, Tool]) -> list[str]:
        """The names of the tools that an unknown name may mean, the most similar first."""
        index = self.index(tools)
        alike = closest(name, (tool.name for tool in index.tools))
        similar = index.search(name, MAX_CLOSEST)
        names = similar if alike is None else [alike, *similar]
        return list(dict.fromkeys(names))[:MAX_CLOSEST]

    def index(self, tools: Mapping[str, Tool]) -> SearchIndex:
        """The index of the tools of a run; made once, unless a stage has changed the tools."""
        seen, index = self._index
        if index is None or seen is not tools:
            from treadle.tools.search_index import SearchIndex  # noqa: PLC0415 - searches need it

            index = SearchIndex(tool for name, tool in tools.items() if name not in self.fixed)
            self._index = tools, index
        return index

    def find(
        self,
        tools: Mapping[str, Tool],
        query: str,
        limit: int,
        vector: Sequence[float] | None = None,
    ) -> list[str] | None:
        """The names of the best tools for a query, best first; None if they would have to be embedded first.

        Args:
            tools: the tools of the run.
            query: what the tool has to do, or its name.
            limit: the maximum number of names.
            vector: the embedding of the query; None searches by BM25 alone.
        """
        index = self.index(tools)
        if vector is None:
            return index.search(query, limit)
        if index.tools and not index.vectors:
            return None
        scores: dict[str, float] = {}
        for ranking in (index.search(query, MAX_RANKED), _nearest(index, vector)):
            for rank, name in enumerate(ranking, 1):
                scores[name] = scores.get(name, 0.0) + 1 / (FUSION + rank)
        exact = [name for name in index.named(query) if name in scores]
        ranked = sorted(scores, key=lambda name: -scores[name])
        return list(dict.fromkeys((*exact, *ranked)))[:limit]

    def embed_tools(self, tools: Mapping[str, Tool]) -> Awaitable[None] | None:
        """Embed the tools, if they are not."""
        from treadle.tools.search_index import text_of  # noqa: PLC0415 - searches need it

        index, embed = self.index(tools), self.options.embed
        if index.vectors or not index.tools or embed is None:
            return None
        made: Any = embed([text_of(tool) for tool in index.tools])
        if is_awaitable(made):
            return Then[None](made, lambda vectors: _keep(index, vectors))
        _keep(index, made)
        return None


def _keep(index: SearchIndex, given: Any) -> None:
    index.vectors = unit_vectors(given, len(index.tools))


def _nearest(index: SearchIndex, vector: Sequence[float]) -> list[str]:
    """The names of the tools whose vectors are nearest to one."""
    [wanted] = unit_vectors([vector], 1)
    pairs = zip(index.vectors, index.tools, strict=False)
    scored = [(sum(map(operator.mul, known, wanted)), tool.name) for known, tool in pairs]
    return [name for _, name in heapq.nlargest(MAX_RANKED, scored)]


def unit_vectors(given: Any, count: int) -> list[list[float]]:
    """Check what ``embed`` returned, and scale the vectors to the length 1.

    Args:
        given: a vector for each text; numpy arrays are accepted as well.
        count: the number of texts.

    Raises:
        TypeError: it is not that number of vectors.
    """
    vectors = [[float(number) for number in vector] for vector in given]
    if len(vectors) != count:
        raise TypeError(f"embed: expected a vector for each of {count} texts, got {len(vectors)}")
    return [[number / (math.hypot(*vector) or 1.0) for number in vector] for vector in vectors]
