"""An inverted index of texts, which ranks them for a query by BM25.

BM25 and its constants: Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009).
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from treadle.tool_search.words import COMMON, PARTICLES, SYNONYMS, stem, words_of

K1, B = 1.2, 0.5
"""How soon repetitions of a word stop to count, and how much the length of a text matters."""
OF_A_SYNONYM = 0.7
"""The weight of a word that has the meaning of a word of the query."""
MAX_BETWEEN = 5
"""How many words can be between a verb and its particle, as in "switch the lamp in the kitchen off"."""
MAX_QUERY = 2_000
"""The number of characters of a query that are read."""


class WordIndex:
    """An index of texts, each given by its words, as `weigh_words` returns them."""

    def __init__(self, counts: Sequence[Mapping[str, float]]) -> None:
        lengths = [sum(count.values()) for count in counts]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for position, count in enumerate(counts):
            damping = K1 * (1 - B + B * lengths[position] / (average or 1.0))
            for word, times in count.items():
                postings[word].append((position, times * (K1 + 1) / (times + damping)))
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for word, found in postings.items():
            rarity = math.log(1 + (len(counts) - len(found) + 0.5) / (len(found) + 0.5))
            self._postings[word] = [(position, rarity * score) for position, score in found]

    def scores(self, query: str) -> dict[int, float]:
        """The score of each text that has a word of a query, or a synonym of one, by the position of the text."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in _stems_of(query[:MAX_QUERY]):
            for position, score in self._matches(word).items():
                scores[position] += score
        return scores

    def _matches(self, word: str) -> dict[int, float]:
        """The texts with a word or one that means the same, by position, each with the better of the scores."""
        best = dict(self._postings.get(word, ()))
        for other in SYNONYMS.get(word, ()):
            for position, score in self._postings.get(other, ()):
                best[position] = max(best.get(position, 0.0), OF_A_SYNONYM * score)
        return best


def weigh_words(texts: Iterable[tuple[float, str]]) -> Counter[str]:
    """The stems of the words of texts, each with its number of occurrences, weighted by the text."""
    counts: Counter[str] = Counter()
    for weight, text in texts:
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
    for position, word in enumerate(words):
        if word in PARTICLES:
            verbs = words[max(0, position - MAX_BETWEEN - 1) : position]
            yield from (verb + word for verb in verbs)
