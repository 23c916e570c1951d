"""Arguments as models write them when they write them badly: each kind by its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from treadle.messages import JSONDict
from treadle.testing._chaos_dice import Dice, Table

Spoiler: TypeAlias = Callable[[Dice, JSONDict, int], Any]
"""Takes valid arguments and how long a text may get, and returns what stands in the call in their place."""

LONE = "\ud83d"
"""Half of a character: Python's text can hold it, nothing can send it."""
CONTROLS = "".join(map(chr, range(32))) + "\x7f\x85\u2028\u202e\ufeff\uffff"


def _field(dice: Dice, good: JSONDict) -> str:
    return dice.choice(list(good)) if good else "x"


def _changed(dice: Dice, good: JSONDict, value: Any) -> JSONDict:
    return {**good, _field(dice, good): value}


def _with_raw(dice: Dice, good: JSONDict, raw: str) -> str:
    """JSON text in which one value is replaced by what is no JSON."""
    mark = "\ufffd"
    return json.dumps(_changed(dice, good, mark), ensure_ascii=False).replace(f'"{mark}"', raw)


def _truncated(dice: Dice, good: JSONDict, _longest: int) -> str:
    text = json.dumps(good)
    return text[: dice.randrange(1, len(text))]


def _trailing_comma(_dice: Dice, good: JSONDict, _longest: int) -> str:
    return json.dumps({**good, "x": 1})[:-1] + ",}"


def _not_a_number(dice: Dice, good: JSONDict, _longest: int) -> str:
    return _with_raw(dice, good, dice.choice(("NaN", "-Infinity", "Infinity", "-NaN", "1.#INF")))


def _huge_number(dice: Dice, good: JSONDict, _longest: int) -> str:
    huge = (
        "1e999",
        "-1e999",
        "9" * 400,
        "9" * 5_000,
        "0." + "1" * 5_000,
        "1e-999",
        "-0",
        str(2**63),
    )
    return _with_raw(dice, good, dice.choice(huge))


def _bad_number(dice: Dice, good: JSONDict, _longest: int) -> str:
    return _with_raw(dice, good, dice.choice(("007", "+1", ".5", "1.", "0x1F", "1_000", "--1")))


def _duplicate_keys(dice: Dice, good: JSONDict, _longest: int) -> str:
    field = json.dumps(_field(dice, good))
    rest = json.dumps(good)[1:-1] or f"{field}: 1"
    return f"{{{field}: null, {rest}}}"


def _deep(dice: Dice, good: JSONDict, _longest: int) -> str:
    depth = dice.choice((60, 300, 480, 700, 900, 1_100, 3_000, 20_000))
    opening, closing = dice.choice((('{"x":', "}"), ("[", "]")))
    inner = opening * depth + "1" + closing * depth
    return _with_raw(dice, good, inner[: dice.choice((None, None, len(opening) * depth))])


def _control_characters(dice: Dice, good: JSONDict, _longest: int) -> str:
    return _with_raw(dice, good, f'"{dice.choice((CONTROLS, chr(0), chr(27) + "[2J", chr(10)))}"')


def _escaped_controls(dice: Dice, good: JSONDict, _longest: int) -> str:
    return json.dumps(_changed(dice, good, CONTROLS))


def _lone_surrogate(dice: Dice, good: JSONDict, _longest: int) -> str:
    name, value = dice.choice(((LONE, 1), (_field(dice, good), f"a{LONE}")))
    return json.dumps({**good, name: value}, ensure_ascii=dice.chance(0.5))


def _wrong_type(dice: Dice, good: JSONDict, _longest: int) -> str:
    wrong: tuple[Any, ...] = (
        None,
        True,
        5,
        -1.5,
        "five",
        "",
        [],
        [[]],
        {},
        {"x": {"y": 1}},
        "1",
        "true",
    )
    return json.dumps(_changed(dice, good, dice.choice(wrong)))


def _missing_field(dice: Dice, good: JSONDict, _longest: int) -> str:
    field = _field(dice, good)
    return json.dumps({name: value for name, value in good.items() if name != field})


