"""Text of models and tools, made fit to be shown: a terminal obeys some of it, and must not."""

from __future__ import annotations

import unicodedata

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""What turns the direction of writing around, and so can show another text than there is."""

_ODD = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, stray bytes, and separators of lines and paragraphs."""


def clean(text: str) -> str:
    r"""The text with control characters as `\x1b`; line ends and tabs stay."""
    return "".join(map(_shown, text.replace("\r\n", "\n")))


def _shown(char: str) -> str:
    if char in "\n\t" or (unicodedata.category(char) not in _ODD and char not in _BIDI):
        return char
    return char.encode("unicode_escape").decode()


def one_line(text: str, limit: int = 100) -> str:
    """The text on one line, clean, and cut.

    Args:
        text: any.
        limit: characters to show of it.
    """
    line = clean(" ".join(text[: 4 * limit].split()))
    return line if len(line) <= limit else f"{line[:limit]}..."


def counted(number: int, what: str) -> str:
    """A number of things: ``1 iteration``, ``2 iterations``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def timed(seconds: float) -> str:
    """A duration: ``0.02 s``, ``1.3 s``, ``75 s``."""
    digits = 2 if seconds < 1 else 1 if seconds < 10 else 0  # noqa: PLR2004 - three digits or fewer
    return f"{seconds:.{digits}f} s"
