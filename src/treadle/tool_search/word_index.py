"""An inverted index of English texts, which ranks them for a query by BM25: their words, stems and synonyms.

BM25 and its constants: Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009).
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files

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
        found = Counter(word for count in counts for word in count)
        rarity = {
            word: math.log(1 + (len(counts) - n + 0.5) / (n + 0.5)) for word, n in found.items()
        }
        self._postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for position, count in enumerate(counts):
            damping = K1 * (1 - B + B * lengths[position] / (average or 1.0))
            for word, times in count.items():
                score = rarity[word] * times * (K1 + 1) / (times + damping)
                self._postings[word].append((position, score))

    def scores(self, query: str) -> dict[int, float]:
        """The score of each text that has a word of a query, or a synonym of one, by the position of the text."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in _stems_of(query[:MAX_QUERY]):
            best = dict(self._postings.get(word, ()))
            for other in synonyms().get(word, ()):
                for position, score in self._postings.get(other, ()):
                    best[position] = max(best.get(position, 0.0), OF_A_SYNONYM * score)
            for position, score in best.items():
                scores[position] += score
        return scores


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
    # Each particle after each word that may be its verb: most of them are no words, and match nothing.
    phrasal_verbs = (
        verb + word
        for position, word in enumerate(words)
        if word in PARTICLES
        for verb in words[max(0, position - MAX_BETWEEN - 1) : position]
    )
    return dict.fromkeys(map(stem, (*words, *joined, *phrasal_verbs)))


# Words

_WORD = re.compile(r"[^\W_]+")
_PART_OF_A_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")


def words_of(text: str) -> Iterator[str]:
    """The words of a text in lower case: those of ``snake_case``, and of ``camelCase`` and the whole."""
    for word in _WORD.findall(text):
        yield word.casefold()
        parts = _PART_OF_A_WORD.findall(word)
        if len(parts) > 1:
            yield from map(str.casefold, parts)


_COMMON = """
a an and are as at be by can could do does don for from has have how i if in into is it its me my not of on or our
please s so t some that the their them then there these this to us was we what when where which who will with you
your
"""
COMMON = frozenset(_COMMON.split())
"""Words that are in every text, so that they do not distinguish tools."""


_IRREGULAR_FORMS = """
begin began begun, bind bound, break broke broken, bring brought, build built, buy bought, choose chose chosen,
come came, draw drew drawn, drive drove driven, fall fell fallen, find found, fly flew flown, forget forgot,
freeze froze frozen, get got gotten, give gave given, go went gone, hang hung, hear heard, hide hid hidden, hold
held, index indices, keep kept, know knew known, lead led, leave left, lend lent, lose lost, make made, meet
met, pay paid, person people, ring rang rung, run ran, say said, see saw seen, sell sold, send sent, show shown,
speak spoke spoken, spend spent, steal stole stolen, take took taken, teach taught, tell told, think thought,
throw threw thrown, wear wore worn, win won, withdraw withdrew withdrawn, write wrote written
"""
_IRREGULAR = {
    form: forms.split()[0] for forms in _IRREGULAR_FORMS.split(",") for form in forms.split()[1:]
}
"""The first form of a word, by its irregular ones."""


@functools.lru_cache(maxsize=10_000)  # indexing a catalog meets the same words again and again
def stem(word: str) -> str:
    """The stem of an English word, roughly: "creating", "created", "creates" and "creation" have the same."""
    word = _IRREGULAR.get(word, word)
    if len(word) <= _SHORTEST or not word.isascii():
        return word
    if word.endswith("ies"):
        word = f"{word[:-3]}y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = word[: -len(ending)]
            if _is_short(word):
                return f"{word}e"  # "moving"
            if word[-1] == word[-2] and word[-1] not in "lsz":
                return word[:-1]  # "planned"
            break
    if len(word) > _SHORTEST and word[-1] in "ey" and not _is_short(word[:-1]):
        return word[:-1]
    return word


def _is_short(word: str) -> bool:
    """Whether a word has one vowel, before its last consonant: "plan" and "plane" have different stems."""
    vowels = [position for position, letter in enumerate(word) if letter in "aeiouy"]
    return vowels == [len(word) - 2] and word[-1] not in "wx"


PARTICLES = frozenset({"again", "away", "back", "down", "in", "off", "on", "out", "over", "up"})
"""The second words of phrasal verbs: the synonyms have those verbs as one word, such as "switchoff"."""

_SHORTEST = 3
"""The length of the longest words that have no ending."""
_ENDINGS = (
    ("ations", 4), ("ation", 4), ("ment", 4), ("ing", 3), ("ion", 4), ("ed", 3), ("er", 4), ("or", 4), ("al", 4),
)  # fmt: skip
"""Endings, each with the least length of the stem before it."""


@functools.cache
def synonyms() -> Mapping[str, Sequence[str]]:
    """Stems of the same or nearly the same meaning, by stem."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    text = files("treadle.tool_search").joinpath("synonyms.txt").read_text(encoding="ascii")
    for line in text.splitlines():
        group = list(map(stem, line.split()))
        for word in group:
            found[word] += (one for one in group if one != word and one not in found[word])
    return found
