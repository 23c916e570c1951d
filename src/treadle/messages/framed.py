"""Texts of third parties for a model: invisible characters, and tags that a text cannot close or open."""

from __future__ import annotations

import itertools
import re
import unicodedata

ACTING = frozenset({"Cc", "Cs"})
"""Unicode categories: control characters, on which a terminal acts, and lone surrogates, which no encoding has."""
BREAKS = ACTING | {"Zl", "Zp"}
"""These, and separators of lines and paragraphs."""
IGNORABLE = re.compile(
    # Not U+FE0E and U+FE0F, which choose between text and emoji: answers have them often.
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Characters of other categories that show nothing: Unicode's property ``Default_Ignorable_Code_Point``."""
_HIDDEN = BREAKS | {"Cf"}
"""With formats: zero-width, of the writing direction, tags."""


def is_hidden(char: str) -> bool:
    """Whether a character shows nothing, or acts on a terminal, as a line feed does."""
    return unicodedata.category(char) in _HIDDEN or IGNORABLE.match(char) is not None


def framed(tag: str, text: str, *others: str) -> str:
    """Put a text between tags of a name in lower case. Tags of this name and of ``others`` in it are escaped."""

    def escaped(found: re.Match[str]) -> str:
        is_tag = any(_is_tag(text, found.end(), name) for name in (tag, *others))
        return "&lt;" if is_tag else found[0]

    safe = re.sub("[<\ufe64\uff1c]", escaped, text)  # also in its small and its wide form
    return f"<{tag}>\n{safe}\n</{tag}>"


def _is_tag(text: str, at: int, tag: str) -> bool:
    """Whether the name of a tag follows, in any case, after slashes, with space or hidden characters."""
    chars = (text[place] for place in range(at, len(text)))
    shown = (char for char in chars if not (char.isspace() or is_hidden(char)))
    plain = (unicodedata.normalize("NFKC", char).casefold() for char in shown)
    name = itertools.dropwhile("/".__eq__, plain)
    return "".join(itertools.islice(name, len(tag))) == tag
