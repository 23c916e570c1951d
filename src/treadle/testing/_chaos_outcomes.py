"""Everything that a tool may return, by name."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from typing import Any, NoReturn

from treadle.results import Err, Ok
from treadle.testing._chaos_answers import Awaitable
from treadle.testing._chaos_arguments import CONTROLS, LONE
from treadle.testing._chaos_dice import Dice, Table
from treadle.testing._chaos_errors import ChaosError, UnspeakableError


class Unspeakable:
    """An object that has no text, and cannot be dumped."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def model_dump(self, **_options: Any) -> NoReturn:
        """Fail."""
        raise RuntimeError("no dump")


class Wordless:
    """An object whose text is none."""

    def __str__(self) -> str:
        wrong: Any = 5
        return wrong

    __repr__ = __str__


class LoudText(str):
    """Text of a class of its own, which says something else when it is asked."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def _cyclic(dice: Dice) -> Any:
    ring: list[Any] = [1]
    ring.append(ring)
    circle: dict[str, Any] = {}
    circle["self"] = circle
    return dice.choice((ring, circle, [{"ring": ring}]))


def _deep(dice: Dice) -> Any:
    made: Any = 1
    for _ in range(dice.choice((50, 300, 1_200, 5_000))):
        made = [made]
    return made


def _numbers() -> Iterator[int]:
    yield from range(5)


def _breaking() -> Iterator[int]:
    yield 1
    raise ChaosError


async def _numbers_later() -> AsyncIterator[int]:
    yield 1


async def _later(value: Any) -> Any:
    return value


_NAN = math.nan
_ODD: tuple[Any, ...] = (
    *({1, 2}, frozenset("a"), (1, (2,)), range(3), 1 + 2j, Decimal("NaN"), ..., NotImplemented),
    *(
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.timedelta.max,
        int,
        len,
        object(),
        ChaosError("a value"),
    ),
    *({1: 2, (3, 4): 5, None: 6}, {"a": {"b": {"c": object()}}}, [object()], 10**5_000, True),
)
RETURNS: Table[Callable[[Dice], Any]] = Table(
    "result",
    {
        "a text": (3, lambda dice: dice.choice(("ok", "42", "", " ", "line\nline", "ünï", "{}"))),
        "a number": (1, lambda dice: dice.choice((0, -1, 1.5, 2**80, 1e300))),
        "a dict": (2, lambda _d: {"found": 2, "items": [{"id": 1}, {"id": 2}]}),
        "nothing": (2, lambda _d: None),
        "bytes": (2, lambda d: d.choice((b"\xff\0", bytearray(b"ab"), memoryview(b"abc"), b""))),
        "not a number": (2, lambda d: d.choice((_NAN, math.inf, [_NAN], {"a": -math.inf}))),
        "something cyclic": (2, _cyclic),
        "something deep": (1, _deep),
        "something odd": (4, lambda dice: dice.choice(_ODD)),
        "something without a text": (
            2,
            lambda d: d.choice((Unspeakable(), Wordless(), [Unspeakable()], {"a": Wordless()})),
        ),
        "an error that is not raised": (1, lambda d: d.choice((UnspeakableError(), ChaosError()))),
        "half a character": (2, lambda dice: dice.choice((LONE, [LONE], {LONE: f"a{LONE}"}))),
        "NUL": (1, lambda dice: dice.choice(("\0", "a\0b", ["\0"]))),
        "control characters": (1, lambda _d: CONTROLS.replace("\0", "")),
        "text of another class": (1, lambda _d: LoudText("this")),
        "a huge text": (1, lambda dice: "xé\n"[dice.randrange(3)] * dice.randrange(200_000)),
        "many lines": (1, lambda dice: "line\n" * dice.randrange(9_000)),
        "a huge list": (1, lambda dice: list(range(dice.randrange(20_000)))),
        "Ok": (
            2,
            lambda d: Ok(d.choice(("fine", None, {"a": 1}, Ok("twice"), Unspeakable(), b""))),
        ),
        "Err": (2, lambda d: Err(d.choice(("no", None, 5, "", Unspeakable(), ChaosError("no"))))),
        "something to await": (1, lambda _d: Awaitable()),
        "a coroutine": (1, lambda _d: _later("later")),
        "a generator": (1, lambda dice: dice.choice((_numbers, _breaking))()),
        "an async generator": (1, lambda _d: _numbers_later()),
    },
)
"""What a tool returns."""
