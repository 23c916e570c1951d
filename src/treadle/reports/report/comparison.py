"""The data of a comparison in a report's page: the first difference of two recordings."""

from __future__ import annotations

import json
from typing import Any

from treadle.messages import JSONDict
from treadle.recording.divergence import NOTHING, Divergence

AROUND = 600
"""How many characters of a value are shown before its first difference, and after."""


def comparison_data(
    found: Divergence | None, names: tuple[str, str], counts: tuple[int, int]
) -> JSONDict:
    """The data of a comparison.

    Args:
        found: the first difference; None if there is none.
        names: what the two recordings are called.
        counts: the number of runs of each; in the page, those of the first come before those of the second.
    """
    first, second = counts
    made: JSONDict = {"names": list(names), "count": first, "sides": [], "changes": []}
    if found is None:
        return made
    texts, place = (_text(found.a), _text(found.b)), found.run
    runs = place if place < first else None, first + place if place < second else None
    return made | {
        "iteration": found.iteration,
        "within": list(found.within),
        "what": found.what,
        "path": found.path,
        "sides": [
            {"name": name, "run": run, "value": value}
            for name, run, value in zip(names, runs, _marked(*texts), strict=True)
        ],
        "changes": list(found.changes),
    }


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is NOTHING else json.dumps(value, indent=1, default=repr)


def _marked(a: str, b: str) -> list[list[str]]:
    """Each text in three parts, before, within and after what differs; long ones are shortened."""
    start = _common(a, b)
    end = _common(a[start:][::-1], b[start:][::-1])
    parts: list[list[str]] = []
    for text in (a, b):
        last = len(text) - end
        before, after = text[max(0, start - AROUND) : start], text[last : last + AROUND]
        inside = text[start:last]
        if len(inside) > 2 * AROUND:
            inside = f"{inside[: 2 * AROUND]}…"
        parts.append(
            [
                f"{'…' if start > AROUND else ''}{before}",
                inside,
                f"{after}{'…' if last + AROUND < len(text) else ''}",
            ]
        )
    return parts


def _common(a: str, b: str) -> int:
    """How many characters at the start are equal."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(a), len(b)))
