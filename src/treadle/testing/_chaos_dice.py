"""Chance by a seed: what comes of it is the same every time, and is noted by name."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Table(Generic[T]):
    """Things to choose from, each with a name and a weight.

    Args:
        kind: stands before the name of each, as in ``arguments: truncated``.
        entries: the weight and the thing, by name.
    """

    def __init__(self, kind: str, entries: Mapping[str, tuple[float, T]]) -> None:
        self.names = tuple(f"{kind}: {name}" for name in entries)
        self.things = tuple(thing for _, thing in entries.values())
        self.weights = tuple(accumulate(weight for weight, _ in entries.values()))


class Dice(random.Random):
    """Random numbers by a seed, and the names of what they decided.

    Args:
        seed: any text.
    """

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.told: list[str] = []

    def pick(self, table: Table[T]) -> T:
        """Choose from a table by weight, and note the name."""
        place = bisect_right(table.weights, self.random() * table.weights[-1])
        place = min(place, len(table.things) - 1)  # where rounding reached the very end
        self.tell(table.names[place])
        return table.things[place]

    def tell(self, name: str) -> None:
        """Note the name of what happens, once."""
        if name not in self.told:
            self.told.append(name)

    def chance(self, share: float) -> bool:
        """Whether something happens that does so in this share of all cases."""
        return self.random() < share


def names_of(tables: Iterable[Table[Any]]) -> tuple[str, ...]:
    """The names of all that some tables have."""
    return tuple(name for table in tables for name in table.names)
