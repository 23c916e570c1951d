"""Choosing the facts that matter for a text, if there are more than fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.messages import CHARACTERS_PER_TOKEN
from treadle.sessions.memory.facts import Fact, by_age

MAX_SEARCHED = 2_000
"""The number of facts of a scope, the latest, that are read and searched for a text."""
OF_A_LINE = 4
"""The number of tokens that the line of a fact takes beside its text, with a date."""


def choose(facts: Sequence[Fact], query: str, max_facts: int, max_tokens: int) -> list[Fact]:
    """The facts that fit: those nearest to a query by their words, and then the newest.

    Args:
        facts: the facts, the oldest first.
        query: what they should be about.
        max_facts: the maximum number of facts.
        max_tokens: the maximum number of estimated tokens.

    Returns:
        The facts, the oldest first.
    """
    kept = fitting(facts, max_facts, max_tokens)
    if len(kept) == len(facts):
        return kept
    return by_age(fitting(_ranked(facts, query), max_facts, max_tokens))


def fitting(facts: Iterable[Fact], max_facts: int, max_tokens: int) -> list[Fact]:
    """The facts, in order, up to the first one that does not fit."""
    kept: list[Fact] = []
    for fact in facts:
        max_tokens -= OF_A_LINE + len(fact.text) // CHARACTERS_PER_TOKEN
        if max_tokens < 0 or len(kept) == max_facts:
            break
        kept.append(fact)
    return kept


def _ranked(facts: Sequence[Fact], query: str) -> list[Fact]:
    from treadle.tool_search.word_index import WordIndex, weigh_words  # noqa: PLC0415 - seldom needed

    scores = WordIndex([weigh_words([(1.0, fact.text)]) for fact in facts]).scores(query)
    order = sorted(range(len(facts)), key=lambda place: (-scores.get(place, 0.0), -place))
    return [facts[place] for place in order]
