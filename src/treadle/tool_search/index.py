"""An index of tools, which ranks them for a query by the words of their names, descriptions and parameters.

``benchmarks/tool_search`` measures how often the right tool is found; the weights were chosen with its questions
for tuning.
"""

from __future__ import annotations

import heapq
import math
import operator
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Any

from treadle.effects import Then, is_awaitable
from treadle.messages import is_list, is_mapping
from treadle.tool_search.word_index import MAX_QUERY, WordIndex, weigh_words, words_of
from treadle.tools import Tool

NAME, DESCRIPTION, PARAMETERS = 2.0, 1.0, 0.2
"""The weights of a word in the name, in the description, and in the names, descriptions and enum values of the
parameters."""
MAX_DEPTH = 16
"""How many levels of a schema are read: a nested parameter is two levels below that around it."""
MAX_RANKED = 100
"""The number of tools of each ranking that are combined."""
FUSION = 60
"""The constant of reciprocal rank fusion: Cormack, Clarke and Buettcher, SIGIR 2009."""


class SearchIndex:
    """An index of tools, whose order decides between equal ranks."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools = tuple(tools)
        self.vectors: list[list[float]] = []
        """The embeddings of the tools, of length 1; empty until they are embedded."""
        self._by_name = {tool.name.casefold(): position for position, tool in enumerate(self.tools)}
        self._words = WordIndex([_counts(tool) for tool in self.tools])

    def search(self, query: str, limit: int) -> list[str]:
        """The names of the best tools for a query by its words; first the tools that it names in full."""
        query = query[:MAX_QUERY]
        scores = self._words.scores(query)
        for name in self.named(query):
            scores[self._by_name[name.casefold()]] = math.inf
        best = heapq.nsmallest(limit, scores.items(), key=lambda one: (-one[1], one[0]))
        return [self.tools[position].name for position, _ in best]

    def find(
        self, query: str, limit: int, vector: Sequence[float] | None = None
    ) -> list[str] | None:
        """Search by the words and the embedding of a query; None if the tools are not embedded yet."""
        if vector is None:
            return self.search(query, limit)
        if self.tools and not self.vectors:
            return None
        scores: dict[str, float] = {}
        for ranking in (self.search(query, MAX_RANKED), self._nearest(vector)):
            for rank, name in enumerate(ranking, 1):
                scores[name] = scores.get(name, 0.0) + 1 / (FUSION + rank)
        exact = [name for name in self.named(query) if name in scores]
        ranked = sorted(scores, key=lambda name: -scores[name])
        return list(dict.fromkeys((*exact, *ranked)))[:limit]

    def _nearest(self, vector: Sequence[float]) -> list[str]:
        [wanted] = unit_vectors([vector], 1)
        pairs = zip(self.vectors, self.tools, strict=False)
        scored = [(sum(map(operator.mul, known, wanted)), tool.name) for known, tool in pairs]
        return [name for _, name in heapq.nlargest(MAX_RANKED, scored)]

    def embed_tools(self, embed: Any) -> Awaitable[None] | None:
        """Embed the tools, unless they are embedded."""
        if self.vectors or not self.tools:
            return None
        made = embed(list(map(text_of, self.tools)))
        if is_awaitable(made):
            return Then[None](made, self._keep)
        self._keep(made)
        return None

    def _keep(self, given: Any) -> None:
        self.vectors = unit_vectors(given, len(self.tools))

    def named(self, query: str) -> Iterator[str]:
        """The tools whose whole names are in a query."""
        for word in query.casefold().split():
            position = self._by_name.get(word.strip("\"'`,;:?!()"))
            if position is not None:
                yield self.tools[position].name

    def groups(self, most: int) -> list[tuple[str, int]]:
        """The most frequent first words of the tools' names, each with its number of tools."""
        firsts = (next(words_of(tool.name), tool.name) for tool in self.tools)
        return Counter(firsts).most_common(most)


def unit_vectors(given: Any, count: int) -> list[list[float]]:
    """The vectors that ``embed`` returned, such as numpy arrays, of length 1; `TypeError` for another number."""
    vectors = [[float(number) for number in vector] for vector in given]
    if len(vectors) != count:
        raise TypeError(f"embed: expected a vector for each of {count} texts, got {len(vectors)}")
    return [[number / (math.hypot(*vector) or 1.0) for number in vector] for vector in vectors]


def text_of(tool: Tool) -> str:
    """The name, the description and the parameters of a tool as one text, for embeddings."""
    name = " ".join(dict.fromkeys(words_of(tool.name)))
    parameters = " ".join(_texts_in(tool.input_schema))
    return f"{name}: {tool.description} {parameters}".strip()


def _counts(tool: Tool) -> Counter[str]:
    """The words of a tool, each with its weighted number of occurrences."""
    parameters = ((PARAMETERS, text) for text in _texts_in(tool.input_schema))
    return weigh_words(((NAME, tool.name), (DESCRIPTION, tool.description), *parameters))


def _texts_in(schema: Any, depth: int = 0) -> Iterator[str]:
    """The names, descriptions, titles and enum values in a schema of parameters."""
    if depth > MAX_DEPTH:
        return
    parts: Any = schema if is_list(schema) else ()
    if is_mapping(schema):
        parts = schema.values()
        for key in ("description", "title"):
            if depth and isinstance(schema.get(key), str):
                yield schema[key]
        for key, kind in (("enum", is_list), ("properties", is_mapping)):
            texts: Any = schema.get(key)
            yield from (text for text in texts if isinstance(text, str)) if kind(texts) else ()
    for part in parts:
        yield from _texts_in(part, depth + 1)
