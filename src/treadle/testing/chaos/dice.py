"""Random choices that a seed decides, and the names of what was chosen."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, TypeVar

from treadle.messages import copy_json

SURROGATE = "\ud83d"
"""Half of a surrogate pair: valid in Python's text, but it cannot be encoded."""
CONTROLS = "".join(map(chr, range(32))) + "\x7f\x85\u2028\u202e\ufeff\uffff"
"""Control characters."""

T = TypeVar("T")


class Table(dict[str, T]):
    """Entries to choose from by weight.

    Args:
        kind: the prefix of each name, as in ``arguments: truncated``.
        entries: by name, a weight and what is chosen.
    """

    def __init__(self, kind: str, entries: Mapping[str, tuple[float, T]]) -> None:
        super().__init__({f"{kind}: {name}": value for name, (_, value) in entries.items()})
        self.weights = list(accumulate(weight for weight, _ in entries.values()))


class Dice(random.Random):
    """Random numbers from a seed, and what bounds the choices.

    Args:
        seed: any text.
        longest: the greatest length of a text, in characters.
        is_endless: whether something may wait forever.

    Attributes:
        names: what was chosen from tables, in order, each name once.
    """

    def __init__(self, seed: str, *, longest: int = 60_000, is_endless: bool = False) -> None:
        super().__init__(seed)
        self.longest = longest
        self.is_endless = is_endless
        self.names: list[str] = []

    def pick(self, table: Table[T]) -> T:
        """Choose from a table by weight, and note the name."""
        (name,) = self.choices(list(table), cum_weights=table.weights)
        self.note(name)
        return table[name]

    def note(self, name: str) -> None:
        """Add a name, unless it is there."""
        if name not in self.names:
            self.names.append(name)

    def chance(self, share: float) -> bool:
        """Return True in this share of all cases, from 0 to 1."""
        return self.random() < share


def one_of(*values: Any) -> Callable[..., Any]:
    """What a table holds for a choice among values; dicts and lists are copied, as a program may change them."""

    def choose(dice: Dice, *_: Any) -> Any:
        value = dice.choice(values)
        return copy_json(value) if isinstance(value, (dict, list)) else value

    return choose


def always(value: Any) -> Callable[..., Any]:
    """What a table holds for a single value."""
    return lambda *_: value
