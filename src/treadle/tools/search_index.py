"""An inverted index of tools, which ranks them for a query by BM25.

BM25 and its constants: Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009).
``benchmarks/tool_search`` measures how often the right tool is found; the weights were chosen with its questions
for tuning.
"""

from __future__ import annotations

import heapq
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from treadle.messages import is_list, is_mapping
from treadle.tools.definition import Tool
from treadle.tools.search_words import COMMON, PARTICLES, SYNONYMS, stem, words_of

K1, B = 1.2, 0.5
"""How soon repetitions of a word stop to count, and how much the length of a description matters."""
NAME, DESCRIPTION, PARAMETERS = 2.0, 1.0, 0.2
"""The weights of a word in the name, in the description, and in the names, descriptions and enum values of the
parameters."""
OF_A_SYNONYM = 0.7
"""The weight of a word that has the meaning of a word of the query."""
MAX_BETWEEN = 5
"""How many words can be between a verb and its particle, as in "switch the lamp in the kitchen off"."""
MAX_DEPTH = 8
"""How many levels of nested parameters are read."""
MAX_QUERY = 2_000
"""The number of characters of a query that are read."""


class SearchIndex:
    """An index of tools.

    Args:
        tools: the tools, in the order that decides between equal ranks.

    Attributes:
        vectors: the embeddings of the tools, of length 1; empty until they are embedded.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools = tuple(tools)
        self.vectors: list[list[float]] = []
        self._by_name = {tool.name.casefold(): place for place, tool in enumerate(self.tools)}
        counts = [_counts(tool) for tool in self.tools]
        lengths = [sum(count.values()) for count in counts]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for place, count in enumerate(counts):
            damping = K1 * (1 - B + B * lengths[place] / (average or 1.0))
            for word, times in count.items():
                postings[word].append((place, times * (K1 + 1) / (times + damping)))
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for word, found in postings.items():
            rarity = math.log(1 + (len(counts) - len(found) + 0.5) / (len(found) + 0.5))
            self._postings[word] = [(place, rarity * score) for place, score in found]

    def search(self, query: str, limit: int) -> list[str]:
        """The names of the best tools for a query, best first; a tool that it names in full is first.

        Args:
            query: what the tool has to do, in any words; or its name.
            limit: the maximum number of names.
        """
        query = query[:MAX_QUERY]
        scores: defaultdict[int, float] = defaultdict(float)
        for word in _stems_of(query):
            for place, score in self._matches(word).items():
                scores[place] += score
        for name in self.named(query):
            scores[self._by_name[name.casefold()]] = math.inf
        best = heapq.nsmallest(limit, scores.items(), key=lambda one: (-one[1], one[0]))
        return [self.tools[place].name for place, _ in best]

    def _matches(self, word: str) -> dict[int, float]:
        """The places of the tools with a word or one that means the same, each with the better of the scores."""
        best = dict(self._postings.get(word, ()))
        for other in SYNONYMS.get(word, ()):
            for place, score in self._postings.get(other, ()):
                best[place] = max(best.get(place, 0.0), OF_A_SYNONYM * score)
        return best

    def named(self, query: str) -> Iterator[str]:
        """The tools whose whole names are in a query."""
        for word in query.casefold().split():
            place = self._by_name.get(word.strip("\"'`,;:?!()"))
            if place is not None:
                yield self.tools[place].name

    def groups(self, most: int) -> list[tuple[str, int]]:
        """The first words of the tools' names with their numbers of tools, the most frequent first.

        Args:
            most: the maximum number of words.
        """
        firsts = (next(words_of(tool.name), tool.name) for tool in self.tools)
        return Counter(firsts).most_common(most)


def text_of(tool: Tool) -> str:
    """The name, the description and the parameters of a tool as one text, for embeddings."""
    name = " ".join(dict.fromkeys(words_of(tool.name)))
    parameters = " ".join(_texts_in(tool.input_schema))
    return f"{name}: {tool.description} {parameters}".strip()


def _counts(tool: Tool) -> Counter[str]:
    """The words of a tool, each with its weighted number of occurrences."""
    counts: Counter[str] = Counter()
    fields = ((NAME, [tool.name]), (DESCRIPTION, [tool.description]))
    for weight, texts in (*fields, (PARAMETERS, _texts_in(tool.input_schema))):
        for text in texts:
            for word in words_of(text):
                if word not in COMMON:
                    counts[stem(word)] += weight  # type: ignore[assignment]  # a Counter of floats
    return counts


def _stems_of(query: str) -> Iterable[str]:
    words = list(words_of(query))
    joined = map(operator.add, words, words[1:])  # "back up" is "backup"
    return dict.fromkeys(map(stem, (*words, *joined, *_phrasal_verbs(words))))


def _phrasal_verbs(words: Sequence[str]) -> Iterator[str]:
    """Each particle after each word that may be its verb: most of them are no words, and match nothing."""
    for place, word in enumerate(words):
        if word in PARTICLES:
            verbs = words[max(0, place - MAX_BETWEEN - 1) : place]
            yield from (verb + word for verb in verbs)


def _texts_in(schema: Any, depth: int = 0) -> Iterator[str]:
    """The names, descriptions, titles and enum values in a schema of parameters."""
    if depth > MAX_DEPTH or not is_mapping(schema):
        return
    for key in ("description", "title"):
        if depth and isinstance(schema.get(key), str):
            yield schema[key]
    for value in schema.get("enum") or ():
        if isinstance(value, str):
            yield value
    fields: Any = schema.get("properties")
    if is_mapping(fields):
        yield from fields
    for part in _parts_of(schema):
        yield from _texts_in(part, depth + 1)


def _parts_of(schema: Mapping[str, Any]) -> Iterator[Any]:
    """The subschemas of a schema."""
    for key in ("properties", "$defs", "definitions"):
        named: Any = schema.get(key)
        if is_mapping(named):
            yield from named.values()
    for key in ("anyOf", "oneOf", "allOf"):
        alternatives: Any = schema.get(key)
        if is_list(alternatives):
            yield from alternatives
    yield schema.get("items")
