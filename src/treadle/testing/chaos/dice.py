"""Random choices that a seed decides, and the names of what was chosen."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Table(Generic[T]):
    """Entries to choose from, each with a name and a weight.

    Args:
        kind: the prefix of each name, as in ``arguments: truncated``.
        entries: by name, a weight and what is chosen.
    """

    def __init__(self, kind: str, entries: Mapping[str, tuple[float, T]]) -> None:
        self.names = tuple(f"{kind}: {name}" for name in entries)
        self.values = tuple(value for _, value in entries.values())
        self.weights = tuple(accumulate(weight for weight, _ in entries.values()))


class Dice(random.Random):
    """Random numbers from a seed.

    Args:
        seed: any text.

    Attributes:
        names: what was chosen from tables, in order, each name once.
    """

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.names: list[str] = []

    def pick(self, table: Table[T]) -> T:
        """Choose from a table by weight, and note the name."""
        place = bisect_right(table.weights, self.random() * table.weights[-1])
        place = min(place, len(table.values) - 1)  # rounding may reach the end
        self.note(table.names[place])
        return table.values[place]

    def note(self, name: str) -> None:
        """Add a name, unless it is there."""
        if name not in self.names:
            self.names.append(name)

    def chance(self, share: float) -> bool:
        """Return True in this share of all cases, from 0 to 1."""
        return self.random() < share


def names_of(*tables: Table[Any]) -> tuple[str, ...]:
    """The names of all entries of some tables."""
    return tuple(name for table in tables for name in table.names)
