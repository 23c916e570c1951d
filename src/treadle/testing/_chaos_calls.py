"""Calls, good and bad: their names, their ids, how many there are, and whether they come again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from treadle.messages import JSONDict
from treadle.testing._chaos_arguments import ARGUMENTS, CONTROLS, LONE, written
from treadle.testing._chaos_dice import Dice, Table
from treadle.testing._chaos_values import valid_arguments

Offer: TypeAlias = tuple[str, Mapping[str, Any]]
"""A tool as a model sees it: its name and the schema of its arguments."""


@dataclass(slots=True)
class Mind:
    """What a model knows and remembers.

    Args:
        offers: the tools that it was told of.
        longest: characters that a text of it has at most.
        most_calls: calls that an answer of it has at most.
        endless: whether it may wait for ever.
        request: the number of the request, from 1.
        ids: ids of calls that it gave before.
        fixed: the calls that it makes again and again.
    """

    offers: Sequence[Offer]
    longest: int
    most_calls: int
    endless: bool
    request: int = 0
    ids: list[str] = field(default_factory=list[str])
    fixed: list[tuple[str, JSONDict]] = field(default_factory=list[tuple[str, JSONDict]])

    def offer(self, dice: Dice) -> Offer:
        """One of the tools; one that does not exist, where there are none."""
        return dice.choice(self.offers) if self.offers else ("search", _NO_SCHEMA)


_NO_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}}


def good_call(dice: Dice, mind: Mind, place: int = 0) -> JSONDict:
    """A call of a tool that exists, with arguments that its schema accepts."""
    name, schema = mind.offer(dice)
    return make_call(dice, mind, place, name, valid_arguments(dice, schema))


def make_call(dice: Dice, mind: Mind, place: int, name: Any, arguments: JSONDict) -> JSONDict:
    """A well-formed call under an id that no other has."""
    call_id = f"call_{mind.request}_{place}"
    if len(mind.ids) < _REMEMBERED:
        mind.ids.append(call_id)
    function = {"name": name, "arguments": written(dice, arguments)}
    return {"id": call_id, "type": "function", "function": function}


_REMEMBERED = 50


def bad_call(dice: Dice, mind: Mind, place: int = 0) -> JSONDict:
    """A call that something is wrong with, or several things."""
    name, schema = mind.offer(dice)
    good = valid_arguments(dice, schema)
    call = make_call(dice, mind, place, name, good)
    kind = dice.randrange(10)
    if kind < 7 or kind == 9:  # noqa: PLR2004 - seven of ten, and all at once
        call["function"]["arguments"] = dice.pick(ARGUMENTS)(dice, good, mind.longest)
    if kind in {7, 9}:
        call["function"]["name"] = dice.pick(NAMES)(dice, name)
    if kind in {8, 9}:
        call["id"] = dice.pick(IDS)(dice, mind)
    if kind == 9:  # noqa: PLR2004 - as above
        dice.pick(_SHAPES)(call)
    return call


def _near_miss(dice: Dice, name: str) -> str:
    place = dice.randrange(len(name))
    return dice.choice(
        (
            name[:place] + name[place + 1 :],
            name[:place] + name[place] + name[place:],
            name.upper(),
            name.title(),
            name.replace("_", "-"),
            f"{name}s",
            f"functions.{name}",
            f" {name}\n",
            f"{name}()",
        )
    )


NAMES: Table[Callable[[Dice, str], Any]] = Table(
    "name",
    {
        "unknown": (3, lambda dice, _n: dice.choice(("launch", "python", "final_answer", "None"))),
        "nearly right": (4, _near_miss),
        "empty": (1, lambda dice, _n: dice.choice(("", " ", "\n"))),
        "with control characters": (1, lambda _d, name: name + CONTROLS),
        "with half a character": (1, lambda _d, name: name + LONE),
        "huge": (1, lambda dice, name: name * dice.choice((40, 400))),
        "no text": (0.3, lambda dice, _n: dice.choice((None, 5, ["x"], {"name": "x"}))),
        "a sentence": (1, lambda _d, name: f"I want to call {name}, please."),
    },
)
"""What becomes of the name of a call."""

IDS: Table[Callable[[Dice, Mind], Any]] = Table(
    "id",
    {
        "none": (2, lambda _d, _m: None),
        "empty": (2, lambda _d, _m: ""),
        "that of another call": (3, lambda dice, mind: dice.choice(mind.ids)),
        "the same every time": (3, lambda _d, _m: "call_0"),
        "as treadle would make it up": (
            1,
            lambda dice, mind: f"call_{mind.request}_{dice.choice('12')}",
        ),
        "numbered as treadle would": (1, lambda dice, _m: f"call_0_{dice.choice('23')}"),
        "a number": (2, lambda dice, _m: dice.choice((0, 7, -1, 1.5))),
        "no text": (1, lambda dice, _m: dice.choice((True, [], ["a"], {}, {"id": "a"}))),
        "huge": (1, lambda dice, _m: "i" * dice.choice((65, 5_000))),
        "with control characters": (1, lambda _d, _m: f"a{CONTROLS}"),
        "with half a character": (1, lambda _d, _m: f"a{LONE}"),
    },
)
"""What becomes of the id of a call."""


def _unwrap(call: JSONDict) -> None:
    call.update(call.pop("function"))


def _with_unknown_keys(call: JSONDict) -> None:
    call["extra_content"] = {"google": {"thought_signature": "c2ln"}}
    call["weight"] = float("nan")
    call["note"] = LONE


_SHAPES: Table[Callable[[JSONDict], object]] = Table(
    "call",
    {
        "without an id": (1, lambda call: call.pop("id")),
        "without a type": (1, lambda call: call.pop("type")),
        "of another type": (1, lambda call: call.update(type="custom")),
        "without its function around": (1, _unwrap),
        "with an index": (1, lambda call: call.update(index=3)),
        "with unknown keys": (1, _with_unknown_keys),
        "with a function that is none": (0.2, lambda call: call.update(function="search")),
    },
)

CALL_TABLES: tuple[Table[Any], ...] = (ARGUMENTS, NAMES, IDS, _SHAPES)


def some_calls(
    dice: Dice, mind: Mind, make: Callable[[Dice, Mind, int], JSONDict]
) -> list[JSONDict]:
    """A few calls, seldom dozens."""
    count = min(dice.choice((1, 1, 1, 2, 3, 5, 12, 40)), mind.most_calls)
    return [make(dice, mind, place) for place in range(count)]


def mixed_call(dice: Dice, mind: Mind, place: int = 0) -> JSONDict:
    """A call that may be good or bad."""
    return (good_call if dice.chance(0.6) else bad_call)(dice, mind, place)


def thousands(dice: Dice, mind: Mind) -> list[JSONDict]:
    """As many calls as it may make at once."""
    count = dice.randint(mind.most_calls // 2, mind.most_calls)
    kind = dice.randrange(4)
    if kind == 0:
        return [good_call(dice, mind, place) for place in range(count)]
    call = (good_call if kind < 3 else bad_call)(dice, mind, 0)  # noqa: PLR2004 - bad in one of four
    # Thousands of huge texts would be more than any client takes.
    count = min(count, max(1, 20 * mind.longest // len(repr(call))))
    if kind == 1:
        return [dict(call) for _ in range(count)]  # under one id
    return [{**call, "id": f"call_{mind.request}_{place}"} for place in range(count)]


def same_calls(dice: Dice, mind: Mind, period: int) -> list[JSONDict]:
    """The same call as ever, or one of several in turn.

    Args:
        dice: decides what it is, the first time.
        mind: remembers it.
        period: how many there are to alternate between.
    """
    while len(mind.fixed) < period:
        name, schema = mind.offer(dice)
        mind.fixed.append((name, valid_arguments(dice, schema)))
    name, arguments = mind.fixed[mind.request % period]
    call = make_call(dice, mind, 0, name, arguments)
    if dice.chance(0.3):
        call["id"] = "call_0"
    return [call]
