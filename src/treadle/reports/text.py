"""Text of models and tools, made fit to be shown: a terminal obeys some of it, and must not."""

from __future__ import annotations

import unicodedata

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""What turns the direction of writing around, and so can show another text than there is."""

_ODD = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, stray bytes, and separators of lines and paragraphs."""

_UNSTEADY = frozenset({"Cf", "Cn", "Co", "Me"})
"""Of what terminals do not agree how wide it is: joiners, enclosing marks, private and unknown characters."""

_RANGES = (
    (0x115F, 0x1200),  # jamo that join the one before them, and fillers
    (0x3164, 0x3165),
    (0xFFA0, 0xFFA1),
    (0xFE00, 0xFE10),  # selectors of how the character before them looks
    (0xE0100, 0xE01F0),
    (0x1F1E6, 0x1F200),  # letters of which two make a flag
    (0x1F3FB, 0x1F400),  # colours of the skin of the one before them
)
_JOINING = frozenset(chr(code) for start, end in _RANGES for code in range(start, end))
"""The same of these."""

_MINUTE, _HOUR = 60, 3600
_IN_SECONDS = 2 * _MINUTE
"""Durations below are told in seconds alone."""


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


def steady(text: str, limit: int = 100) -> str:
    """One line as `one_line` makes it, of which every terminal says how wide it is.

    What is drawn in place must not take more room than was counted for it.

    Args:
        text: any.
        limit: characters to show of it.
    """
    line = one_line(unicodedata.normalize("NFC", text[: 4 * limit]), limit)
    if line.isascii():
        return line
    return "".join(
        char
        for char in line
        if char not in _JOINING and unicodedata.category(char) not in _UNSTEADY
    )


def counted(number: int, what: str) -> str:
    """A number of things: ``1 iteration``, ``2 iterations``, ``1,200 tokens``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def timed(seconds: float) -> str:
    """A duration: ``0.02 s``, ``1.3 s``, ``75 s``."""
    digits = 2 if seconds < 1 else 1 if seconds < 10 else 0  # noqa: PLR2004 - three digits or fewer
    return f"{seconds:.{digits}f} s"


def ticking(seconds: float) -> str:
    """A duration that goes on: ``1.3 s``, ``75 s``, ``2 min 05 s``, ``1 h 02 min``."""
    seconds = max(0.0, seconds)
    if seconds < 10:  # noqa: PLR2004 - as above
        return f"{int(seconds * 10) / 10:.1f} s"
    whole = int(seconds)
    if whole < _IN_SECONDS:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"


def money(dollars: float) -> str:
    """An amount of US dollars: ``$0.0042``, ``$0.10``, ``$1,250.00``."""
    if dollars >= 1:
        return f"${dollars:,.2f}"
    exact = f"${dollars:.4f}"
    return exact.removesuffix("00") if exact.endswith("00") else exact
