"""Texts of others between tags, for a model: nothing in them ends or begins the frame."""

from __future__ import annotations

import re
import unicodedata

from treadle.messages.hidden import is_hidden

_OPENING = re.compile("[<\ufe64\uff1c]")
"""The character that begins a tag, also in its small and its wide form."""


def framed(tag: str, text: str, *others: str) -> str:
    """Put a text between tags of a name in lower case. Tags of this name and of ``others`` in it are escaped."""

    def escaped(found: re.Match[str]) -> str:
        is_tag = any(_is_tag(text, found.end(), name) for name in (tag, *others))
        return "&lt;" if is_tag else found[0]

    return f"<{tag}>\n{_OPENING.sub(escaped, text)}\n</{tag}>"


def _is_tag(text: str, at: int, tag: str) -> bool:
    """Whether the name of a tag follows, in any case, after slashes, with space or hidden characters."""
    matched = 0
    for place in range(at, len(text)):
        char = text[place]
        plain = unicodedata.normalize("NFKC", char).casefold()
        if plain == tag[matched]:
            matched += 1
            if matched == len(tag):
                return True
        elif not (char.isspace() or is_hidden(char) or (plain == "/" and not matched)):
            return False
    return False
