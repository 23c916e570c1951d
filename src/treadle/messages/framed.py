"""Texts of others between tags, for a model: nothing in them ends or begins the frame."""

from __future__ import annotations

import re
import unicodedata

from treadle.messages.hidden import is_hidden

_OPENING = re.compile("[<\ufe64\uff1c]")
"""The character that begins a tag, also in its small and its wide form."""


def framed(tag: str, text: str) -> str:
    """Put a text between tags. What looks like one of them in the text begins with ``&lt;``.

    Args:
        tag: the name of the tag, in lower case.
        text: the text; its other tags stay as they are.
    """
    inside = _OPENING.sub(
        lambda found: "&lt;" if _is_tag(text, found.end(), tag) else found[0], text
    )
    return f"<{tag}>\n{inside}\n</{tag}>"


def _is_tag(text: str, at: int, tag: str) -> bool:
    """Whether the name of a tag follows, as a model may read it: in any case, with slashes, space or nothing seen."""
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
