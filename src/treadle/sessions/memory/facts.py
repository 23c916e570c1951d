"""Facts that are remembered, the messages that they come from, and how far a session was read."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from treadle.fast_dataclass import light_dataclass
from treadle.messages import sha256
from treadle.messages.framed import BREAKS, is_hidden

MAX_FACT = 500
"""The number of characters of a fact; the rest of a longer one is cut off."""


@light_dataclass(frozen=True)
class Source:
    """The messages that a fact was extracted from.

    Args:
        session_id: the session.
        start: the index of the first message among the messages of the session.
        stop: the index after the last message.
        created_at: when the fact was extracted, in seconds since the epoch.
    """

    session_id: str
    start: int
    stop: int
    created_at: float


@light_dataclass(frozen=True)
class Fact:
    """A fact that was learned from conversations.

    Args:
        scope: whose memory it belongs to.
        text: the fact, on one line.
        sources: where it was found, the earliest first. A fact without sources is forgotten.
    """

    scope: str
    text: str
    sources: tuple[Source, ...]

    @property
    def id(self) -> str:
        """The same for texts of one scope that differ only in case, white space or final punctuation."""
        return sha256(_normalized(self.text).encode("utf-8", "replace"))[:ID_LENGTH]

    @property
    def created_at(self) -> float:
        """When it was first extracted, in seconds since the epoch."""
        return min((source.created_at for source in self.sources), default=0.0)


ID_LENGTH = 32
"""The number of hexadecimal digits of an id: 128 bits."""


def by_age(facts: Iterable[Fact]) -> list[Fact]:
    """Facts in the order in which they were learned; those of one moment by their texts."""
    return sorted(facts, key=lambda fact: (fact.created_at, fact.text))


@light_dataclass(frozen=True)
class Cursor:
    """How far a session was read.

    Args:
        incarnation: that of the session, see `SessionInfo`.
        turns: the number of turns that are taken into account.
        messages: the number of messages, of the session as these turns made it, that were read.
    """

    incarnation: str
    turns: int
    messages: int


def one_line(text: str) -> str:
    """The text of a fact: on one line, without characters that show nothing, and no longer than `MAX_FACT`.

    A text that a model wrote cannot look like several facts when it is shown, and a person sees all of it.
    """
    shown = (
        " " if unicodedata.category(char) in BREAKS else "" if is_hidden(char) else char
        for char in text
    )
    return " ".join("".join(shown).split())[:MAX_FACT].rstrip()


def _normalized(text: str) -> str:
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return folded.rstrip(".!; ") or folded
