"""Calls, valid and malformed: their names, ids and shapes, how many there are, and which are repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from treadle.messages import JSONDict, copy_json
from treadle.testing.chaos.arguments import ARGUMENTS, valid_arguments, written
from treadle.testing.chaos.dice import CONTROLS, SURROGATE, Dice, Table, always, one_of

Offer: TypeAlias = tuple[str, Mapping[str, Any]]
"""A tool as a model sees it: its name and the schema of its arguments."""


@dataclass(slots=True)
class Memory:
    """What a model knows and remembers: its tools, its options, and what it called before."""

    offers: Sequence[Offer]
    most_calls: int
    request: int = 0
    ids: list[str] = field(default_factory=list[str])
    fixed: list[tuple[str, JSONDict]] = field(default_factory=list[tuple[str, JSONDict]])

    def wanted(self, dice: Dice) -> tuple[str, JSONDict]:
        """The name of one of the tools, of an unknown one if there are none, and valid arguments."""
        name, schema = dice.choice(self.offers) if self.offers else _UNKNOWN
        return name, valid_arguments(dice, schema)


_UNKNOWN: Offer = ("search", {"type": "object", "properties": {"query": {"type": "string"}}})
_MOST_IDS = 50
"""Ids that are remembered."""


def _good_call(dice: Dice, memory: Memory, place: int = 0) -> JSONDict:
    """A call of an existing tool with valid arguments."""
    return _well_formed(dice, memory, place, *memory.wanted(dice))


def _well_formed(
    dice: Dice, memory: Memory, place: int, name: str, arguments: JSONDict
) -> JSONDict:
    call_id = f"call_{memory.request}_{place}"
    if len(memory.ids) < _MOST_IDS:
        memory.ids.append(call_id)
    function = {"name": name, "arguments": written(dice, arguments)}
    return {"id": call_id, "type": "function", "function": function}


def _bad_call(dice: Dice, memory: Memory, place: int = 0) -> JSONDict:
    """A call with one fault, or with several."""
    name, good = memory.wanted(dice)
    call = _well_formed(dice, memory, place, name, good)
    kind = dice.randrange(10)  # 0 to 6: arguments; 7: name; 8: id; 9: all of them, and the shape
    if kind not in {7, 8}:
        call["function"]["arguments"] = dice.pick(ARGUMENTS)(dice, good)
    if kind in {7, 9}:
        call["function"]["name"] = dice.pick(_NAMES)(dice, name)
    if kind in {8, 9}:
        call["id"] = dice.pick(_IDS)(dice, memory)
    if kind == 9:  # noqa: PLR2004 - see above
        dice.pick(_SHAPES)(call)
    return call


def _mixed_call(dice: Dice, memory: Memory, place: int = 0) -> JSONDict:
    """A call that may be good or bad."""
    return (_good_call if dice.chance(0.6) else _bad_call)(dice, memory, place)


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


_NAMES: Table[Callable[[Dice, str], Any]] = Table(
    "name",
    {
        "unknown": (3, one_of("launch", "python", "final_answer", "None")),
        "nearly right": (4, _near_miss),
        "empty": (1, one_of("", " ", "\n")),
        "with control characters": (1, lambda _d, name: name + CONTROLS),
        "with a lone surrogate": (1, lambda _d, name: name + SURROGATE),
        "huge": (1, lambda dice, name: name * dice.choice((40, 400))),
        "not text": (0.3, one_of(None, 5, ["x"], {"name": "x"})),
        "a sentence": (1, lambda _d, name: f"I want to call {name}, please."),
    },
)
_IDS: Table[Callable[[Dice, Memory], Any]] = Table(
    "id",
    {
        "missing": (2, always(None)),
        "empty": (2, always("")),
        "that of another call": (3, lambda dice, memory: dice.choice(memory.ids)),
        "the same every time": (3, always("call_0")),
        "as treadle would generate it": (1, lambda d, m: f"call_{m.request}_{d.choice('12')}"),
        "numbered as treadle would": (1, one_of("call_0_2", "call_0_3")),
        "a number": (2, one_of(0, 7, -1, 1.5)),
        "not text": (1, one_of(True, [], ["a"], {}, {"id": "a"})),
        "huge": (1, one_of("i" * 65, "i" * 5_000)),
        "with control characters": (1, always(f"a{CONTROLS}")),
        "with a lone surrogate": (1, always(f"a{SURROGATE}")),
    },
)
_UNKNOWN_KEYS: JSONDict = {
    "extra_content": {"google": {"thought_signature": "c2ln"}},
    "weight": float("nan"),
    "note": SURROGATE,
}
_SHAPES: Table[Callable[[JSONDict], object]] = Table(
    "call",
    {
        "without an id": (1, lambda call: call.pop("id")),
        "without a type": (1, lambda call: call.pop("type")),
        "of another type": (1, lambda call: call.update(type="custom")),
        "without the function level": (1, lambda call: call.update(call.pop("function"))),
        "with an index": (1, lambda call: call.update(index=3)),
        "with unknown keys": (1, lambda call: call.update(copy_json(_UNKNOWN_KEYS))),
        "with a function that is text": (0.2, lambda call: call.update(function="search")),
    },
)
CALL_NAMES = (*ARGUMENTS, *_NAMES, *_IDS, *_SHAPES)
"""The names of everything that may be wrong with a call."""


CallsMaker: TypeAlias = Callable[[Dice, Memory], list[JSONDict]]


def _some(make: Callable[[Dice, Memory, int], JSONDict]) -> CallsMaker:
    """A few calls, seldom dozens."""

    def some_calls(dice: Dice, memory: Memory) -> list[JSONDict]:
        count = min(dice.choice((1, 1, 1, 2, 3, 5, 12, 40)), memory.most_calls)
        return [make(dice, memory, place) for place in range(count)]

    return some_calls


def _many_calls(dice: Dice, memory: Memory) -> list[JSONDict]:
    """As many calls as one response may have."""
    count = dice.randint(memory.most_calls // 2, memory.most_calls)
    kind = dice.randrange(4)
    if kind == 0:
        return [_good_call(dice, memory, place) for place in range(count)]
    call = (_bad_call if kind == 3 else _good_call)(dice, memory)  # noqa: PLR2004 - one of four kinds
    # Thousands of huge texts are more than a client would accept.
    count = min(count, max(1, 20 * dice.longest // len(repr(call))))
    if kind == 1:
        return [dict(call) for _ in range(count)]  # with the same id
    return [{**call, "id": f"call_{memory.request}_{place}"} for place in range(count)]


def _duplicate_calls(dice: Dice, memory: Memory) -> list[JSONDict]:
    """The same call several times in one response."""
    call = _good_call(dice, memory)
    return [{**call, "id": f"{call['id']}_{place}"} for place in range(dice.randint(2, 5))]


def _in_turn(period: int) -> CallsMaker:
    """One of some calls in each response, always in the same order."""

    def next_call(dice: Dice, memory: Memory) -> list[JSONDict]:
        while len(memory.fixed) < period:
            memory.fixed.append(memory.wanted(dice))
        call = _well_formed(dice, memory, 0, *memory.fixed[memory.request % period])
        if dice.chance(0.3):
            call["id"] = "call_0"
        return [call]

    return next_call


CALLS: Mapping[str, tuple[float, CallsMaker]] = {
    "good calls": (34, _some(_good_call)),
    "bad calls": (16, _some(_bad_call)),
    "good and bad calls": (12, _some(_mixed_call)),
    "thousands of calls": (0.15, _many_calls),
    "the same call as before": (5, _in_turn(1)),
    "two calls in turn": (2, _in_turn(2)),
    "the same call several times at once": (3, _duplicate_calls),
}
"""What a model may call in one response, by name and with weights."""
