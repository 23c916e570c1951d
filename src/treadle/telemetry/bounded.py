"""Values of metric attributes, kept few: a time series stays for as long as the process does."""

from __future__ import annotations

from treadle.telemetry.names import OTHER

MOST_VALUES = 100
"""Different values that one attribute may have in a process; more are told as ``_OTHER``. No deployment names
so many models, or kinds of errors, on purpose."""
MOST_CHARACTERS = 128
"""Of one value."""


class Bounded:
    """Lets through the first values that come, and tells the others as ``_OTHER``.

    It is for what others name, such as a model in an answer: a server may send another name each time. Threads
    may share it; two that come at once may let one value more through.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """The value, if it is one of the first; else ``_OTHER``."""
        seen = self._seen
        if value in seen:
            return value
        if len(seen) >= MOST_VALUES or len(value) > MOST_CHARACTERS or not _is_plain(value):
            return OTHER
        seen.add(value)
        return value


def _is_plain(value: str) -> bool:
    """Whether it can be a label: an exporter would fail at a lone surrogate."""
    return value.isprintable() and bool(value)
