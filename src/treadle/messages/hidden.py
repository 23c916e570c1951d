"""Characters that show nothing, by which a text can say to a model what a person does not see."""

from __future__ import annotations

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
