"""Text for terminals: characters that act or hide are escaped, and numbers are formatted."""

from __future__ import annotations

import unicodedata

from treadle.messages import Usage
from treadle.messages.framed import ACTING, IGNORABLE, is_hidden

_UNSTEADY = frozenset({"Cf", "Cn", "Co", "Me"})
"""Categories whose width differs between terminals: joiners, enclosing marks, private and unassigned."""

_RANGES = (
    (0x1160, 0x1200),  # jamo that join the one before them
    (0xFE0E, 0xFE10),  # variation selectors
    (0x1F1E6, 0x1F200),  # regional indicators, two of which make a flag
    (0x1F3FB, 0x1F400),  # skin tone modifiers
)
_JOINING = frozenset(chr(code) for start, end in _RANGES for code in range(start, end))
"""Further characters whose width differs between terminals."""

_MINUTE, _HOUR = 60, 3600
_IN_SECONDS = 2 * _MINUTE
"""Shorter durations are formatted in seconds only."""


def escape_controls(text: str, *, is_terminal: bool = True) -> str:
    r"""The text with control characters, and those that show nothing, as `\x1b`. Line ends and tabs stay.

    Args:
        text: the text, such as that of a model.
        is_terminal: whether a person reads it. A file or a pipe gets the characters that show nothing as they
            are, since they belong to the text: emoji and some scripts need them.
    """
    is_odd = is_hidden if is_terminal else _is_acting
    return "".join(
        char.encode("unicode_escape").decode() if is_odd(char) and char not in "\n\t" else char
        for char in text.replace("\r\n", "\n")
    )


def _is_acting(char: str) -> bool:
    return unicodedata.category(char) in ACTING


def one_line(text: str, limit: int = 100) -> str:
    """The text on one line, escaped and truncated to a number of characters."""
    line = escape_controls(" ".join(text[: 4 * limit].split()))
    return line if len(line) <= limit else f"{line[:limit]}..."


def fixed_width(text: str, limit: int = 100) -> str:
    """One line as of `one_line`, without characters whose width differs between terminals.

    Text that is redrawn in place must not be wider than was calculated.
    """
    category, start = unicodedata.category, unicodedata.normalize("NFC", text[: 4 * limit])
    steady = (one for one in start if one not in _JOINING and category(one) not in _UNSTEADY)
    return one_line(IGNORABLE.sub("", "".join(steady)), limit)


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