def _extra_field(dice: Dice, good: JSONDict, _longest: int) -> str:
    names = ("extra", "", " ", "self", "cls", "__class__", "fn", "context", "a" * 3_000, "\0", "ö")
    return json.dumps({**good, dice.choice(names): dice.choice((1, None, [], "x"))})


def _many_fields(dice: Dice, good: JSONDict, _longest: int) -> str:
    return json.dumps({**good, **{f"f{n}": n for n in range(dice.choice((30, 300)))}})


def _huge_text(dice: Dice, good: JSONDict, longest: int) -> str:
    return json.dumps(_changed(dice, good, dice.choice("xé\n") * dice.randrange(longest)))


def _other_object(dice: Dice, good: JSONDict, _longest: int) -> Any:
    cyclic: JSONDict = dict(good)
    cyclic["self"] = cyclic
    odd: tuple[Any, ...] = ({(1, 2): 3}, {5: float("nan")}, {"x": {1, 2}}, {"x": LONE})
    return dice.choice((cyclic, *odd))


ARGUMENTS: Table[Spoiler] = Table(
    "arguments",
    {
        "truncated": (4, _truncated),
        "in single quotes": (2, lambda _d, good, _n: repr(good)),
        "with a trailing comma": (2, _trailing_comma),
        "with a number that is none": (2, _not_a_number),
        "with a huge number": (2, _huge_number),
        "with a number written otherwise": (2, _bad_number),
        "encoded twice": (2, lambda _d, good, _n: json.dumps(json.dumps(good))),
        "an array": (2, lambda _d, good, _n: json.dumps([good])),
        "a scalar": (2, lambda dice, _g, _n: dice.choice(("5", "true", '"x"', "-0.0", '""'))),
        "empty": (2, lambda _d, _g, _n: ""),
        "white space": (1, lambda dice, _g, _n: dice.choice((" ", "\n\t\r ", "\u00a0", "\u200b"))),
        "null": (1, lambda _d, _g, _n: "null"),
        "left out": (1, lambda _d, _g, _n: None),
        "control characters": (2, _control_characters),
        "escaped control characters": (2, _escaped_controls),
        "half a character": (2, _lone_surrogate),
        "deeply nested": (2, _deep),
        "with a key twice": (2, _duplicate_keys),
        "in a code fence": (1, lambda _d, good, _n: f"```json\n{json.dumps(good)}\n```"),
        "with prose around": (1, lambda _d, good, _n: f"Sure! {json.dumps(good)} I hope it helps."),
        "two objects": (1, lambda _d, good, _n: json.dumps(good) * 2),
        "with a comment": (1, lambda _d, good, _n: "{// first\n" + json.dumps(good)[1:]),
        "after a byte order mark": (1, lambda _d, good, _n: "\ufeff" + json.dumps(good)),
        "no JSON": (1, lambda dice, _g, _n: dice.choice(("<x>1</x>", "x=1&y=2", "{x: 1}", "}{"))),
        "of a wrong type": (6, _wrong_type),
        "with a field missing": (4, _missing_field),
        "with a field too many": (3, _extra_field),
        "with many fields too many": (1, _many_fields),
        "with a huge text": (1, _huge_text),
        "an object, not its text": (2, lambda _d, good, _n: good),
        "an object that JSON does not know": (1, _other_object),
        "a number, not text": (1, lambda dice, _g, _n: dice.choice((5, 0, True, 1.5))),
    },
)
"""What becomes of the arguments of a call."""

_SEPARATORS: Mapping[int, tuple[str, str]] = {0: (",", ":"), 1: (", ", ": "), 2: (" ,\n", " :\t")}


def written(dice: Dice, arguments: JSONDict) -> str:
    """Arguments as JSON: the same thing every time, its keys in any order and any white space between."""
    keys = list(arguments)
    dice.shuffle(keys)
    separators = _SEPARATORS[dice.randrange(3)]
    return json.dumps({key: arguments[key] for key in keys}, separators=separators)
