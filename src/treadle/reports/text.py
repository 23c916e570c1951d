"""Text for terminals: control characters are escaped, and numbers are formatted."""

from __future__ import annotations

import unicodedata

from treadle.messages import Usage

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks of writing direction, which can make a text look like another."""

_ODD = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, lone surrogates, separators of lines and paragraphs."""

_UNSTEADY = frozenset({"Cf", "Cn", "Co", "Me"})
"""Categories whose width differs between terminals: joiners, enclosing marks, private and unassigned."""

_RANGES = (
    (0x115F, 0x1200),  # jamo that join the one before them, and fillers
    (0x3164, 0x3165),
    (0xFFA0, 0xFFA1),
    (0xFE00, 0xFE10),  # variation selectors
    (0xE0100, 0xE01F0),
    (0x1F1E6, 0x1F200),  # regional indicators, two of which make a flag
    (0x1F3FB, 0x1F400),  # skin tone modifiers
)
_JOINING = frozenset(chr(code) for start, end in _RANGES for code in range(start, end))
"""Further characters whose width differs between terminals."""

_MINUTE, _HOUR = 60, 3600
_IN_SECONDS = 2 * _MINUTE
"""Shorter durations are formatted in seconds only."""


def escape_controls(text: str) -> str:
    r"""The text with control characters as `\x1b`. Line ends and tabs stay."""
    return "".join(map(_shown, text.replace("\r\n", "\n")))


def _shown(char: str) -> str:
    if char in "\n\t" or (unicodedata.category(char) not in _ODD and char not in _BIDI):
        return char
    return char.encode("unicode_escape").decode()


def one_line(text: str, limit: int = 100) -> str:
    """The text on one line, escaped and truncated to a number of characters."""
    line = escape_controls(" ".join(text[: 4 * limit].split()))
    return line if len(line) <= limit else f"{line[:limit]}..."


def fixed_width(text: str, limit: int = 100) -> str:
    """One line as of `one_line`, without characters whose width differs between terminals.

    Text that is redrawn in place must not be wider than was calculated.
    """
    line = one_line(unicodedata.normalize("NFC", text[: 4 * limit]), limit)
    category = unicodedata.category
    return "".join(one for one in line if one not in _JOINING and category(one) not in _UNSTEADY)


def format_count(number: int, what: str) -> str:
    """A count with its noun: ``1 iteration``, ``2 iterations``, ``1,200 tokens``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def format_bound(usage: Usage) -> str:
    """How its counts are to be read, before a number: empty, ``at least ``, ``about ``, ``at least about ``."""
    return f"{'at least ' if usage.is_lower_bound else ''}{'about ' if usage.is_estimate else ''}"


def format_seconds(seconds: float) -> str:
    """A duration: ``0.02 s``, ``1.3 s``, ``75 s``."""
    digits = 2 if seconds < 1 else 1 if seconds < 10 else 0  # noqa: PLR2004 - three digits or fewer
    return f"{seconds:.{digits}f} s"


def format_elapsed(seconds: float) -> str:
    """A duration so far: ``1.3 s``, ``75 s``, ``2 min 05 s``, ``1 h 02 min``."""
    seconds = max(0.0, seconds)
    if seconds < 10:  # noqa: PLR2004 - as above
        return f"{int(seconds * 10) / 10:.1f} s"
    whole = int(seconds)
    if whole < _IN_SECONDS:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"


def format_dollars(dollars: float) -> str:
    """An amount of US dollars: ``$0.0042``, ``$0.10``, ``$1,250.00``."""
    if dollars >= 1:
        return f"${dollars:,.2f}"
    exact = f"${dollars:.4f}"
    return exact.removesuffix("00") if exact.endswith("00") else exact
