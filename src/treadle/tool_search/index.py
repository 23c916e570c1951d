"""An index of tools, which ranks them for a query by the words of their names, descriptions and parameters.

``benchmarks/tool_search`` measures how often the right tool is found; the weights were chosen with its questions
for tuning.
"""

from __future__ import annotations

import heapq
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
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

    def search(self, query: str, limit: int, vector: Sequence[float] = ()) -> list[str]:
        """The names of the best tools for a query by its words and vector; first those that it names in full."""
        query = query[:MAX_QUERY]
        scores: Mapping[int, float] = self._words.scores(query)
        if vector:
            products = (sum(map(operator.mul, known, vector)) for known in self.vectors)
            ranks: defaultdict[int, float] = defaultdict(float)
            for one in (scores, dict(enumerate(products))):
                for rank, position in enumerate(_best(one, MAX_RANKED), 1):
                    ranks[position] += 1 / (FUSION + rank)
            scores = ranks
        words = (word.strip("\"'`,;:?!()") for word in query.casefold().split())
        named = {self._by_name[word]: math.inf for word in words if word in self._by_name}
        return [self.tools[position].name for position in _best({**scores, **named}, limit)]

    def find(self, query: str, limit: int, embed: Any) -> list[str] | Awaitable[list[str]]:
        """Search by the words and the embedding of a query; embed the tools as well, unless they are embedded."""
        texts = [query] if self.vectors else [query, *map(text_of, self.tools)]

        def ranked(given: Any) -> list[str]:  # such as numpy arrays
            vectors = [[float(number) for number in vector] for vector in given]
            if len(vectors) != len(texts):
                raise TypeError(
                    f"embed: expected a vector for each of {len(texts)} texts, got {len(vectors)}"
                )
            wanted, *known = ([x / (math.hypot(*one) or 1.0) for x in one] for one in vectors)
            self.vectors = known or self.vectors
            return self.search(query, limit, wanted)

        made = embed(texts)
        return Then[list[str]](made, ranked) if is_awaitable(made) else ranked(made)

    def groups(self, most: int) -> list[tuple[str, int]]:
        """The most frequent first words of the tools' names, each with its number of tools."""
        firsts = (next(words_of(tool.name), tool.name) for tool in self.tools)
        return Counter(firsts).most_common(most)


def _best(scores: Mapping[int, float], limit: int) -> list[int]:
    return heapq.nsmallest(limit, scores, key=lambda position: (-scores[position], position))


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
